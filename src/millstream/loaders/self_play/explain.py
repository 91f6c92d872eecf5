"""Which positions were in a step, and in which steps a game was."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from millstream.errors import LoaderError, StoreError
from millstream.live.events import FORMAT, entered
from millstream.live.row_log import RowLog
from millstream.live.window import Entry
from millstream.loaders.origin import RowOrigin, Span
from millstream.loaders.self_play.checks import checked_game
from millstream.loaders.self_play.journal import JOURNAL
from millstream.storage import LogReader, Position

if TYPE_CHECKING:
    from millstream.loaders.self_play.run import SelfPlayRun


def origins_of(step: int, run: SelfPlayRun) -> list[RowOrigin]:
    """The origin of each row of a rank's batch."""
    rows = run.files.rows_of(step)
    return _origins(rows.of_rank(run.settings.rank), run.entries_at(rows.epoch), run.task.path)


def _origins(rows: npt.NDArray[np.void], entries: Sequence[Entry], folder: str) -> list[RowOrigin]:
    starts = [entry.first for entry in entries]
    found = [_entry(chunk, entries, starts) for chunk in rows["chunk"].tolist()]
    return [_origin(row, entry, rows[row], folder) for row, entry in enumerate(found)]


def _entry(chunk: int, entries: Sequence[Entry], starts: list[int]) -> Entry:
    """The source that a game is from."""
    at = bisect_right(starts, chunk) - 1
    if at < 0 or chunk >= entries[at].stop:
        raise StoreError(f"game {chunk} is of no source that entered in its epoch", hint="keep cache_dir whole")
    return entries[at]


def _origin(row: int, entry: Entry, origin: np.void, folder: str) -> RowOrigin:
    chunk, ply = int(origin["chunk"]), int(origin["ply"])
    span = Span(entry.name, chunk, ply, ply + 1, str(Path(folder, entry.name)))
    return RowOrigin(row, entry.name, chunk - entry.first, (span,), use=int(origin["use"]))


def steps_of(document: int, source: str | None, run: SelfPlayRun) -> list[int]:
    """The steps of the present epoch that a game was in; with a source, `document` is its place in that file."""
    document = checked_game(document)
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


class RecordedSelfPlay:
    """A run, by what it has written into its `cache_dir`; it may be over, or go on meanwhile."""

    def __init__(self, folder: Path) -> None:
        for name in (JOURNAL, "rows.bin", "rows.idx"):
            if not (folder / name).is_file():
                raise StoreError(f"{folder / name}: the file is missing", hint="keep all of cache_dir")
        self._folder, self._rows = folder, RowLog.recorded(folder)

    @staticmethod
    def lies_in(folder: Path) -> bool:
        """Whether a folder is the `cache_dir` of such a run."""
        return (folder / "rows.idx").is_file() or _is_of_games(folder / JOURNAL)

    def explain(self, step: int, rank: int = 0) -> list[RowOrigin]:
        """The origin of each row of a rank's batch."""
        rows = self._rows[step]
        lines = LogReader(self._folder / JOURNAL, Position.start(FORMAT))
        return _origins(rows.of_rank(rank), entered(lines.having("enter"), rows.epoch), "")

    def steps_of(self, game: int) -> list[int]:
        """Every step that a game was in, by its number in the run."""
        game = checked_game(game)
        return [step for step in range(len(self._rows)) if (self._rows[step].origins["chunk"] == game).any()]


def _is_of_games(journal: Path) -> bool:
    """Whether a journal was written by a run over games: only its first line can go on from the name of the format."""
    try:
        return LogReader(journal, Position.start(FORMAT)).read() is not None
    except StoreError:
        return False
