from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.games.block import FrameBlock as FrameBlock
    from millstream.games.block import join_records as join_records
    from millstream.games.board import SyzygyTables as SyzygyTables
    from millstream.games.chunk_source import OUT_OF_REACH as OUT_OF_REACH
    from millstream.games.chunk_source import ChunkSource as ChunkSource
    from millstream.games.chunk_source import open_chunk_source as open_chunk_source
    from millstream.games.descriptors import Descriptors as Descriptors
    from millstream.games.example import example_folder as example_folder
    from millstream.games.example import example_games as example_games
    from millstream.games.frame import FRAME as FRAME
    from millstream.games.frame import ORIGIN as ORIGIN
    from millstream.games.frame import UNKNOWN_MOVE as UNKNOWN_MOVE
    from millstream.games.game import Game as Game
    from millstream.games.gaviota import GaviotaTables as GaviotaTables
    from millstream.games.index_cache import IndexCache as IndexCache
    from millstream.games.inflate import MOST_FRAMES as MOST_FRAMES
    from millstream.games.input_formats import InputFormat as InputFormat
    from millstream.games.lint import lint_games as lint_games
    from millstream.games.moves import Moves as Moves
    from millstream.games.native import FrameError as FrameError
    from millstream.games.positions import PAWN as PAWN
    from millstream.games.positions import Positions as Positions
    from millstream.games.positions import transforms_of as transforms_of
    from millstream.games.predicates import FieldMatch as FieldMatch
    from millstream.games.predicates import Predicate as Predicate
    from millstream.games.predicates import Wanted as Wanted
    from millstream.games.predicates import filter_facts as filter_facts
    from millstream.games.predicates import reason_against as reason_against
    from millstream.games.read import read_chunk as read_chunk
    from millstream.games.reservoir import MOST_SLOTS as MOST_SLOTS
    from millstream.games.reservoir import SLOT_BYTES as SLOT_BYTES
    from millstream.games.reservoir import Reservoir as Reservoir
    from millstream.games.rules import Rules as Rules
    from millstream.games.rules import check_rules as check_rules
    from millstream.games.rules import checked as checked
    from millstream.games.shown import position_facts as position_facts
    from millstream.games.shown import show_position as show_position
    from millstream.games.tensors import expand as expand
    from millstream.games.tensors import fill_boards as fill_boards
    from millstream.games.tensors import fill_tensors as fill_tensors
    from millstream.games.validity import uses_half_turn as uses_half_turn

__all__ = [
    "FRAME",
    "MOST_FRAMES",
    "MOST_SLOTS",
    "ORIGIN",
    "OUT_OF_REACH",
    "PAWN",
    "SLOT_BYTES",
    "UNKNOWN_MOVE",
    "ChunkSource",
    "Descriptors",
    "FieldMatch",
    "FrameBlock",
    "FrameError",
    "Game",
    "GaviotaTables",
    "IndexCache",
    "InputFormat",
    "Moves",
    "Positions",
    "Predicate",
    "Reservoir",
    "Rules",
    "SyzygyTables",
    "Wanted",
    "check_rules",
    "checked",
    "example_folder",
    "example_games",
    "expand",
    "fill_boards",
    "fill_tensors",
    "filter_facts",
    "join_records",
    "lint_games",
    "open_chunk_source",
    "position_facts",
    "read_chunk",
    "reason_against",
    "show_position",
    "transforms_of",
    "uses_half_turn",
]
