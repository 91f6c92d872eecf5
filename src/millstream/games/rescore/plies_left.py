"""How many plies a game still had: counted where it is not known, and by the tables where they know mates."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from millstream.games import PAWN, Positions
from millstream.games.rescore.results import SURELY
from millstream.games.rescore.tables import MateProbe, TableProbe


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
