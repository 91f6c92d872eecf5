"""RunningLoader: a loader that stands at a step of a run, and goes elsewhere in it. Over stores or over raw files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from millstream.batches import TrainingBatch
from millstream.loaders.agreement import Agreement
from millstream.loaders.callbacks import Callbacks
from millstream.loaders.loader import DataLoader, no_workers
from millstream.loaders.member import RowShape
from millstream.loaders.settings import LoaderSettings
from millstream.stages.statistics import History
from millstream.stats import Profile
from millstream.tensors import accept_as_torch_dataset


class Standing(Protocol):
    """A run that stands at its next step."""

    step: int

    @property
    def epoch(self) -> int:
        """The epoch of the next step."""
        ...

    def restart(self) -> None:
        """Stand at the very beginning."""
        ...

    def state(self) -> dict[str, Any]:
        """Describe where it stands."""
        ...

    def resume(self, state: Mapping[str, Any]) -> None:
        """Stand where a state says."""
        ...

    def commit(self, state: Mapping[str, Any]) -> None:
        """Let go of what only states before this one need; refuse a state of another run."""
        ...


class RunningLoader(DataLoader[TrainingBatch]):
    """What the loaders over stores and over raw files have in common."""

    _run: Any

    def __init__(self, shape: RowShape, settings: LoaderSettings) -> None:
        self.settings, self.shape = settings, shape
        self._callbacks = Callbacks(settings.callbacks)
        self._agreement = Agreement(settings.rank, settings.world_size)
        self._profile = Profile()
        self._history = History()
        self._closed = False
        self._at_close: list[Callable[[], None]] = []
        accept_as_torch_dataset(RunningLoader)

    @property
    @abstractmethod
    def _turn(self) -> AbstractContextManager[Any]:
        """Who has it moves the run; the others wait."""

    @abstractmethod
    def _jumped(self) -> None:
        """Let go of what was made for the steps that would have come."""

    @property
    def epoch(self) -> int:
        """The epoch of the next step; of raw files, how often this rank has read all its lanes to the end."""
        return self._run.epoch

    @property
    def step(self) -> int:
        """The number of the next step."""
        return self._run.step

    def reset(self) -> None:
        """Go back to the very beginning of the run."""
        with self._turn:
            self._run.restart()
            self._jumped()

    def state_dict(self) -> dict[str, Any]:
        """Describe where the run stands: readable JSON, loadable on any number of ranks.

        Over stores it is equal on all ranks; over raw files each rank knows the places of its own lanes: see
        `merge_states`.
        """
        return self._run.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was saved, with this loader's own batch size, ranks, weights and sources."""
        with self._turn:
            self._run.resume(state)
            self._jumped()

    def commit(self, state: Mapping[str, Any]) -> None:
        """Say that a state is safely saved: files beside it that only older states name are removed."""
        self._run.commit(state)

    # Measuring

    def counters(self) -> dict[str, Any]:
        """What went through, as a pipeline of one stage would say it; `serve_metrics` of `millstream.stages` shows it.

        >>> from millstream.loaders.pretrain import example_loader
        >>> with example_loader(batch_size=2) as loader:
        ...     _ = loader.next()
        ...     stage = loader.counters()["stages"]["loader"]
        >>> stage["in"], stage["out"], stage["drops"]["cut_tokens"]
        (2, 1, 0)
        """
        found = self.get_profiling_results()
        waits, memory = found["waits"], {f"{owner}_bytes": held for owner, held in found["memory"].items()}
        gauges = {"wait_fraction": found["wait_fraction"], "trainer_wait_s": waits["trainer_on_batch"], **memory}
        stage = {
            "threads": self.settings.threads,
            "in": found["samples"],
            "out": found["batches"],
            "busy_s": waits["threads_filling"],
            "input_wait_s": 0.0,
            "output_wait_s": waits["threads_on_trainer"],
            "drops": found["losses"],
            "gauges": gauges | ({"ready_batches": found["ready_batches"]} if "ready_batches" in found else {}),
        }
        return {"seconds": found["seconds"], "stages": {"loader": stage}, "queues": {}}

    def statistics(self) -> dict[str, Any]:
        """How fast things go: shares and rates of the last second and since the start; see the guide on pipelines."""
        return self._history.statistics(self.counters())

    def on_close(self, call: Callable[[], None]) -> None:
        """Have something called when the loader is closed, once."""
        self._at_close.append(call)

    def close(self) -> None:
        """Give no more batches; those that were delivered stay valid."""
        self._closed = True
        while self._at_close:
            self._at_close.pop()()

    def __reduce__(self) -> Any:
        raise no_workers()
