"""The steps of rescoring: each changes one thing of a game, in place.

`rescore_results` and `shorten_to_mates` ask endgame tables, which any class with `TableProbe` or `MateProbe` can be.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from millstream import _core
from millstream.errors import RecordError
from millstream.games.block import FrameBlock, FrameError
from millstream.games.frame import UNKNOWN_MOVE, InputFormat
from millstream.games.positions import PAWN, Moves, Positions, transforms_of

if TYPE_CHECKING:
    from millstream.games.rescorer import RescoreSettings

SURELY, NEVER = 99, 101
"""Plies without progress: a win that needs less is one, a win that needs more is a draw."""
VERSION = 7


def rescore_results(fields: npt.NDArray[np.void], positions: Positions, probe: TableProbe) -> None:
    """Write what tables say into `result_q` and `result_d`."""
    results = fields["result_q"].astype(np.int64)
    if (results != fields["result_q"]).any():
        found = fields["result_q"][results != fields["result_q"]][0]
        raise RecordError("result is not -1, 0 or 1", f"{found}", "a deblundered game cannot be rescored by tables")
    _after_zeroing_moves(results, positions, probe)
    for ply in _known_plies(probe):
        if positions.rule50[ply]:
            results[ply] = _between_zeroing_moves(int(results[ply]), ply, positions, probe)
    fields["result_q"], fields["result_d"] = results, results == 0


def _known_plies(probe: TableProbe) -> list[int]:
    """Where tables may say something; the first frame is not looked up itself."""
    plies: list[int] = (1 + np.flatnonzero(probe.in_reach[1:])).tolist()
    return plies


def _after_zeroing_moves(results: npt.NDArray[np.int64], positions: Positions, probe: TableProbe) -> None:
    """Where nothing before matters, the tables are right, for the frames since the last such place as well."""
    done = 0
    for ply in _known_plies(probe):
        if positions.rule50[ply] or (wdl := probe.wdl(ply)) is None:
            continue
        steps_back = ply - np.arange(done, ply + 1)
        results[done : ply + 1] = wdl * (-1) ** steps_back
        done = ply + 1


def _between_zeroing_moves(result: int, ply: int, positions: Positions, probe: TableProbe) -> int:
    """The result of a position with a history: a win may come too late, and a repetition may have spoiled it."""
    wdl = probe.wdl(ply)
    if wdl is None or (wdl == 0 and result == 0):
        return result
    if wdl == 0:
        return 0
    rule50, dtz = int(positions.rule50[ply]), probe.dtz(ply)
    if wdl != result:
        proven = dtz is not None and rule50 + abs(dtz) < SURELY and not positions.repeated_since_zeroing(ply)
        return wdl if proven else 0
    return 0 if dtz is not None and rule50 + abs(dtz) > NEVER else result


def count_plies_left(fields: npt.NDArray[np.void]) -> None:
    """Write the number of frames to the end, this one too, where nothing is known."""
    to_the_end = len(fields) - np.arange(len(fields))
    fields["plies_left"] = np.where(fields["plies_left"] == 0, to_the_end, fields["plies_left"])


def shorten_to_mates(
    fields: npt.NDArray[np.void], positions: Positions, probe: TableProbe, mates: MateProbe | None = None
) -> None:
    """Three pieces without a pawn: the way to the next zeroing move is the way to mate.

    Right after a capture it holds for all frames before as well. Where there is a table of mates, that one is right.
    """
    pawns = positions.pieces[:, PAWN] | positions.pieces[:, 6 + PAWN]
    bare = (positions.men <= 3) & (pawns == 0)
    for ply in np.flatnonzero(bare if mates is None else bare & ~mates.in_reach).tolist():
        if ply == 0 or not probe.wdl(ply) or positions.repeated_since_zeroing(ply):
            continue
        dtz, rule50 = probe.dtz(ply), int(positions.rule50[ply])
        if dtz is None or rule50 + abs(dtz) >= SURELY:
            continue
        fields["plies_left"][ply] = abs(dtz)
        if rule50 == 0:
            fields["plies_left"][:ply] = abs(dtz) + ply - np.arange(ply)


def count_to_mates(fields: npt.NDArray[np.void], positions: Positions, mates: MateProbe) -> None:
    """Where tables know a mate and the game is not drawn, write the way to it, also for all frames since the last such.

    Tables do not know of 50 moves. A mate that may come too late counts only if less than that was thought to be left.
    """
    left, done = fields["plies_left"], 0
    for ply in np.flatnonzero(mates.in_reach & (fields["result_q"] != 0)).tolist():
        if ply == 0 or not (to_mate := mates.plies_to_mate(ply)):
            continue
        late = to_mate + int(positions.rule50[ply]) > SURELY
        if (late and to_mate <= left[ply]) or positions.repeated_since_zeroing(ply):
            continue
        left[done : ply + 1] = to_mate + ply - np.arange(done, ply + 1)
        done = ply + 1


def deblunder(
    fields: npt.NDArray[np.void], threshold: float, width: float, *, last: int = -1, own_result: bool = False
) -> None:
    """Walk back from a frame; from the first blunder on, write what would have come of the best moves.

    Args:
        fields: The frames of a game.
        threshold: How much worse than the best move a blunder is.
        width: Around the threshold, how far old and new result are mixed.
        last: Where the walk begins.
        own_result: Begin with the result of that frame, and not with that of the last one.
    """
    if len(fields):
        _core.deblunder(fields.view(np.uint8), last % len(fields), threshold, width, own_result)


def adjust_policies(
    block: FrameBlock, settings: RescoreSettings, probe: TableProbe | None = None, *, half_turn: bool = False
) -> FrameBlock:
    """The block with other probabilities; what is not a number stays. A game with a position of which no move is left
    is a RecordError.

    Args:
        block: A game.
        settings: `dist_temp`, `dist_offset`, `dtz_boost`.
        probe: Tables, for the boost.
        half_turn: By which rule the policies of transposed frames are written (`uses_half_turn`).
    """
    if settings.dist_temp == 1 and settings.dist_offset == 0 and settings.dtz_boost == 0:
        return block
    more = np.zeros(0)
    if probe is not None and settings.dtz_boost:
        more = settings.dtz_boost * _shares_of_best(block, probe, half_turn=half_turn)
    try:
        chances = _core.adjust_policies(block.columns, more, settings.dist_offset, 1 / settings.dist_temp)
    except FrameError as error:
        reason, _, found = str(error).partition(": ")
        raise RecordError(reason, found, hint="pass a dist_offset that is less below 0") from None
    return replace(block, probabilities=chances)


def _shares_of_best(block: FrameBlock, probe: TableProbe, *, half_turn: bool) -> npt.NDArray[np.float64]:
    """For each entry of the policies, its share of the boost."""
    shares, transforms = np.zeros(len(block.moves)), transforms_of(block.fields)
    for ply in np.flatnonzero(probe.in_reach).tolist():
        best = probe.best_moves(ply)
        entries = best.entries(np.repeat(transforms[ply], len(best)), half_turn=half_turn)
        first, last = int(block.starts[ply]), int(block.ends[ply])
        shares[first:last] = np.isin(block.moves[first:last], entries) / max(1, len(best))
    return shares


def add_averages(fields: npt.NDArray[np.void], theta: float) -> None:
    """Write `q_st` and `d_st` of a game of an older version, and call it version 7.

    Each average is `theta` of that of the next ply, seen from here, and the rest of this ply's own value.
    """
    if (fields["version"] >= VERSION).all():
        return
    _core.add_averages(fields.view(np.uint8), theta)
    name_next_moves(fields)
    fields["version"] = VERSION


def name_next_moves(fields: npt.NDArray[np.void]) -> None:
    """Write the moves of the next two plies into `opp_played_idx` and `next_played_idx`."""
    played = np.where(fields["visits"] > 0, fields["played_idx"], UNKNOWN_MOVE)
    later = np.append(played, [UNKNOWN_MOVE, UNKNOWN_MOVE])
    fields["opp_played_idx"], fields["next_played_idx"] = later[1:-1], later[2:]


def convert(block: FrameBlock, positions: Positions, layout: InputFormat, *, half_turn: bool = False) -> FrameBlock:
    """The game in an input format. Its history begins with its first frame.

    Args:
        block: The game.
        positions: Its positions.
        layout: The input format.
        half_turn: By which rule the policies of transposed frames are written (`uses_half_turn`); the new ones are
            written by the one that fits the planes.
    """
    try:
        fields, moves, probabilities = _core.convert_game(block.columns, positions.raw, layout, half_turn)
    except FrameError as error:
        reason, _, found = str(error).partition(": ")
        raise RecordError(reason, found, hint="leave the game out: it is damaged") from None
    return replace(block, fields=fields.view(block.fields.dtype), moves=moves, probabilities=probabilities)


class TableProbe(Protocol):
    """What tables say of the positions of one game."""

    @property
    def in_reach(self) -> npt.NDArray[np.bool_]:
        """Which positions have few enough pieces, and no castling."""

    def wdl(self, ply: int) -> int | None:
        """1, 0 or -1 for the mover; what the rule of 50 moves spoils is a draw. None if no table says."""

    def dtz(self, ply: int) -> int | None:
        """Plies to the next capture or move of a pawn in best play, negative for the loser. None if no table says."""

    def best_moves(self, ply: int) -> Moves:
        """The moves that win soonest, else draw, else lose latest; none if no table says."""


class Tables(Protocol):
    """Endgame tables."""

    def of(self, positions: Positions) -> TableProbe:
        """What they say of the positions of a game."""

    def close(self) -> None:
        """Close their files."""


class MateProbe(Protocol):
    """What tables of mates say of the positions of one game."""

    @property
    def in_reach(self) -> npt.NDArray[np.bool_]:
        """Which positions there is a table for."""

    def plies_to_mate(self, ply: int) -> int | None:
        """Plies to mate in best play of either side; 0 in a draw. None if no table says."""


class MateTables(Protocol):
    """Tables of mates."""

    @property
    def coverage(self) -> dict[int, tuple[int, int]]:
        """For each number of pieces, how many tables there are, and how many there could be."""

    def of(self, positions: Positions) -> MateProbe:
        """What they say of the positions of a game."""

    def close(self) -> None:
        """Close their files."""
