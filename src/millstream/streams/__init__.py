"""Raw files -> windows of tokens that are made while training runs: the plan, the parts, and what makes them."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "part_maker": "PARTS_TOGETHER PartMaker",
        "plan": "STREAM_ORDER WINDOW_UNITS Numbers StreamPlan Units size_of unit_bytes",
        "starts": "STARTS_FILE WindowStarts",
        "stored_parts": "Kept KeptInMemory KeptOnDisk",
        "views": "View",
        "windows": "Pass StreamWindows",
    },
)
