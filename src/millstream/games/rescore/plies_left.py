"""How many plies a game still had: counted where it is not known, and by the tables where they know mates."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from millstream.games.positions import PAWN, Positions
from millstream.games.rescore.results import SURELY
from millstream.games.rescore.tables import TableProbe


def count_plies_left(fields: npt.NDArray[np.void]) -> None:
    """Write the number of frames to the end, this one too, where nothing is known."""
    to_the_end = len(fields) - np.arange(len(fields))
    fields["plies_left"] = np.where(fields["plies_left"] == 0, to_the_end, fields["plies_left"])


def shorten_to_mates(fields: npt.NDArray[np.void], positions: Positions, probe: TableProbe) -> None:
    """Three pieces without a pawn: the way to the next zeroing move is the way to mate.

    Right after a capture it holds for all frames before as well.
    """
    pawns = positions.pieces[:, PAWN] | positions.pieces[:, 6 + PAWN]
    for ply in np.flatnonzero((positions.men <= 3) & (pawns == 0)).tolist():
        if ply == 0 or not probe.wdl(ply) or positions.repeated_since_zeroing(ply):
            continue
        dtz, rule50 = probe.dtz(ply), int(positions.rule50[ply])
        if dtz is None or rule50 + abs(dtz) >= SURELY:
            continue
        fields["plies_left"][ply] = abs(dtz)
        if rule50 == 0:
            fields["plies_left"][:ply] = abs(dtz) + ply - np.arange(ply)
