"""Steps on their way to the trainer: the next one is made, handed over, and the run moves on, or stands as before.

Before the first one the ranks compare their plans. They never talk while they load, so without this a rank with another
seed or other data would stay unnoticed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from millstream.batches import closed_error
from millstream.errors import LoaderError, OrderError
from millstream.loaders.arguments import asked_rows
from millstream.loaders.hooks import Callbacks
from millstream.loaders.runs import Filler, Run, RunEnded
from millstream.loaders.settings import LoaderSettings
from millstream.stages import HomeProcess
from millstream.stats import Ledger, Profile
from millstream.tensors import Ranks, inside_torch_worker

MadeT = TypeVar("MadeT")
PlanFacts = Mapping[str, Any]
COMPARISONS = itertools.count()
"""Of plans with those of the other ranks; the n-th one of each rank belongs to the n-th one of every other."""


class Handover:
    """Takes what a filler made, finishes it and moves the run on by one step; consumers come one after the other.

    Args:
        run: Knows where the next step lies.
        filler: Makes what steps hold.
        ledger: Of what delivered batches have lost.
        settings: Of the loader.
    """

    def __init__(self, run: Run, filler: Filler[Any], ledger: Ledger, settings: LoaderSettings) -> None:
        self.run, self.filler, self.ledger, self.settings = run, filler, ledger, settings
        self.locks, self.closed = run.locks, False
        self.callbacks = Callbacks(settings.callbacks)
        self.agreement = Agreement(settings.rank, settings.world_size)
        self.profile = Profile()
        self._untaken: tuple[Any, int, Any, int] | None = None
        """A batch that did not reach the trainer: how it was asked for, its epoch, itself, and its rows."""

    @property
    def step(self) -> int:
        """The number of the next step."""
        return self.run.step - (self._untaken is not None)

    @property
    def epoch(self) -> int:
        """The epoch of the next step; waits until it is known."""
        if not self.run.is_known:
            with self.locks.asking:
                self.run.wait_until_known()
        return self.run.epoch

    def take(self, batch_size: int | None, finish: Callable[[Any], tuple[MadeT, int]]) -> MadeT | None:
        """Make the next step, hand it over and move on; None, and the next epoch begins, where one ends.

        This runs for every batch: keep it lean.
        """
        began = time.perf_counter_ns()
        locks = self.locks
        with locks.asking:
            run, filler = self.run, self.filler
            step = run.step
            filled: Any = None
            made: MadeT | None = None
            size, epoch, rows, is_asked = 0, 0, 0, False
            try:
                if self.closed:
                    raise closed_error()
                size = self.settings.batch_size if batch_size is None else asked_rows(batch_size)
                if not self.agreement.agreed:
                    self.agreement.check(run.fingerprint)
                if self._untaken is None:
                    is_asked = True
                    filled = filler.take(size)
                    if filled is None:
                        self._end_epoch()
                        return None
                    made, rows = finish(filled)
                    epoch = run.epoch if self.callbacks.any else 0
                    with locks.moving:
                        filler.taken(filled)
                else:
                    epoch, made, rows = self._again(size, finish)
                if self.callbacks.any:
                    for batch in made if isinstance(made, list) else (made,):
                        self.callbacks.delivered(epoch, batch)
            except BaseException as error:
                if is_asked and (run.step == step or run.steps_back):
                    with locks.moving:
                        filler.give_back(error, filled, step)
                elif is_asked:
                    self._untaken = (size, finish), epoch, made, rows
                self._failed(error)
                raise
            self._untaken = None
            if self.ledger.pending:
                self.ledger.settle()
            self.profile.delivered(rows, time.perf_counter_ns() - began)
            return made

    def _again(self, batch_size: int, finish: Callable[[Any], Any]) -> tuple[int, Any, int]:
        """The batch of a step that the run has passed, and that did not reach the trainer: epoch, batch and rows."""
        assert self._untaken is not None
        (asked, finished), *made = self._untaken
        if (batch_size, finish) != (asked, finished):
            raise LoaderError(
                f"the batch of step {self.step} was made, but a listener failed: it has batch_size={asked}",
                hint=f"ask once more for batch_size={asked} with the same method, or load a state",
            )
        return made[0], made[1], made[2]

    def _failed(self, error: BaseException) -> None:
        self.ledger.forget()
        if isinstance(error, Exception):
            self.callbacks.error(error)

    def _end_epoch(self) -> None:
        """The filler has no more of this epoch: begin the next."""
        with self.locks.moving:
            epoch = self.run.epoch
            self.run.end_epoch()
            self.callbacks.epoch_ended(epoch)

    def rest_of_epoch(self, finish: Callable[[Any], tuple[MadeT, int]]) -> Iterator[MadeT]:
        """Take the steps of the present epoch that are left."""
        if inside_torch_worker():
            raise no_workers()
        self.run.check_epochs()
        first = present = self.epoch
        while self.run.in_epoch(first):
            try:
                made = self.take(None, finish)
            except RunEnded:
                return
            if made is not None:
                yield made
            now = self.epoch
            if now != present:
                self.callbacks.epoch_ended(present)
                present = now

    def on_seek(self) -> None:
        """The run stands elsewhere: what was made and counted is not about the rows that come."""
        self.filler.stop()
        self.ledger.restart()
        self._untaken = None
        self.callbacks.on_seek()

    def figures(self) -> dict[str, Any]:
        """How fast steps were handed over, how long both sides waited, and which memory is held by what."""
        filler = self.filler
        found: dict[str, Any] = {**self.profile.results(filler.counters), "memory": filler.memory}
        return found if filler.ready is None else {**found, "ready_batches": filler.ready}


def close_run(run: Run, filler: Filler[Any]) -> None:
    """Stop what makes rows, then what fills batches: either may be waited for."""
    run.close()
    filler.close()


def opens_nothing() -> LoaderError:
    """Say which loaders open data."""
    return LoaderError(
        "DataLoader is what all loaders have in common; it does not open data itself",
        hint="use millstream.load(path, …), which finds the loader for your data, or one of them: "
        "PretrainDataLoader, ConversationDataLoader, RolloutDataLoader, MixedDataLoader, SelfPlayDataLoader",
    )


def without_run(loader: str, what: str) -> LoaderError:
    """Say what a loader of one's own does not have."""
    return LoaderError(
        f"{loader} has no run of its own, and does not say what {what} is",
        hint=f"override {what}, or build on one of Millstream's loaders",
    )


