from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.streams.part_maker import PARTS_TOGETHER as PARTS_TOGETHER
    from millstream.streams.part_maker import PartMaker as PartMaker
    from millstream.streams.plan import STREAM_ORDER as STREAM_ORDER
    from millstream.streams.plan import WINDOW_UNITS as WINDOW_UNITS
    from millstream.streams.plan import Numbers as Numbers
    from millstream.streams.plan import StreamPlan as StreamPlan
    from millstream.streams.plan import Units as Units
    from millstream.streams.plan import size_of as size_of
    from millstream.streams.plan import unit_bytes as unit_bytes
    from millstream.streams.starts import STARTS_FILE as STARTS_FILE
    from millstream.streams.starts import WindowStarts as WindowStarts
    from millstream.streams.stored_parts import Kept as Kept
    from millstream.streams.stored_parts import KeptInMemory as KeptInMemory
    from millstream.streams.stored_parts import KeptOnDisk as KeptOnDisk
    from millstream.streams.views import View as View
    from millstream.streams.windows import Pass as Pass
    from millstream.streams.windows import StreamWindows as StreamWindows

__all__ = [
    "PARTS_TOGETHER",
    "STARTS_FILE",
    "STREAM_ORDER",
    "WINDOW_UNITS",
    "Kept",
    "KeptInMemory",
    "KeptOnDisk",
    "Numbers",
    "PartMaker",
    "Pass",
    "StreamPlan",
    "StreamWindows",
    "Units",
    "View",
    "WindowStarts",
    "size_of",
    "unit_bytes",
]
