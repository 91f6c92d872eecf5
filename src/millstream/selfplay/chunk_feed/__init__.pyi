from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.selfplay.chunk_feed.chunk_filter import ChunkFilter as ChunkFilter
    from millstream.selfplay.chunk_feed.chunk_reader import ChunkReader as ChunkReader
    from millstream.selfplay.chunk_feed.chunk_rescorer import ChunkRescorer as ChunkRescorer
    from millstream.selfplay.chunk_feed.chunk_set import ChunkSet as ChunkSet
    from millstream.selfplay.chunk_feed.chunk_set import EmptyPassBackoff as EmptyPassBackoff
    from millstream.selfplay.chunk_feed.chunk_source_feed import ChunkSourceFeed as ChunkSourceFeed
    from millstream.selfplay.chunk_feed.chunk_source_feed import Partial as Partial
    from millstream.selfplay.chunk_feed.chunk_source_feed import Sourced as Sourced
    from millstream.selfplay.chunk_feed.chunk_source_feed import open_sources as open_sources
    from millstream.selfplay.chunk_feed.chunk_source_feed import places_of as places_of
    from millstream.selfplay.chunk_feed.chunk_unpacker import PREFETCHED_USES as PREFETCHED_USES
    from millstream.selfplay.chunk_feed.chunk_unpacker import ChunkUnpacker as ChunkUnpacker
    from millstream.selfplay.chunk_feed.chunk_unpacker import PositionCache as PositionCache
    from millstream.selfplay.chunk_feed.discovery import Discovery as Discovery
    from millstream.selfplay.chunk_feed.frame_shuffler import GONE_FROM_RESERVOIR as GONE_FROM_RESERVOIR
    from millstream.selfplay.chunk_feed.frame_shuffler import FrameShuffler as FrameShuffler
    from millstream.selfplay.chunk_feed.frame_shuffler import ReservoirMoves as ReservoirMoves
    from millstream.selfplay.chunk_feed.frame_shuffler import Shuffled as Shuffled
    from millstream.selfplay.chunk_feed.frame_shuffler import joined as joined
    from millstream.selfplay.chunk_feed.game_stage import GamePlace as GamePlace
    from millstream.selfplay.chunk_feed.game_stage import GameStage as GameStage
    from millstream.selfplay.chunk_feed.stream_shuffler import FileOrder as FileOrder
    from millstream.selfplay.chunk_feed.stream_shuffler import StreamShuffler as StreamShuffler
    from millstream.selfplay.chunk_feed.tensor_generator import LAYOUTS as LAYOUTS
    from millstream.selfplay.chunk_feed.tensor_generator import Output as Output
    from millstream.selfplay.chunk_feed.tensor_generator import TensorGenerator as TensorGenerator
    from millstream.selfplay.chunk_feed.tensor_generator import TensorMaker as TensorMaker
    from millstream.selfplay.chunk_feed.tensor_generator import Tensors as Tensors
    from millstream.selfplay.chunk_feed.tensor_generator import buffer_offsets as buffer_offsets
    from millstream.selfplay.chunk_feed.tensor_generator import take_rows as take_rows

__all__ = [
    "GONE_FROM_RESERVOIR",
    "LAYOUTS",
    "PREFETCHED_USES",
    "ChunkFilter",
    "ChunkReader",
    "ChunkRescorer",
    "ChunkSet",
    "ChunkSourceFeed",
    "ChunkUnpacker",
    "Discovery",
    "EmptyPassBackoff",
    "FileOrder",
    "FrameShuffler",
    "GamePlace",
    "GameStage",
    "Output",
    "Partial",
    "PositionCache",
    "ReservoirMoves",
    "Shuffled",
    "Sourced",
    "StreamShuffler",
    "TensorGenerator",
    "TensorMaker",
    "Tensors",
    "buffer_offsets",
    "joined",
    "open_sources",
    "places_of",
    "take_rows",
]