def no_workers() -> LoaderError:
    """Say that a loader does not go to other processes: each would give all rows again."""
    return LoaderError(
        "a Millstream loader stays in the process of the trainer, and does not go to workers of torch's DataLoader",
        hint="pass num_workers=0: Millstream's own threads do the work; elsewhere open the store and load_state_dict()",
    )


class Agreement:
    """Compares plans once, when the first batch is asked for, if every rank of torch.distributed is one of ours."""

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank, self._world_size = rank, world_size
        self._comparison: int | None = None
        self.agreed, self._process = world_size == 1, HomeProcess()

    def check(self, plan: Callable[[], PlanFacts]) -> None:
        """Compare, unless that was done."""
        ranks = None if self.agreed or self._process.left else Ranks.started()  # a forked child is none of the ranks
        if ranks is not None and ranks.size == self._world_size:
            self._comparison = next(COMPARISONS) if self._comparison is None else self._comparison
            check_agreement(plan(), self._rank, self._comparison, ranks)
            self.agreed = True


def check_agreement(plan: PlanFacts, rank: int, number: int, ranks: Ranks) -> None:
    """Compare the plans of all ranks; raises on every one of them where they differ.

    `number` counts such comparisons, so that loaders do not hear each other's plans.
    """
    found = ranks.judged(f"millstream/plan/{number}", {**plan, "rank": rank}, differences)
    if found:
        raise OrderError(
            f"the ranks do not follow one plan: {'; '.join(found)}",
            hint="make the loader with the same data and settings on every rank, and load the same state; "
            "loader.plan_fingerprint() shows what is compared",
        )


def differences(plans: Sequence[PlanFacts]) -> list[str]:
    """Say in what the plans of the ranks differ, and on which ranks.

    >>> differences([{"rank": 0, "seed": 1}, {"rank": 1, "seed": 1}])
    []
    >>> differences([{"rank": 0, "seed": 1}, {"rank": 1, "seed": 2}, {"rank": 1, "seed": 2}])
    ['seed is 1 on rank 0, 2 on ranks 1, 2', 'ranks 1, 2 both read as rank 1']
    """
    found = []
    for key in dict.fromkeys(key for plan in plans for key in plan if key != "rank"):
        values = _grouped([plan.get(key) for plan in plans])
        if len(values) > 1:
            found.append(f"{key} is " + ", ".join(f"{value} on {_named(ranks)}" for value, ranks in values))
    for value, ranks in _grouped([plan.get("rank") for plan in plans]):
        if len(ranks) > 1:
            found.append(f"{_named(ranks)} both read as rank {value}")
    return found


def _grouped(values: Sequence[Any]) -> list[tuple[Any, list[int]]]:
    """Give each value with the ranks that have it."""
    groups: list[tuple[Any, list[int]]] = []
    for rank, value in enumerate(values):
        ranks = next((ranks for known, ranks in groups if known == value), None)
        if ranks is None:
            groups.append((value, [rank]))
        else:
            ranks.append(rank)
    return groups


def _named(ranks: Sequence[int], most: int = 8) -> str:
    listed = ", ".join(map(str, ranks[:most])) + (f" and {len(ranks) - most} more" if len(ranks) > most else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {listed}"
