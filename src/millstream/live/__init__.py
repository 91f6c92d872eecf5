"""The live road: stages that turn a folder which grows into batches of positions, for ever."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "arrivals": "Arrival Found sort_key",
        "barren": "Barren",
        "chunk_filter": "ChunkFilter",
        "chunk_reader": "ChunkReader",
        "chunk_rescorer": "ChunkRescorer",
        "chunk_set": "ChunkSet",
        "chunk_source_feed": "ChunkSourceFeed Partial",
        "chunk_unpacker": "ChunkUnpacker",
        "discovery": "Discovery",
        "entrance": "AsItWas AsTheyCome AsWritten Entrance",
        "events": "CHANGES EVENTS_FORMAT Event entered unpacked",
        "frame_shuffler": "GONE_FROM_RESERVOIR FrameShuffler Moves Shuffled joined",
        "game_stage": "GameStage",
        "hanse": "HanseSampling",
        "led": "EVER AsLed AtOnce Leads",
        "look": "open_sources places_of",
        "losses": "Loss Losses LostSlots LostUse is_loss read_loss",
        "mirror": "Mirror",
        "place": "Place",
        "position_cache": "PREFETCHED_USES PositionCache",
        "positions": "ALL_POSITIONS PositionSampling PositionWeights",
        "recipe": "stages_of_recipes",
        "row_log": "RowLog StepRows",
        "same_rows": "SameRows",
        "stream_shuffler": "StreamShuffler",
        "tensor_generator": "TensorGenerator",
        "tensor_maker": "LAYOUTS Output TensorMaker Tensors buffer_offsets take_rows",
        "window": "Arrays Entry Window",
    },
)
