"""DataLoader: the face that every loader shows to a trainer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from millstream.loaders.origin import RowOrigin
from millstream.tensors.ranks import refuse_to_be_dealt_again

BatchT = TypeVar("BatchT")
"""What a loader gives: a `TrainingBatch`, or what fits its kind of data."""


class DataLoader(ABC, Generic[BatchT]):
    """An endless run through some data, cut into epochs and steps, that can be stopped, resumed and explained.

    `next()` and `get_batch()` go on for ever; `get_iterator()` and `for` give the rest of the present epoch.

    >>> from millstream.loaders.pretrain import example_loader
    >>> with example_loader(batch_size=2) as loader:
    ...     rows = [batch.metadata["rows"] for batch in loader]
    ...     again = loader.next().metadata
    >>> rows, again["epoch"], again["step"]
    ([2, 2, 1], 1, 3)
    """

    @abstractmethod
    def get_batch(self, batch_size: int | None = None) -> BatchT:
        """Give the next `batch_size` rows of this rank, as one step of the run.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     [loader.get_batch(size).metadata["rows"] for size in (1, 3)], loader.get_batch().metadata["step"]
        ([1, 3], 2)
        """

    def next(self) -> BatchT:
        """Give the next batch; behind the last one of an epoch comes the first one of the next.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     loader.next().input_ids.shape
        (2, 4)
        """
        return self.get_batch()

    @abstractmethod
    def get_iterator(self) -> Iterator[BatchT]:
        """Iterate over the rest of the present epoch; the next call gives the next epoch."""

    def __iter__(self) -> Iterator[BatchT]:
        refuse_to_be_dealt_again(self, getattr(getattr(self, "settings", None), "world_size", 1))
        return self.get_iterator()

    @abstractmethod
    def get_num_batches(self) -> int:
        """Say how many batches a whole epoch has at the loader's own batch size.

        `get_batch(k)` makes a step of another size, and leaves this number as it is. Raises UnknownLength where the
        length of an epoch is not known, or not yet.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     _ = loader.get_batch(1)
        ...     loader.get_num_batches()
        3
        """

    def __len__(self) -> int:
        """The batches of an epoch, as schedulers and progress bars ask for it; see `get_num_batches`.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     len(loader)
        3
        """
        return self.get_num_batches()

    def __bool__(self) -> bool:
        return True  # also while nobody knows the length

    @abstractmethod
    def reset(self) -> None:
        """Go back to the very beginning of the run.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     first = loader.next().input_ids.tolist()
        ...     loader.reset()
        ...     loader.next().input_ids.tolist() == first
        True
        """

    @abstractmethod
    def seek(self, step: int) -> None:
        """Go to a step of the run, in either direction, at no cost.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     loader.seek(3_000_000)
        ...     metadata = loader.next().metadata
        >>> metadata["step"], metadata["epoch"]
        (3000000, 1000000)
        """

    @abstractmethod
    def prefetch(self, batches: int) -> None:
        """Keep this many batches ready from now on, and start filling them.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     loader.prefetch(4)
        ...     loader.next().metadata["step"]
        0
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Describe where the run stands: readable JSON, equal on all ranks, loadable on any number of them.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     _ = loader.next()
        ...     state = loader.state_dict()
        >>> state["step"], state["epoch"], state["offset"], state["seed"]
        (1, 0, 2, 0)
        """

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was saved, with this loader's own batch size and ranks.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     _ = loader.next()
        ...     state, expected = loader.state_dict(), loader.next().input_ids.tolist()
        >>> with example_loader(batch_size=1) as loader:
        ...     loader.load_state_dict(state)
        ...     [loader.next().input_ids[0].tolist() for _ in range(2)] == expected
        True
        """

    @abstractmethod
    def commit(self, state: Mapping[str, Any]) -> None:
        """Say that a state is safely saved: what lies before it will not be asked for again.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     _ = loader.next()
        ...     state = loader.state_dict()
        ...     loader.commit(state)  # once the checkpoint that holds it is on disk
        """

    @abstractmethod
    def explain(self, step: int) -> list[RowOrigin]:
        """Name the origin of each row of this rank's batch at any step, without replaying the run."""

    @abstractmethod
    def steps_of(self, document: int, source: str | None = None) -> list[int]:
        """Name the steps of the present epoch whose rows, on any rank, hold input tokens of a document."""

    @abstractmethod
    def enable_profiling(self) -> None:
        """Start measuring from here.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     loader.enable_profiling()
        ...     _ = loader.next()
        ...     loader.get_profiling_results()["throughput_samples_per_sec"] > 0
        True
        """

    @abstractmethod
    def get_profiling_results(self) -> dict[str, Any]:
        """Say how fast batches were delivered, who waited for whom, and who holds which memory.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     _ = loader.next()
        ...     results = loader.get_profiling_results()
        >>> results["memory"]["batches"] > 0, 0 <= results["wait_fraction"] <= 1
        (True, True)
        """

    @abstractmethod
    def close(self) -> None:
        """Stop all threads; batches that were delivered stay valid.

        >>> from millstream.loaders.pretrain import example_loader
        >>> loader = example_loader(batch_size=2)
        >>> batch = loader.next()
        >>> loader.close()
        >>> batch.input_ids.shape
        (2, 4)
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
