"""DataLoader: what every loader does for a trainer, over a Run, a Filler and a Delivery."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Generic, Self, TypeVar, cast

from millstream.batches import closed_error
from millstream.loaders.arguments import asked_place, asked_step
from millstream.loaders.explain import origins_of
from millstream.loaders.handover import Handover, close_run, no_workers, opens_nothing, without_run
from millstream.loaders.rows import RowOrigin
from millstream.loaders.runs import Filler, Finisher, Run
from millstream.loaders.settings import MOST_PREFETCHED, LoaderSettings, positive
from millstream.stages import History, close_on_exit
from millstream.stats import as_pipeline
from millstream.tensors import accept_as_torch_dataset, refuse_to_be_dealt_again

BatchT = TypeVar("BatchT")
"""What a loader gives: a `TrainingBatch`, or what fits its kind of data."""


class DataLoader(Generic[BatchT]):
    """An endless run through some data, cut into epochs and steps, that can be stopped, resumed and explained.

    `next()` and `get_batch()` never end; `get_iterator()` and `for` give the rest of the present epoch.

    >>> from millstream.loaders.pretrain import example_loader
    >>> with example_loader(batch_size=2) as loader:
    ...     rows = [batch.metadata["rows"] for batch in loader]
    ...     again = loader.next().metadata
    >>> rows, again["epoch"], again["step"]
    ([2, 2, 1], 1, 3)

    `millstream.load` finds the loader for some data. A loader of your own derives from this class and has `get_batch`,
    `get_iterator`, `get_num_batches` and `reset`; what needs a run says that there is none.

    >>> class Counting(DataLoader[int]):
    ...     def get_batch(self, batch_size=None):
    ...         return 7
    >>> Counting().next(), Counting().losses
    (7, {})
    """

    settings: LoaderSettings
    _run: Any = None
    _handover: Handover

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Make a loader that torch's DataLoader takes as a data set, also one that does not call `__init__`."""
        accept_as_torch_dataset(DataLoader)
        return super().__new__(cls)

    def __init__(
        self,
        run: Any = None,
        filler: Filler[Any] | None = None,
        delivery: Finisher[Any, BatchT] | None = None,
        settings: LoaderSettings | None = None,
        **unknown: Any,
    ) -> None:
        if run is None and not unknown and type(self) is not DataLoader:
            return  # a loader of one's own, that has no constructor
        if filler is None or delivery is None or not isinstance(settings, LoaderSettings) or unknown:
            raise opens_nothing()
        self.settings, self._run = settings, run
        self._filler: Any = filler
        self._delivery: Any = delivery
        self._locks, self._history = run.locks, History()
        self._handover = Handover(run, filler, delivery.ledger, settings)
        close_on_exit(self, partial(close_run, run, filler))

    def _having_run(self, what: str) -> Run:
        """The run, or an error that names what a loader without one lacks."""
        if self._run is None:
            raise without_run(type(self).__name__, what)
        return cast(Run, self._run)

    # Batches

    def get_batch(self, batch_size: int | None = None) -> BatchT:
        """Give the next `batch_size` rows of this rank, as one step of the run.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     [loader.get_batch(size).metadata["rows"] for size in (1, 3)], loader.get_batch().metadata["step"]
        ([1, 3], 2)
        """
        self._run or self._having_run("get_batch()")
        batch: BatchT | None = self._handover.take(batch_size, self._delivery.finish)
        while batch is None:  # an epoch has ended
            batch = self._handover.take(batch_size, self._delivery.finish)
        return batch

    def next(self) -> BatchT:
        """Give the next batch; after the last one of an epoch comes the first one of the next.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     loader.next().input_ids.shape
        (2, 4)
        """
        return self.get_batch()

    def get_iterator(self) -> Iterator[BatchT]:
        """Iterate over the rest of the present epoch; the next call gives the next epoch.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     [batch.metadata["rows"] for batch in loader.get_iterator()]
        [2, 2, 1]
        """
        self._having_run("get_iterator()")
        return self._handover.rest_of_epoch(self._delivery.finish)

    def __iter__(self) -> Iterator[BatchT]:
        refuse_to_be_dealt_again(self, getattr(getattr(self, "settings", None), "world_size", 1))
        return self.get_iterator()

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
        return self._having_run("get_num_batches()").steps_in_epoch()

    def __len__(self) -> int:
        """The batches of an epoch, as schedulers and progress bars ask for it; see `get_num_batches`."""
        return self.get_num_batches()

    def __bool__(self) -> bool:
        return True  # also while the length is unknown

    def prefetch(self, batches: int) -> None:
        """Keep this many batches ready from now on, at most 1024 and what `memory_budget` has room for, and start.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     loader.prefetch(4)
        ...     loader.next().metadata["step"]
        0
        """
        self._having_run("prefetch()")
        depth = positive("prefetch", batches, MOST_PREFETCHED)
        if self._handover.closed:
            raise closed_error()
        self._filler.prefetch(depth)

    # Where the run stands

    @property
    def step(self) -> int:
        """The number of the next step.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     loader.next().metadata["step"], loader.step
        (0, 1)
        """
        self._having_run("step")
        return self._handover.step

    @property
    def epoch(self) -> int:
        """The epoch of the next step. While rows are still being made, this may wait for them.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     epochs = [loader.epoch for _ in loader]
        ...     epochs, loader.epoch
        ([0, 0, 1], 1)
        """
        self._having_run("epoch")
        return self._handover.epoch

    def reset(self) -> None:
        """Return to the very beginning of the run; a run that cannot, to the last state that was committed or loaded.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     first, _ = loader.next().input_ids.tolist(), loader.reset()
        ...     loader.next().input_ids.tolist() == first
        True
        """
        run = self._having_run("reset()")
        with self._locks.asking, self._locks.moving:
            run.restart()
            self._handover.on_seek()

    def seek(self, step: int) -> None:
        """Go to a step of the run, in either direction, at no cost.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     loader.seek(3_000_000)
        ...     loader.step, loader.epoch
        (3000000, 1000000)
        """
        run, step = self._having_run("seek()"), asked_step(step)
        with self._locks.asking, self._locks.moving:
            if step != self.step or run.steps_back:  # else it stays, with all that was made for this step
                run.seek(step)
                self._handover.on_seek()

    def state_dict(self, *, after: Any = None, before: Any = None) -> dict[str, Any]:
        """Describe where the run stands: readable JSON, equal on all ranks, loadable on any number of them.

        It never waits for data: another thread may wait for the next batch meanwhile. A trainer that has read ahead
        says which batch it has trained on, or is about to: the state then stands after, or before, that one.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     loader.state_dict(after=loader.next())["step"]
        1

        Args:
            after: The last batch that was trained on, or its step number; by default the last that was delivered.
            before: In the place of `after`: the first batch that was not trained on, or its step number.
        """
        run = self._having_run("state_dict()")
        with self._locks.moving:
            return run.state(asked_place(after, before, self.step))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where a state was saved, with this loader's own batch size, ranks, weights and sources.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader, example_loader(batch_size=1) as smaller:
        ...     smaller.load_state_dict(loader.state_dict())
        ...     [smaller.next().input_ids[0].tolist() for _ in range(2)] == loader.next().input_ids.tolist()
        True
        """
        run = self._having_run("load_state_dict()")
        with self._locks.asking, self._locks.moving:
            run.resume(state)
            self._handover.on_seek()

    def commit(self, state: Mapping[str, Any]) -> None:
        """Say that a state is safely saved: what only older states need is released.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     _ = loader.next()
        ...     loader.commit(loader.state_dict())  # once the checkpoint that holds it is on disk
        """
        run = self._having_run("commit()")
        with self._locks.moving:
            run.commit(state)

    # Explaining

    def explain(self, step: int) -> list[RowOrigin]:
        """Name the origin of each row of this rank's batch at any step, without replaying the run.

        A step of an earlier phase, that ran on another number of ranks, is explained whole.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2, shuffle=False) as loader:
        ...     [(span.document, span.start, span.stop) for span in loader.explain(0)[1].spans]
        [(0, 4, 7), (1, 0, 1)]
        """
        return origins_of(self._having_run("explain()").rows(asked_step(step)))

    def steps_of(self, document: Any, source: str | None = None) -> list[int]:
        """Name the steps of the present epoch whose rows, on any rank, hold input tokens of a document.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2, shuffle=False) as loader:
        ...     loader.steps_of(1)
        [0, 1]
        """
        return self._having_run("steps_of()").steps_of(document, source)

    def plan_fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common, for a comparison without torch.distributed (MPI, jax).

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(seed=3) as one, example_loader(seed=4) as other:
        ...     one.plan_fingerprint()["seed"], other.plan_fingerprint()["seed"]
        (3, 4)
        """
        return self._having_run("plan_fingerprint()").fingerprint()

    # Measuring

    @property
    def losses(self) -> dict[str, int]:
        """What is left out, and why.

        `cut_tokens` were cut from the documents that this rank delivered since the run began, or last was set
        elsewhere; `tail_tokens:source` and `dropped_rows` are what every epoch leaves out; docs/reference/losses.md has
        all of them.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2, drop_last=True) as loader:  # five rows
        ...     loader.losses
        {'cut_tokens': 0, 'tail_tokens:data': 0, 'dropped_rows': 1}
        """
        return {} if self._run is None else {**self._handover.ledger.counts, **self._run.losses}

    def enable_profiling(self) -> None:
        """Start measuring from here.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     loader.enable_profiling()
        ...     _ = loader.next()
        ...     loader.get_profiling_results()["throughput_samples_per_sec"] > 0
        True
        """
        self._having_run("enable_profiling()")
        self._handover.profile.start(self._filler.counters)

    def get_profiling_results(self) -> dict[str, Any]:
        """Say how fast batches were delivered, how long threads and trainer waited, and which memory is held by what.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     _ = loader.next()
        ...     0 <= loader.get_profiling_results()["wait_fraction"] <= 1
        True
        """
        self._having_run("get_profiling_results()")
        return {**self._handover.figures(), "losses": self.losses, **self._filler.figures}

    def counters(self) -> dict[str, Any]:
        """What went through, as a pipeline of one stage would say it; `serve_metrics` of `millstream.stages` shows it.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     _ = loader.next()
        ...     loader.counters()["stages"]["loader"]["out"]
        1
        """
        if self._run is None:
            return {"seconds": 0.0, "stages": {}, "queues": {}}
        return as_pipeline("loader", self.get_profiling_results(), self.settings.threads)

    def statistics(self) -> dict[str, Any]:
        """How fast things go: shares and rates of the last second and since the start; see the guide on pipelines.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     _ = loader.next()
        ...     list(loader.statistics()["stages"])
        ['loader']
        """
        if self._run is None:
            return {**self.counters(), "window_s": 0.0}
        return self._history.statistics(self.counters())

    # The end

    def on_close(self, call: Callable[[], None]) -> None:
        """Have something called when the loader is closed, once.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader() as loader:
        ...     loader.on_close(lambda: print("closed"))
        closed
        """
        self.__dict__.setdefault("_at_close", []).append((os.getpid(), call))

    def close(self) -> None:
        """Stop all threads; batches that were delivered stay valid.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     batch = loader.next()
        >>> batch.input_ids.shape
        (2, 4)
        """
        if self._run is not None:
            self._handover.closed = True
            close_run(self._run, self._filler)
        calls: list[tuple[int, Callable[[], None]]] = self.__dict__.get("_at_close", [])
        while calls:
            process, call = calls.pop()
            if process == os.getpid():  # what a parent asked for is called there
                call()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> Any:
        if self._run is not None:
            raise no_workers()
        return self.__dict__
