"""Games that are still being written -> batches: the stages of the live road."""

from millstream.live.chunk_filter import ChunkFilter
from millstream.live.chunk_rescorer import ChunkRescorer
from millstream.live.rejections import Rejection

__all__ = ["ChunkFilter", "ChunkRescorer", "Rejection"]
