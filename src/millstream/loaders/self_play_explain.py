"""Which positions were in a step, and in which steps a game was."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path

import numpy as np

from millstream.errors import LoaderError
from millstream.live.window import Entry
from millstream.loaders.origin import RowOrigin, Span
from millstream.loaders.self_play_run import SelfPlayRun


def origins_of(step: int, run: SelfPlayRun) -> list[RowOrigin]:
    """The origin of each row of a rank's batch."""
    rows = run.files.rows_of(step)
    entries = run.entries_at(rows.epoch)
    starts = [entry.first for entry in entries]
    return [
        _origin(row, entries[bisect_right(starts, int(origin["chunk"])) - 1], origin, run)
        for row, origin in enumerate(rows.of_rank(run.settings.rank))
    ]


def _origin(row: int, entry: Entry, origin: np.void, run: SelfPlayRun) -> RowOrigin:
    chunk, ply = int(origin["chunk"]), int(origin["ply"])
    span = Span(entry.name, chunk, ply, ply + 1, str(Path(run.task.path, entry.name)))
    return RowOrigin(row, entry.name, chunk - entry.first, (span,), use=int(origin["use"]))


def steps_of(document: int, source: str | None, run: SelfPlayRun) -> list[int]:
    """The steps of the present epoch that a game was in; with a source, `document` is its place in that file."""
    if source is not None:
        entry = next((each for each in run.entries_at(run.epoch) if each.name == source), None)
        if entry is None:
            raise LoaderError(f"there is no source {source!r}", hint="sources are files, by their paths in the folder")
        document += entry.first
    return [step for step in _epoch_steps(run) if (run.files.rows_of(step).origins["chunk"] == document).any()]


def _epoch_steps(run: SelfPlayRun) -> list[int]:
    """The steps of the present epoch that were made, as far as they are remembered."""
    steps: list[int] = []
    for step in range(run.step - 1, -1, -1):
        try:
            if run.files.rows_of(step).epoch != run.epoch:
                break
        except LoaderError:  # forgotten
            break
        steps.append(step)
    return steps[::-1]
