"""Results by the tables: what the position was worth, not what was made of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from millstream.errors import RecordError
from millstream.games import Positions
from millstream.games.rescore.tables import TableProbe

SURELY, NEVER = 99, 101
"""Plies without progress: a win that needs less is one, a win that needs more is a draw."""


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
