"""The journal of an earlier run, made into the same run again: over the same files, with the same settings, to its end.

A journal promises until which draw nothing else happens; behind the last promise nobody knows what came.
"""

from __future__ import annotations

import json
from pathlib import Path

from millstream.errors import LoaderError, StateError, StoreError
from millstream.live import AsWritten, Event, Loss, is_loss
from millstream.loaders.self_play.journal import JOURNAL, START, Facts, read_losses, said_of
from millstream.storage import LogReader


class Replay:
    """A journal to do the same by.

    Args:
        journal: Its file.
        facts: The settings that decide which rows come; they must be those of the run.
        cache_dir: Where the new run is written, if anywhere.
    """

    def __init__(self, journal: Path, facts: Facts, cache_dir: Path | None) -> None:
        self._journal = journal
        if cache_dir is not None and journal.resolve() == (cache_dir / JOURNAL).resolve():
            raise LoaderError(
                f"replay={str(journal)!r} lies in cache_dir={str(cache_dir)!r}, where a new run would be written",
                hint="pass another cache_dir, or none",
            )
        head = LogReader(journal, START).read()
        if head is None or not isinstance(head.get("facts"), dict):
            raise StoreError(
                f"{journal}: this is not the journal of a self-play run",
                hint=f"pass the {JOURNAL} of a cache_dir",
            )
        _compare(journal, head["facts"], facts)

    def losses(self, epoch: int) -> list[Loss]:
        """All that was lost in an epoch."""
        return read_losses(self._journal, epoch)

    def entrance(self, epoch: int, draws: int, *, watch: bool) -> AsWritten:
        """What enters from a draw of an epoch on."""
        events = [Event.from_json(said) for said in said_of(self._journal, epoch) if not is_loss(said)]
        if not events:
            raise self.ended()
        until = max((event.chunks for event in events if event.kind == "until"), default=0)
        return AsWritten((event for event in events if event.draw >= draws), until if watch else None)

    def ended(self) -> LoaderError:
        """What is said where the journal ends."""
        return LoaderError(
            f"{self._journal}: the journal ends here, and nobody knows what came then",
            hint="a replay has every step of its run, and those that the stages were ahead of its trainer",
        )

    def missing(self, name: str) -> StateError:
        """What is said of a file that is not there."""
        return StateError(
            f"{name} is gone, and the journal has games of it",
            hint="a run is replayed over the files that it was made of",
        )


def _compare(journal: Path, found: Facts, mine: Facts) -> None:
    for key, value in json.loads(json.dumps(dict(mine))).items():
        if found.get(key) != value:
            raise LoaderError(
                f"{journal}: the run had {key}={found.get(key)!r}, this loader has {key}={value!r}",
                hint="a run is replayed with the settings that it was made with",
            )
