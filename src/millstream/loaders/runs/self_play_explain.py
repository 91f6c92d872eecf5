"""Which positions were in a step, and in which steps a game was."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from millstream.errors import LoaderError, StoreError
from millstream.loaders import RowOrigin, Span, origins_of, whole
from millstream.selfplay import EVENTS_FORMAT, JOURNAL, RowLog, StepRows, WindowEntry, entered
from millstream.storage import LogReader, Position

if TYPE_CHECKING:
    from millstream.loaders.runs.self_play import SelfPlayRun


@dataclass(frozen=True)
class EnteredGames:
    """The games that entered in an epoch, from files of a folder."""

    entries: Sequence[WindowEntry]
    folder: str

    def origins(self, row: np.void) -> list[RowOrigin]:
        """Name file, game, ply and use of a row."""
        chunk, ply = int(row["chunk"]), int(row["ply"])
        entry = self._entry(chunk)
        span = Span(entry.name, chunk, ply, ply + 1, str(Path(self.folder, entry.name)))
        return [RowOrigin(0, entry.name, chunk - entry.first, (span,), use=int(row["use"]))]

    def _entry(self, chunk: int) -> WindowEntry:
        at = bisect_right(self.entries, chunk, key=lambda entry: entry.first) - 1
        if at < 0 or chunk >= self.entries[at].stop:
            raise StoreError(f"game {chunk} is of no source that entered in its epoch", hint="keep cache_dir whole")
        return self.entries[at]

    def rows(self, found: StepRows, rank: int) -> list[tuple[EnteredGames, np.void]]:
        """The rows of a rank's batch."""
        return [(self, row) for row in found.of_rank(rank)]


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
        lines = LogReader(self._folder / JOURNAL, Position.start(EVENTS_FORMAT))
        return origins_of(EnteredGames(entered(lines.having("enter"), rows.epoch), "").rows(rows, rank))

    def steps_of(self, game: int) -> list[int]:
        """Every step that a game was in, by its number in the run."""
        game = checked_game(game)
        return [step for step in range(len(self._rows)) if (self._rows[step].origins["chunk"] == game).any()]


def _is_of_games(journal: Path) -> bool:
    """Whether a journal was written by a run over games: only its first line can go on from the name of the format."""
    try:
        return LogReader(journal, Position.start(EVENTS_FORMAT)).read() is not None
    except StoreError:
        return False


def checked_step(step: Any) -> int:
    """A step by its number, from 0 on."""
    return _number(step, "step")


def checked_game(game: Any) -> int:
    """A game by its number, from 0 on."""
    return _number(game, "game")


def _number(said: Any, noun: str) -> int:
    number = None if isinstance(said, bool) else whole(said)
    if number is None or number < 0:
        raise LoaderError(f"{said!r} is no {noun}", hint=f"{noun}s are counted from 0")
    return number
