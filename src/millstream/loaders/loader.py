"""DataLoader: the face that every loader shows to a trainer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from millstream.batches import TrainingBatch
from millstream.loaders.origin import RowOrigin


class DataLoader(ABC):
    """An endless run through some data, cut into epochs and steps, that can be stopped, resumed and explained.

    `next()` and `get_batch()` go on for ever; `get_iterator()` and `for` give the rest of the present epoch.
    """

    @abstractmethod
    def get_batch(self, batch_size: int | None = None) -> TrainingBatch:
        """Give the next `batch_size` rows of this rank, as one step of the run."""

    def next(self) -> TrainingBatch:
        """Give the next batch; behind the last one of an epoch comes the first one of the next."""
        return self.get_batch()

    @abstractmethod
    def get_iterator(self) -> Iterator[TrainingBatch]:
        """Iterate over the rest of the present epoch; the next call gives the next epoch."""

    def __iter__(self) -> Iterator[TrainingBatch]:
        return self.get_iterator()

    @abstractmethod
    def get_num_batches(self) -> int:
        """Say how many batches an epoch has."""

    @abstractmethod
    def reset(self) -> None:
        """Go back to the very beginning of the run."""

    @abstractmethod
    def seek(self, step: int) -> None:
        """Go to a step of the run, in either direction, at no cost."""

    @abstractmethod
    def prefetch(self, batches: int) -> None:
        """Keep this many batches ready from now on, and start filling them."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Describe where the run stands: readable JSON, equal on all ranks, loadable on any number of them."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was saved, with this loader's own batch size and ranks."""

    @abstractmethod
    def commit(self, state: Mapping[str, Any]) -> None:
        """Say that a state is safely saved: what lies before it will not be asked for again."""

    @abstractmethod
    def explain(self, step: int) -> list[RowOrigin]:
        """Name the origin of each row of this rank's batch at any step, without replaying the run."""

    @abstractmethod
    def steps_of(self, document: int, source: str | None = None) -> list[int]:
        """Name the steps of the present epoch whose rows, on any rank, hold input tokens of a document."""

    @abstractmethod
    def enable_profiling(self) -> None:
        """Start measuring from here."""

    @abstractmethod
    def get_profiling_results(self) -> dict[str, Any]:
        """Say how fast batches were delivered, who waited for whom, and who holds which memory."""

    @abstractmethod
    def close(self) -> None:
        """Stop all threads; batches that were delivered stay valid."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
