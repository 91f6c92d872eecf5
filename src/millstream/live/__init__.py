"""The live road: stages that turn a folder which grows into batches of positions, for ever."""

from millstream.live import recipe as _recipe  # makes the stages known to recipes
from millstream.live.arrivals import Arrival, Found, Gone, ScanComplete
from millstream.live.chunk_filter import ChunkFilter
from millstream.live.chunk_reader import ChunkReader
from millstream.live.chunk_rescorer import ChunkRescorer
from millstream.live.chunk_set import ChunkSet
from millstream.live.chunk_source_feed import BadSource, ChunkSourceFeed, Sourced
from millstream.live.chunk_unpacker import ChunkUnpacker
from millstream.live.discovery import Discovery
from millstream.live.frame_shuffler import FrameShuffler
from millstream.live.hanse import HanseSampling
from millstream.live.positions import PositionSampling, PositionWeights
from millstream.live.rejections import Rejection
from millstream.live.splitter import Splitter, part_of_each
from millstream.live.stream_shuffler import StreamShuffler
from millstream.live.tensor_generator import TensorGenerator

_recipe.register_all()

__all__ = [
    "Arrival",
    "BadSource",
    "ChunkFilter",
    "ChunkReader",
    "ChunkRescorer",
    "ChunkSet",
    "ChunkSourceFeed",
    "ChunkUnpacker",
    "Discovery",
    "Found",
    "FrameShuffler",
    "Gone",
    "HanseSampling",
    "PositionSampling",
    "PositionWeights",
    "Rejection",
    "ScanComplete",
    "Sourced",
    "Splitter",
    "StreamShuffler",
    "TensorGenerator",
    "part_of_each",
]
