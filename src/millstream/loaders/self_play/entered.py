"""What entered a run of which nothing is written down: to explain its last steps, and to know its files again."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence

from millstream.errors import FingerprintError, LoaderError
from millstream.live import CHANGES, Entry, Event


class Entered:
    """The sources of the present epoch, and of the one before it.

    Args:
        path: The folder, for messages.
        watch: Whether files come and go while it runs: then it is known of each that is there whether it entered.
    """

    def __init__(self, path: str, *, watch: bool) -> None:
        self._path, self._watch, self._guard = path, watch, threading.Lock()
        self._epochs: dict[int, list[Entry]] = {}
        self.files: str | None = None
        """A hash of the files that a pass goes over, as far as that is known."""
        self.stand(0)

    def stand(self, epoch: int, files: str | None = None) -> None:
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

    def learn(self, entries: Sequence[Entry], told: Sequence[Event]) -> None:
        """What was written down of the epoch until now."""
        self._epochs[self._epoch] = list(entries)
        self._remember(told)

    def go_back(self, total: int) -> list[Event]:
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
                self._epochs[self._epoch].append(Entry(name, self._total, chunks, stamp))
                self._total += chunks
        self._remember(events)

    @property
    def found(self) -> str | None:
        """The hash, if the epoch has begun."""
        return self.files if self._begun else None

    def at(self, epoch: int) -> list[Entry]:
        """Every source that entered in an epoch, if that is the present one or the one before."""
        if epoch not in self._epochs:
            raise LoaderError(
                f"the files of epoch {epoch} are forgotten", hint="pass cache_dir=, a folder beside the checkpoints"
            )
        with self._guard:
            return list(self._epochs[epoch])

    def forget(self, oldest: int | None) -> None:
        """Nobody asks for games that are older than this one."""
        with self._guard:
            entries = self._epochs[self._epoch]
            self._epochs[self._epoch] = [entry for entry in entries if oldest is None or entry.stop > oldest]

    def other_files(self) -> FingerprintError:
        """What is said when they are not those that a state was saved for."""
        return FingerprintError(
            f"{self._path}: the games are not those that the state was saved for",
            hint="pass the same folder as then, or cache_dir= when states shall outlive changes",
        )
