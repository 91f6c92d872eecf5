"""What a self-play run keeps in a folder: which sources entered when, which rows each step had, and its windows.

admissions.jsonl    what happened to the window, and what was lost, as a chained log
rows.bin, rows.idx  the origins of all rows
sidecars/           the window of each state that may still be needed

One rank writes. A run that begins where another one lies puts all of that aside, with .1, .2, … at its end; a state of
that run brings it back.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.batches import closed_error
from millstream.errors import LoaderError, StateError
from millstream.live import Arrays, RowLog, SameRows, StepRows
from millstream.loaders.self_play.journal import JOURNAL, Facts, Part, RunJournal
from millstream.storage import Position, Sidecars

SIDECAR, SIDECARS = "window", "sidecars"
BESIDE = (*RowLog.NAMES, SIDECARS)
"""What belongs to the same run as the journal."""


class RunFiles:
    """The files of a run, all at the place where its trainer stands.

    Args:
        folder: Where they lie; None: nothing is written, and the last rows are in memory.
        facts: The settings that decide which rows come.
        part: Of this rank.
    """

    def __init__(self, folder: Path | None, facts: Facts | None = None, part: Part | None = None) -> None:
        self.folder, self._part = folder, part or Part()
        self.journal = RunJournal(None if folder is None else folder / JOURNAL, facts or {}, self._part, BESIDE)
        self.rows: RowLog | None = None
        self._same = None if folder is None or not self._part.hears else SameRows(folder)
        windows = None if folder is None else folder / SIDECARS
        self._windows = Sidecars(windows, SIDECAR, owns=True, writer=self._part.rank)
        self.parents: Path | None = None
        """Where the process writes its rows that this one was forked from."""

    def left_behind(self) -> RunFiles:
        """In a forked child: its own, in memory; what the other process has written can still be read."""
        self.journal.leave_behind()
        if self.folder is None:
            return self
        files = RunFiles(None, part=self._part)
        files.parents, files.rows = self.folder, None if self.rows is None else RowLog(None, len(self.rows))
        return files

    def refuse_parents(self) -> None:
        """Only the process that this one was forked from saves states, and goes on from them."""
        if self.parents is not None:
            raise LoaderError(
                f"the run in {self.parents} is that of the process that this one was forked from",
                hint="save and load its states there; a run of its own needs a loader with another cache_dir=",
            )

    def stand(self, position: Position) -> None:
        """Stand somewhere, with all files closed."""
        self.close()
        self.journal.stand(position)
        if self._same is not None:
            self._same.forget()

    def open(self, step: int) -> None:
        """Open the files at a step, if they are not."""
        if self.rows is None:
            self.journal.open()
            self.rows = RowLog(self.folder if self._part.writes else None, step)

    # Rows

    def remember(self, step: int, rows: StepRows) -> None:
        """Remember the rows of a step; a rank that hears another one compares them with what that has delivered."""
        if self.rows is None:  # somebody has closed it meanwhile
            raise closed_error()
        if self._same is not None:
            self._same.check(step, rows.origins)
        self.rows.append(rows)

    def rows_of(self, step: int) -> StepRows:
        """The rows of a step that was made."""
        if self.rows is None:
            raise LoaderError(f"step {step} was not made yet", hint="steps can be explained when they were made")
        folder = self._folder_of(step, self.rows)
        if folder is None:
            return self.rows[step]
        with closing(RowLog.recorded(folder)) as written:
            return written[step]

    def _folder_of(self, step: int, rows: RowLog) -> Path | None:
        """Where the first rank has written the rows of a step, or this one's parent before the fork; None: they are
        our own."""
        if self.folder is None:
            return self.parents if step < rows.first else None
        return None if self._part.writes or step in rows else self.folder

    # Windows

    def save(self, step: int, position: Position, facts: Facts, arrays: Arrays) -> dict[str, Any]:
        """Keep the window of a state that belongs to a position in the journal; gives what the state says of it. The
        files are open."""
        assert self.folder is not None
        if self.rows is not None:
            self.rows.sync()
        journal = self.journal.saved(position)
        return {"sidecar": self._windows.save(_packed(facts, arrays), step), "journal": journal.to_json()}

    def load(self, state: Mapping[str, Any]) -> tuple[dict[str, Any], Arrays]:
        """The window of a state, also if its run was put aside."""
        if self.folder is None:
            self.refuse_parents()
            raise LoaderError("the state names files beside it", hint="pass the cache_dir= it was saved with")
        return _unpacked(self._windows.load(state, sorted(self.folder.glob(f"{SIDECARS}.[0-9]*"))))

    def loaded(self, state: Mapping[str, Any]) -> None:
        """The run stands where a state was saved, whose window was loaded."""
        self._windows.loaded([state["sidecar"]["file"]], state["step"])

    def release(self, state: Mapping[str, Any]) -> None:
        """Let go of the windows that only states before this one need."""
        if self._part.writes:
            self._windows.release(state)

    def close(self) -> None:
        """Let go of the files."""
        self.journal.close()
        if self.rows is not None:
            self.rows.close()
            self.rows = None


def _packed(facts: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    file = io.BytesIO()
    said = np.frombuffer(json.dumps(facts, sort_keys=True).encode(), np.uint8)
    np.savez(file, allow_pickle=False, facts=said, **dict(arrays))
    return file.getvalue()


def _unpacked(data: bytes) -> tuple[dict[str, Any], Arrays]:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        facts = json.loads(arrays.pop("facts").tobytes())
        return dict(facts), arrays
    except (ValueError, KeyError, OSError) as error:
        raise StateError(f"the sidecar of the state cannot be read: {error}", hint="take another state") from None
