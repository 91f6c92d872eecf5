from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.games.block import FrameBlock as FrameBlock
    from millstream.games.block import Game as Game
    from millstream.games.block import join_records as join_records
    from millstream.games.chunk_source import OUT_OF_REACH as OUT_OF_REACH
    from millstream.games.chunk_source import ChunkSource as ChunkSource
    from millstream.games.chunk_source import open_chunk_source as open_chunk_source
    from millstream.games.codec import MOST_FRAMES as MOST_FRAMES
    from millstream.games.codec import read_chunk as read_chunk
    from millstream.games.descriptors import Descriptors as Descriptors
    from millstream.games.example import example_folder as example_folder
    from millstream.games.example import example_games as example_games
    from millstream.games.frame import FRAME as FRAME
    from millstream.games.frame import ORIGIN as ORIGIN
    from millstream.games.frame import InputFormat as InputFormat
    from millstream.games.index_cache import IndexCache as IndexCache
    from millstream.games.lint import lint_games as lint_games
    from millstream.games.predicates import FieldMatch as FieldMatch
    from millstream.games.predicates import Predicate as Predicate
    from millstream.games.predicates import Wanted as Wanted
    from millstream.games.predicates import filter_facts as filter_facts
    from millstream.games.predicates import reason_against as reason_against
    from millstream.games.rescorer import Rescorer as Rescorer
    from millstream.games.rescorer import RescoreSettings as RescoreSettings
    from millstream.games.reservoir import MOST_SLOTS as MOST_SLOTS
    from millstream.games.reservoir import SLOT_BYTES as SLOT_BYTES
    from millstream.games.reservoir import Reservoir as Reservoir
    from millstream.games.show import position_facts as position_facts
    from millstream.games.show import show_position as show_position
    from millstream.games.tensors import expand as expand
    from millstream.games.tensors import fill_boards as fill_boards
    from millstream.games.tensors import fill_tensors as fill_tensors
    from millstream.games.validity import Rules as Rules
    from millstream.games.validity import check_rules as check_rules
    from millstream.games.validity import checked as checked

__all__ = [
    "FRAME",
    "MOST_FRAMES",
    "MOST_SLOTS",
    "ORIGIN",
    "OUT_OF_REACH",
    "SLOT_BYTES",
    "ChunkSource",
    "Descriptors",
    "FieldMatch",
    "FrameBlock",
    "Game",
    "IndexCache",
    "InputFormat",
    "Predicate",
    "RescoreSettings",
    "Rescorer",
    "Reservoir",
    "Rules",
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
]
