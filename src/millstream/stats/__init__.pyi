from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.stats.figures import bit_span as bit_span
    from millstream.stats.figures import count as count
    from millstream.stats.figures import counted as counted
    from millstream.stats.figures import duration as duration
    from millstream.stats.figures import share as share
    from millstream.stats.figures import size as size
    from millstream.stats.figures import visible as visible
    from millstream.stats.findings import MOST_EXAMPLES as MOST_EXAMPLES
    from millstream.stats.findings import LintReport as LintReport
    from millstream.stats.findings import Problem as Problem
    from millstream.stats.findings import Severity as Severity
    from millstream.stats.findings import Tally as Tally
    from millstream.stats.ledger import Ledger as Ledger
    from millstream.stats.ledger import read_counts as read_counts
    from millstream.stats.memory import peak_bytes as peak_bytes
    from millstream.stats.memory import resident_bytes as resident_bytes
    from millstream.stats.profile import Counts as Counts
    from millstream.stats.profile import Profile as Profile
    from millstream.stats.profile import as_pipeline as as_pipeline
    from millstream.stats.progress import OnProgress as OnProgress
    from millstream.stats.progress import Progress as Progress
    from millstream.stats.styled import Shown as Shown
    from millstream.stats.styled import Style as Style
    from millstream.stats.styled import Styled as Styled

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
