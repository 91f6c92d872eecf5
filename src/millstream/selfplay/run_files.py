"""What a self-play run keeps in a folder, and what it remembers where it has none.

admissions.jsonl    what happened to the window, and what was lost, as a chained log
rows.bin, rows.idx  the origins of all rows
sidecars/           the window of each state that may still be needed

One rank writes. A run that begins in the folder of another renames all of that to .1, .2, …; a state of that run
brings it back. `SourceHistory` is for runs without a folder: it explains the last steps and recognises their files.
"""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.batches import closed_error
from millstream.errors import FingerprintError, LoaderError, StateError
from millstream.selfplay.events import CHANGES, Event
from millstream.selfplay.journal import JOURNAL, Facts, RankRole, RunJournal
from millstream.selfplay.row_log import RankConsistencyCheck, RowLog, StepRows
from millstream.selfplay.window import Arrays, WindowEntry
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

    def __init__(self, folder: Path | None, facts: Facts | None = None, part: RankRole | None = None) -> None:
        self.folder, self._part = folder, part or RankRole()
        self.journal = RunJournal(None if folder is None else folder / JOURNAL, facts or {}, self._part, BESIDE)
        self.rows: RowLog | None = None
        self._same = None if folder is None or not self._part.hears else RankConsistencyCheck(folder)
        windows = None if folder is None else folder / SIDECARS
        self._windows = Sidecars(windows, SIDECAR, owns=True, writer=self._part.rank)
        self.parents: Path | None = None
        """Where the process writes its rows that this one was forked from."""

    def for_child(self) -> RunFiles:
        """In a forked child: its own, in memory; what the other process has written can still be read."""
        self.journal.leave_behind()
        if self.folder is None:
            return self
        files = RunFiles(None, part=self._part)
        files.parents, files.rows = self.folder, None if self.rows is None else RowLog(None, len(self.rows))
        return files

    def refuse_parents(self) -> None:
        """Only the process that this one was forked from saves states, and resumes from them."""
        if self.parents is not None:
            raise LoaderError(
                f"the run in {self.parents} is that of the process that this one was forked from",
                hint="save and load its states there; a run of its own needs a loader with another cache_dir=",
            )

    def move_to(self, position: Position) -> None:
        """Stand somewhere, with all files closed."""
        self.close()
        self.journal.move_to(position)
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
        if self.rows is None:  # closed meanwhile
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


class SourceHistory:
    """The sources of the present epoch, and of the one before it.

    Args:
        path: The folder, for messages.
        watch: Whether files come and go while it runs: then it is known of each that is there whether it entered.
    """

    def __init__(self, path: str, *, watch: bool) -> None:
        self._path, self._watch, self._guard = path, watch, threading.Lock()
        self._epochs: dict[int, list[WindowEntry]] = {}
        self.files: str | None = None
        """A hash of the files that a pass goes over, as far as that is known."""
        self.move_to(0)

    def move_to(self, epoch: int, files: str | None = None) -> None:
        """An epoch begins; given the hash of a state, it must be over the same files.

        Until it does, it is taken to go over those of the epoch before.
        """
        self._epoch, self._expected, self._begun = epoch, files, False
        self.files = files or (self.files if epoch else None)
        self._epochs = {known: entries for known, entries in self._epochs.items() if known == epoch - 1}
        self._epochs[epoch], self._total = [], 0
        self._told: dict[tuple[bool, str], Event] = {}

    def unlock(self) -> None:
        """In a forked child: a thread that is not here may hold the lock."""
        self._guard = threading.Lock()

    def learn(self, entries: Sequence[WindowEntry], told: Sequence[Event]) -> None:
        """What was written down of the epoch until now."""
        self._epochs[self._epoch] = list(entries)
        self._remember(told)

    def rewind(self, total: int) -> list[Event]:
        """Stages begin where so many games have entered; gives what decides which files may still enter."""
        self._epochs[self._epoch] = [entry for entry in self._epochs[self._epoch] if entry.first < total]
        self._total = total
        return list(self._told.values())

    def _remember(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.kind not in CHANGES:
                self._told[False, event.kind] = event
            elif event.kind == "gone":
                self._told.pop((True, event.name), None)
            elif self._watch:
                self._told[True, event.name] = event

    def note(self, events: Sequence[Event]) -> None:
        """On the thread of the chunk set: remember what enters, and see whether it is what a state was saved for."""
        came = [event.source for event in events if event.kind == "enter"]
        if not self._begun:
            found = hashlib.blake2b(json.dumps(came).encode(), digest_size=16).hexdigest()
            if self._expected not in (None, found):
                raise self.other_files()
            self._begun, self.files = True, found
        with self._guard:
            for name, chunks, stamp in came:
                self._epochs[self._epoch].append(WindowEntry(name, self._total, chunks, stamp))
                self._total += chunks
        self._remember(events)

    @property
    def found(self) -> str | None:
        """The hash, if the epoch has begun."""
        return self.files if self._begun else None

    def at(self, epoch: int) -> list[WindowEntry]:
        """Every source that entered in an epoch, if that is the present one or the one before."""
        if epoch not in self._epochs:
            raise LoaderError(
                f"the files of epoch {epoch} are forgotten", hint="pass cache_dir=, a folder beside the checkpoints"
            )
        with self._guard:
            return list(self._epochs[epoch])

    def forget(self, oldest: int | None) -> None:
        """Games that are older than this one will not be asked for."""
        with self._guard:
            entries = self._epochs[self._epoch]
            self._epochs[self._epoch] = [entry for entry in entries if oldest is None or entry.stop > oldest]

    def other_files(self) -> FingerprintError:
        """What is said when they are not those that a state was saved for."""
        return FingerprintError(
            f"{self._path}: the games are not those that the state was saved for",
            hint="pass the same folder as then, or cache_dir= when states shall outlive changes",
        )
