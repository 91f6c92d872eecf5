"""RolloutFiller: steps of rollouts, dealt out to ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from millstream.batches import TrainingBatch
from millstream.batches.engine import Counters
from millstream.errors import LoaderError
from millstream.loaders.rollout_steps import Dealer, DealtStep, MicroBatches
from millstream.loaders.runs.run import Locks
from millstream.loaders.settings import positive
from millstream.loaders.transforms import PerRow, transform_batch
from millstream.stats.ledger import Ledger


class RolloutRun(Protocol):
    """A run over rollouts, as far as a filler asks it."""

    locks: Locks
    place: Any
    """What `coming` may change, for a way back."""

    def coming(self, batch_size: int) -> DealtStep:
        """Wait for the rollouts of the next step."""
        ...

    def advance(self) -> None:
        """The next step was delivered."""
        ...

    def prefetch(self, batches: int) -> None:
        """Make so many ahead from now on."""
        ...

    @property
    def held_bytes(self) -> int:
        """Bytes of rollouts in memory."""
        ...

    @property
    def ready(self) -> int | None:
        """How much is made ahead; None where nothing is."""
        ...


class RolloutFiller:
    """Deals out the steps of a run."""

    def __init__(self, run: RolloutRun, dealer: Dealer) -> None:
        self._run, self._dealer, self._before = run, dealer, run.place

    def take(self, batch_size: int) -> DealtStep:
        """Wait for the rollouts of the next step."""
        self._before = self._run.place
        return self._run.coming(positive("batch_size", batch_size))

    def taken(self, filled: DealtStep) -> None:
        """Move on by one step."""
        self._run.advance()

    def give_back(self, error: BaseException, filled: DealtStep | None) -> None:
        """Stand where the run stood before `take`."""
        self._run.place = self._before

    def prefetch(self, batches: int) -> None:
        """Make so many ahead from now on."""
        self._run.prefetch(batches)

    def stop(self) -> None:
        """Nothing is made ahead."""

    def close(self) -> None:
        """There are no threads."""

    @property
    def counters(self) -> Counters:
        """The trainer makes the batches itself."""
        return Counters()

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of batches, also of those in the user's hands, and of rollouts."""
        return {"batches": self._dealer.buffers.used_bytes, "rollouts": self._run.held_bytes}

    @property
    def ready(self) -> int | None:
        """How much is made ahead; None where nothing is."""
        return self._run.ready


class RolloutDelivery:
    """Makes batches, or micro-batches, of a step."""

    def __init__(self, transforms: Sequence[Callable[..., Any]]) -> None:
        if any(isinstance(transform, PerRow) for transform in transforms):
            raise LoaderError(
                "a transform of rows would change tokens under their log-probabilities",
                hint="pass functions batch -> batch, or change the records before they get here",
            )
        self._transforms, self.ledger = transforms, Ledger()

    def finish(self, filled: DealtStep) -> tuple[TrainingBatch, int]:
        """Make one batch of all rollouts of this rank."""
        batch = self._transformed(filled.batch())
        return batch, batch.metadata["rows"]

    def finish_micro(self, filled: DealtStep) -> tuple[MicroBatches, int]:
        """Make micro-batches of at most so many tokens."""
        found = filled.micro_batches()
        found[:] = [self._transformed(batch) for batch in found]
        return found, sum(batch.metadata["rows"] for batch in found)

    def _transformed(self, batch: TrainingBatch) -> TrainingBatch:
        for transform in self._transforms:
            batch = transform_batch(transform, batch)
        return batch
