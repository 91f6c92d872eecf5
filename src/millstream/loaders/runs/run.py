"""What a loader is made of: a Run that knows where it stands, a Filler that makes its steps, a Delivery that finishes
them. A kind of data adds one of these, never a loader.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol, TypeVar

from millstream.errors import ClosedError
from millstream.loaders import Source
from millstream.stages import after_fork
from millstream.stats import Counts, Ledger

FilledT = TypeVar("FilledT")
FilledT_contra = TypeVar("FilledT_contra", contravariant=True)
BatchT_co = TypeVar("BatchT_co", covariant=True)


class Locks:
    """The two locks of a loader. A forked child has new ones: none of its threads holds the old."""

    def __init__(self, moving: AbstractContextManager[Any] | None = None) -> None:
        self.asking: AbstractContextManager[Any] = threading.RLock()
        """Serialises consumers. It may be held while waiting for data."""
        self.moving = threading.RLock() if moving is None else moving
        """Guards the position of the run. It is never held while waiting for data, so a state never waits for any."""
        self._owns_moving = moving is None
        after_fork(self.renew)

    def renew(self) -> None:
        """Have new locks, in a forked child."""
        self.asking = threading.RLock()
        if self._owns_moving:
            self.moving = threading.RLock()


class Run(Protocol):
    """Steps of some data: where the next one lies, what every one holds, and how the run is saved and resumed."""

    kind: str
    """Names the loader in a state."""
    step: int
    """The number of the next step."""
    locks: Locks
    steps_back: ClassVar[bool]
    """Whether the run can stand before a step that was delivered; otherwise the loader keeps that step's batch."""

    @property
    def epoch(self) -> int:
        """The epoch of the next step."""
        ...

    @property
    def is_known(self) -> bool:
        """Whether it is known which epoch the next step belongs to."""
        ...

    def wait_until_known(self) -> None:
        """Wait until it is known which epoch the next step belongs to."""
        ...

    def in_epoch(self, epoch: int) -> bool:
        """Whether iteration over an epoch continues with the next step."""
        ...

    def check_epochs(self) -> None:
        """Raise UnknownLength where nothing says when an epoch ends."""
        ...

    def steps_in_epoch(self) -> int:
        """Steps of a whole epoch at the loader's own batch size; raises UnknownLength where that is not known."""
        ...

    def end_epoch(self) -> None:
        """Begin the next epoch. Only a filler that gives None asks for this."""
        ...

    def restart(self) -> None:
        """Stand at the very beginning."""
        ...

    def seek(self, step: int) -> None:
        """Stand at a step, or change nothing."""
        ...

    def state(self, step: int) -> dict[str, Any]:
        """Describe where the run stands, or stood before a step that was delivered; raises LoaderError if that is
        no longer known."""
        ...

    def resume(self, state: Mapping[str, Any]) -> None:
        """Stand where a state says, or change nothing."""
        ...

    def commit(self, state: Mapping[str, Any]) -> None:
        """Release what only states before this one need; refuse a state of another run."""
        ...

    def fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common."""
        ...

    def rows(self, step: int) -> Iterable[tuple[Source, Any]]:
        """Name source and sample of each row of this rank's batch at a step."""
        ...

    def steps_of(self, document: Any, source: str | None) -> list[int]:
        """Name the steps of the present epoch that use a document."""
        ...

    @property
    def losses(self) -> dict[str, int]:
        """What the data of this run lacks, by reason."""
        ...

    def close(self) -> None:
        """Wait for nothing any more, and release all files."""
        ...


class RunEnded(ClosedError):  # noqa: N818 - reads as a claim
    """The data of a run has ended for good: iteration stops here."""


class Filler(Protocol[FilledT]):
    """Makes what the steps of a run hold, ahead of the trainer where that is possible."""

    def take(self, batch_size: int) -> FilledT | None:
        """Wait for what the next step holds, at this batch size; None where the epoch ends. The run does not move."""
        ...

    def taken(self, filled: FilledT) -> None:
        """Move the run on by one step: this one is delivered."""
        ...

    def give_back(self, error: BaseException, filled: FilledT | None, step: int) -> None:
        """Stand before this step, where the run stood before `take`: the next call gives it again."""
        ...

    def prefetch(self, batches: int) -> None:
        """Keep so many batches ready from now on."""
        ...

    def stop(self) -> None:
        """Drop what was made ahead: the run stands elsewhere."""
        ...

    def close(self) -> None:
        """Stop all threads, for good; a consumer that waits gets ClosedError."""
        ...

    @property
    def counters(self) -> Counts:
        """How long threads and trainer worked and waited."""
        ...

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that are held, by owner."""
        ...

    @property
    def ready(self) -> int | None:
        """Batches that are ready to be taken; None where nothing is made ahead."""
        ...

    @property
    def figures(self) -> dict[str, Any]:
        """More for the profile, by name."""
        ...


class Finisher(Protocol[FilledT_contra, BatchT_co]):
    """Turns what a filler made into the batch that a trainer gets."""

    ledger: Ledger
    """What delivered batches have lost."""

    def finish(self, filled: FilledT_contra) -> tuple[BatchT_co, int]:
        """Make the batch, with its transforms; gives it and its number of rows."""
        ...
