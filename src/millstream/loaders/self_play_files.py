"""What a self-play run keeps in a folder: which sources entered when, which rows each step had, and its windows.

admissions.jsonl    what happened to the window, and what was lost, as a chained log
rows.bin, rows.idx  the origins of all rows
sidecars/           the window of each state that may still be needed

One rank writes; the others come to the same lines by themselves, so that their states are the same.
"""

from __future__ import annotations

import io
import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.errors import BusyError, LoaderError, StateError
from millstream.live.events import CHANGES, FORMAT, Event, entered
from millstream.live.losses import Loss, is_loss, read_loss
from millstream.live.row_log import RowLog, StepRows
from millstream.live.window import Arrays, Entry
from millstream.store import sidecars
from millstream.store.chained_log import OTHER_RUN, ChainedLog, LogReader, Position
from millstream.store.followed_log import FollowedLog, announce, forget

JOURNAL = "admissions.jsonl"
SIDECAR = "window"
START = Position.start(FORMAT)
MOST_STATES = 1024
"""States whose windows are kept when an older one is committed."""
PATIENCE_S = 1.0
"""How long the first rank waits for others who look whether it is at work."""


class RunFiles:
    """The files of a run, all at the place where its trainer stands.

    Args:
        folder: Where they lie; None: nothing is written, and the last rows are in memory.
        rank: 0 writes.
        led: Whether the other ranks do what the first one does.
    """

    def __init__(self, folder: Path | None, rank: int, *, led: bool) -> None:
        self.folder, self._rank, self._led = folder, rank, led
        self._log: ChainedLog | None = None
        self.rows: RowLog | None = None
        self._guard = threading.Lock()
        self._followed: FollowedLog | None = None
        self._saved: deque[tuple[int, Mapping[str, Any]]] = deque(maxlen=MOST_STATES)
        self.stand(START, anew=True)

    # The journal

    def stand(self, position: Position, *, anew: bool = False) -> None:
        """Stand somewhere, with all files closed; a run that begins anew puts the journal of another one aside."""
        self.close()
        self.position, self._anew = position, anew
        self._written, self._ahead = position, deque[tuple[int, Position]]()
        self._heard = position
        self._there = deque[tuple[dict[str, Any], Position]]()
        """Lines behind the present place, which are not written once more."""
        self._announced = not (self._led and self._rank == 0)
        if self._led and self.folder is not None:
            journal = self.folder / JOURNAL
            forget(journal)
            if self._rank:
                self._followed = self._followed.anew(position) if self._followed else FollowedLog(journal, position)

    def open(self, step: int) -> None:
        """Open the files at a step, if they are not."""
        if self.rows is not None:
            return
        writes = self.folder if self._rank == 0 else None
        if writes is not None:
            self._log = self._opened(writes / JOURNAL)
            behind = LogReader(writes / JOURNAL, self._log.position)
            self._there.extend((said, behind.position) for said in behind if not is_loss(said))
            self._log.go_back(behind.position)
        self.rows = RowLog(writes, step)

    def _opened(self, path: Path) -> ChainedLog:
        deadline = time.monotonic() + (PATIENCE_S if self._led else 0)
        while True:
            try:
                return ChainedLog(path, FORMAT, None if self._anew else self.position, anew=self._anew)
            except BusyError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(0.01)

    def write(self, events: Sequence[Event], epoch: int) -> None:
        """Write down what happens to the window of the stages, ahead of what was delivered."""
        lines = [{**event.to_json(), "epoch": epoch} for event in events]
        with self._guard:
            fresh = lines[self._said_before(lines) :]
            if fresh:
                self._written = self._written.after(*fresh)[1]
            if self._log is not None and fresh:
                self._written = self._log.write(*fresh, sync=any(event.kind in CHANGES for event in events))
            if not self._announced and self.folder is not None:
                announce(self.folder / JOURNAL, self.position)
                self._announced = True
            if lines:
                self._ahead.append((events[-1].draw, self._written))

    def _said_before(self, lines: Sequence[dict[str, Any]]) -> int:
        """How many of these lines the journal has; from one on that differs, what it says will not happen."""
        for count, line in enumerate(lines):
            if not self._there:
                return count
            said, position = self._there.popleft()
            if said != line:
                self._there.clear()
                if self._log is not None:
                    self._log.go_back(self._written)
                    self._log.cut()
                return count
            self._written = position
        return len(lines)

    def note(self, loss: Loss, epoch: int) -> None:
        """Write down that something was lost, before anything is delivered that came behind it."""
        with self._guard:
            if self._log is not None:
                self._log.write({**loss.to_json(), "epoch": epoch})

    @property
    def journal(self) -> Path | None:
        """The journal of this run, as far as there is one already; a run that begins may find that of another one."""
        return None if self.folder is None or self._anew else self.folder / JOURNAL

    def heard(self) -> Event | None:
        """What the first rank has written next, if it has."""
        while self._followed is not None and (said := self._followed.read()) is not None:
            self._heard = self._heard.after(said)[1]
            if not is_loss(said):
                self._there.append((said, self._heard))
                return Event.from_json(said)
        return None

    def has_begun(self) -> bool:
        """Whether the first rank has begun a run where this one stands."""
        return self._followed is not None and self._followed.has_begun()

    def catch_up(self, draw: int) -> None:
        """Batches were delivered up to a draw."""
        with self._guard:
            while self._ahead and self._ahead[0][0] < draw:
                self.position = self._ahead.popleft()[1]

    def split_at(self, position: Position, epoch: int) -> tuple[list[Event], list[Event]]:
        """What had happened in an epoch when a state was saved there, and what happened then."""
        assert self.folder is not None
        reader = LogReader(self.folder / JOURNAL, START)
        before, behind, met = list[Event](), list[Event](), position == START
        for said in reader:
            if said.get("epoch") == epoch and not is_loss(said):
                (behind if reader.position.entries > position.entries else before).append(Event.from_json(said))
            met = met or reader.position == position
        if not met:
            raise StateError(f"{reader.path}: this is not the journal of the state", hint=OTHER_RUN)
        return before, behind

    def entries(self, epoch: int) -> list[Entry]:
        """Every source that entered in an epoch."""
        return [] if self.folder is None else entered(LogReader(self.folder / JOURNAL, START), epoch)

    # Rows

    def rows_of(self, step: int) -> StepRows:
        """The rows of a step that was made."""
        if self.rows is None:
            raise LoaderError(f"step {step} was not made yet", hint="steps can be explained when they were made")
        return self.rows[step]

    # Windows

    def save(self, step: int, facts: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
        """Keep the window of a state; gives what the state says of it."""
        assert self.folder is not None
        if self.rows is not None:
            self.rows.sync()
        if self._log is not None:
            self._log.sync()
        named = sidecars.save(self.folder / "sidecars", SIDECAR, [_packed(facts, arrays)], rank=self._rank)
        self._saved.append((step, named))
        return {"sidecar": named, "journal": self.position.to_json()}

    def load(self, state: Mapping[str, Any]) -> tuple[dict[str, Any], Arrays]:
        """The window of a state."""
        if self.folder is None:
            raise LoaderError("the state names files beside it", hint="pass the cache_dir= it was saved with")
        return _unpacked(sidecars.load(self.folder / "sidecars", SIDECAR, state["sidecar"]))

    def release(self, state: Mapping[str, Any]) -> None:
        """Let go of the windows of all states before this one."""
        while self._saved and self._saved[0][0] < state["step"]:
            self._saved.popleft()
        if self.folder is not None and self._rank == 0 and isinstance(state.get("sidecar"), Mapping):
            needed = [state["sidecar"], *(named for _, named in self._saved)]
            sidecars.release(self.folder / "sidecars", SIDECAR, needed)

    def close(self) -> None:
        """Let go of the files."""
        if self._log is not None:
            self._log.close()
            self._log = None
        if self.rows is not None:
            self.rows.close()
            self.rows = None


def read_events(journal: Path, epoch: int) -> list[Event]:
    """All that a journal says of an epoch."""
    return [Event.from_json(said) for said in _said_of(journal, epoch) if not is_loss(said)]


def read_losses(journal: Path, epoch: int) -> list[Loss]:
    """All that was lost in an epoch, by a journal."""
    return [read_loss(said) for said in _said_of(journal, epoch) if is_loss(said)]


def _said_of(journal: Path, epoch: int) -> Iterator[dict[str, Any]]:
    return (said for said in LogReader(journal, START) if said.get("epoch") == epoch)


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
