"""Self-play games as files hold them -> `FrameBlock`: their frames in columns -> tensors."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "block": "FrameBlock Game join_records",
        "chunk_source": "OUT_OF_REACH ChunkSource open_chunk_source",
        "codec": "MOST_FRAMES read_chunk",
        "descriptors": "Descriptors",
        "example": "example_folder example_games",
        "frame": "FRAME ORIGIN InputFormat",
        "index_cache": "IndexCache",
        "lint": "lint_games",
        "predicates": "FieldMatch Predicate Wanted filter_facts reason_against",
        "rescorer": "RescoreSettings Rescorer",
        "reservoir": "MOST_SLOTS SLOT_BYTES Reservoir",
        "show": "position_facts show_position",
        "tensors": "expand fill_boards fill_tensors",
        "validity": "Rules check_rules checked",
    },
)
