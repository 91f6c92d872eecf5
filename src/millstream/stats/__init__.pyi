from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.stats.ledger import Ledger as Ledger
    from millstream.stats.ledger import read_counts as read_counts
    from millstream.stats.lint_report import MOST_EXAMPLES as MOST_EXAMPLES
    from millstream.stats.lint_report import LintReport as LintReport
    from millstream.stats.lint_report import Problem as Problem
    from millstream.stats.lint_report import Severity as Severity
    from millstream.stats.lint_report import Tally as Tally
    from millstream.stats.profile import Counts as Counts
    from millstream.stats.profile import OnProgress as OnProgress
    from millstream.stats.profile import Profile as Profile
    from millstream.stats.profile import Progress as Progress
    from millstream.stats.profile import as_pipeline as as_pipeline
    from millstream.stats.profile import peak_bytes as peak_bytes
    from millstream.stats.profile import resident_bytes as resident_bytes
    from millstream.stats.styled import Shown as Shown
    from millstream.stats.styled import Style as Style
    from millstream.stats.styled import Styled as Styled
    from millstream.stats.styled import bit_span as bit_span
    from millstream.stats.styled import count as count
    from millstream.stats.styled import counted as counted
    from millstream.stats.styled import duration as duration
    from millstream.stats.styled import share as share
    from millstream.stats.styled import size as size
    from millstream.stats.styled import visible as visible

__all__ = [
    "MOST_EXAMPLES",
    "Counts",
    "Ledger",
    "LintReport",
    "OnProgress",
    "Problem",
    "Profile",
    "Progress",
    "Severity",
    "Shown",
    "Style",
    "Styled",
    "Tally",
    "as_pipeline",
    "bit_span",
    "count",
    "counted",
    "duration",
    "peak_bytes",
    "read_counts",
    "resident_bytes",
    "share",
    "size",
    "visible",
]
