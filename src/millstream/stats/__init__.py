"""Counts, progress and findings of loaders and other long jobs, and how they are worded."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "ledger": "Ledger read_counts",
        "lint_report": "MOST_EXAMPLES LintReport Problem Severity Tally",
        "profile": "Counts OnProgress Profile Progress as_pipeline peak_bytes resident_bytes",
        "styled": "Shown Style Styled bit_span count counted duration share size visible",
    },
)
