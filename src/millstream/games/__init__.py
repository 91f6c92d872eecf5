"""Self-play games as files hold them -> `FrameBlock`: their frames in columns -> tensors."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "block": "FrameBlock join_records",
        "board": "SyzygyTables",
        "chunk_source": "OUT_OF_REACH ChunkSource open_chunk_source",
        "descriptors": "Descriptors",
        "example": "example_folder example_games",
        "frame": "FRAME ORIGIN UNKNOWN_MOVE",
        "game": "Game",
        "gaviota": "GaviotaTables",
        "index_cache": "IndexCache",
        "inflate": "MOST_FRAMES",
        "input_formats": "InputFormat",
        "lint": "lint_games",
        "moves": "Moves",
        "native": "FrameError",
        "positions": "PAWN Positions transforms_of",
        "predicates": "FieldMatch Predicate Wanted filter_facts reason_against",
        "read": "read_chunk",
        "reservoir": "MOST_SLOTS SLOT_BYTES Reservoir",
        "rules": "Rules check_rules checked",
        "shown": "position_facts show_position",
        "tensors": "expand fill_boards fill_tensors",
        "validity": "uses_half_turn",
    },
)
