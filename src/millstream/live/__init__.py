"""The live road: stages that turn a folder which grows into batches of positions, for ever."""

from millstream.live.arrivals import Arrival, Found, Gone, ScanComplete
from millstream.live.chunk_filter import ChunkFilter
from millstream.live.chunk_rescorer import ChunkRescorer
from millstream.live.chunk_source_feed import BadSource, ChunkSourceFeed, Sourced
from millstream.live.discovery import Discovery
from millstream.live.rejections import Rejection
from millstream.live.splitter import Splitter, part_of_each

__all__ = [
    "Arrival",
    "BadSource",
    "ChunkFilter",
    "ChunkRescorer",
    "ChunkSourceFeed",
    "Discovery",
    "Found",
    "Gone",
    "Rejection",
    "ScanComplete",
    "Sourced",
    "Splitter",
    "part_of_each",
]
