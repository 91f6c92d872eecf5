"""Numbers that loaders leave behind."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "figures": "bit_span count counted duration share size visible",
        "findings": "MOST_EXAMPLES LintReport Problem Severity Tally",
        "ledger": "Ledger read_counts",
        "memory": "peak_bytes resident_bytes",
        "profile": "Counts Profile as_pipeline",
        "progress": "OnProgress Progress",
        "styled": "Shown Style Styled",
    },
)
