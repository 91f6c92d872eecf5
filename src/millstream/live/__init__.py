"""The live road: stages that turn a folder which grows into batches of positions, for ever."""

from millstream.live.arrivals import Arrival, Found, Gone, ScanComplete
from millstream.live.chunk_source_feed import BadSource, ChunkSourceFeed, Sourced
from millstream.live.discovery import Discovery
from millstream.live.splitter import Splitter, part_of_each

__all__ = [
    "Arrival",
    "BadSource",
    "ChunkSourceFeed",
    "Discovery",
    "Found",
    "Gone",
    "ScanComplete",
    "Sourced",
    "Splitter",
    "part_of_each",
]
