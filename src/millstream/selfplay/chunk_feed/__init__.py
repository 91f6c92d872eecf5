"""The stages from a growing folder to batches of positions, named as in Leela's own loader.

discovery -> chunk_source_feed -> chunk_set -> chunk_reader -> chunk_filter -> chunk_rescorer -> chunk_unpacker ->
frame_shuffler -> tensor_generator. Each has its own threads; queues connect them and give back-pressure.
"""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "chunk_filter": "ChunkFilter",
        "chunk_reader": "ChunkReader",
        "chunk_rescorer": "ChunkRescorer",
        "chunk_set": "ChunkSet EmptyPassBackoff",
        "chunk_source_feed": "ChunkSourceFeed Partial Sourced open_sources places_of",
        "chunk_unpacker": "PREFETCHED_USES ChunkUnpacker PositionCache",
        "discovery": "Discovery",
        "frame_shuffler": "GONE_FROM_RESERVOIR FrameShuffler ReservoirMoves Shuffled joined",
        "game_stage": "GamePlace GameStage",
        "stream_shuffler": "FileOrder StreamShuffler",
        "tensor_generator": "LAYOUTS Output TensorGenerator TensorMaker Tensors buffer_offsets take_rows",
    },
)
