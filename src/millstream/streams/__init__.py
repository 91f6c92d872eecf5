"""Raw files -> windows of tokens that are made while training runs: the plan, the parts, and what makes them."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "kept": "Kept KeptInMemory KeptOnDisk",
        "maker": "PARTS_TOGETHER PartMaker",
        "plan": "Numbers STREAM_ORDER WINDOW_UNITS StreamPlan Units size_of unit_bytes",
        "starts": "STARTS_FILE WindowStarts",
        "windows": "Pass StreamWindows View",
    },
)
