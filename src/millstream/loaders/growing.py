"""A loader over a store that may still be made: it gives what is there, and waits for what is not.

While rows are made, an epoch has an unknown number of them. Everything is counted as if it were `UNKNOWN`; when the
last row was made the true number takes its place, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from millstream.batches import TrainingBatch
from millstream.errors import StoreError, UnknownLength
from millstream.loaders.growth import Growth
from millstream.loaders.loss import LossMean
from millstream.loaders.losses import tell_losses
from millstream.loaders.member import Member, RowShape
from millstream.loaders.origin import RowOrigin
from millstream.loaders.settings import LoaderSettings, positive
from millstream.loaders.stores import StoreDataLoader
from millstream.order import Schedule
from millstream.stages.lifetime import close_on_exit
from millstream.store import TokenStore

MakeMember = Callable[[TokenStore, bool], Member]
"""(store, whether it is complete) -> its part in the run."""


class GrowingDataLoader(StoreDataLoader):
    """A run over one source whose rows may still be made."""

    one_source = True

    def __init__(
        self,
        name: str,
        growth: Growth | None,
        member: MakeMember,
        store: TokenStore,
        shape: RowShape,
        settings: LoaderSettings,
        loss: LossMean,
    ) -> None:
        first, complete = (member(store, True), True) if growth is None else _found(growth, member, 0)
        if growth is not None and complete:
            growth.close()
            growth = None
        self._growth, self._make_member, self._name = growth, member, name
        super().__init__({name: first}, shape, settings, loss=loss)
        if growth is not None:
            close_on_exit(self, growth.stop, in_children=True)  # its thread would keep it alive, and work on
        self._known_step = 0
        self._measure()
        self._tell_losses()

    def _measure(self) -> None:
        """Work out which step is the first that is not known yet."""
        run = self._run
        windows = run.members[self._name].windows
        if self._growth is None or windows is None:
            return
        accumulation = 1 if run.loss is None else run.loss.accumulation
        steps = (windows.samples - run.phase.offset) // run.phase.global_rows
        self._known_step = run.phase.step + max(0, steps // accumulation * accumulation)

    def _follow(self) -> None:
        """Make sure that the next step is known, waiting for it if need be."""
        while self._growth is not None and self._run.step >= self._known_step:
            self._take_more(self._growth)

    def _finish(self) -> None:
        """Wait until everything is made."""
        while self._growth is not None:
            self._take_more(self._growth)

    def _take_more(self, growth: Growth) -> None:
        """Wait until more is made, and go on with it."""
        self._engine.stop()
        member, complete = _found(growth, self._make_member, self.store.documents)
        self._check_open()
        if complete:
            growth.close()
            self._growth = None
        self._run.grow(self._name, member)
        self._measure()
        self._tell_losses()

    def _tell_losses(self) -> None:
        """Say, once everything is made, if rows were left out; one rank says it for all."""
        if self._growth is None and self.settings.rank == 0:
            tell_losses(self.store)

    @property
    def _end_step(self) -> int | None:
        return None if self._growth is None else self._known_step

    # What every loader has, where the end may not be known

    def get_batch(self, batch_size: int | None = None) -> TrainingBatch:
        """Give the next `batch_size` rows of this rank, as one step of the run."""
        if self._growth is None:
            return super().get_batch(batch_size)
        with self._turn:  # as a whole: another thread may take the last step that is known
            run, rows = self._run, self.settings.batch_size if batch_size is None else batch_size
            if rows != run.samples:
                run.follow(positive("batch_size", rows), run.step)
                self._engine.stop()
                self._measure()
            self._follow()
            try:
                return super().get_batch(batch_size)
            except StoreError:
                if not self._moved:
                    raise
            return self.get_batch(batch_size)  # which finds it in its place

    @property
    def _moved(self) -> bool:
        """Whether the files that we read are not where they were: the store was finished, or is made anew."""
        return self._growth is not None and self._growth.lost(self.store)

    def _not_delivered(self, schedule: Schedule, step: int, error: BaseException, *, taken: bool) -> None:
        """Stand where the run stood before a batch that did not reach the trainer: the next call gives it again."""
        if isinstance(error, StoreError) and self._moved:
            self._engine.stop()
            self._known_step = 0
        else:
            super()._not_delivered(schedule, step, error, taken=taken)

    def _peek(self) -> TrainingBatch:
        """Give a copy of the next batch, and stay where the run is: no transform of batches and no callback sees it."""
        with self._turn:
            self._follow()
            if not self._engine.running:
                self._start()
            batch = self._delivery.batch(self._engine.take(), self._run.phase, self._run.step).copy()
            self._engine.stop()
            return batch

    @property
    def epoch(self) -> int:
        """The epoch of the next step; whether the present one goes on may have to be waited for."""
        if self._growth is not None:
            with self._turn:
                self._follow()
        return self._run.epoch

    def get_num_batches(self) -> int:
        """Say how many batches an epoch has at the loader's own batch size; raises UnknownLength while rows are still
        being made."""
        self._look()
        if self._growth is not None:
            raise self._unknown("how many batches an epoch has")
        return super().get_num_batches()

    def seek(self, step: int) -> None:
        """Go to a step of the run; raises UnknownLength for one whose rows are still being made."""
        self._check_known(step, f"where step {step} lies")
        super().seek(step)
        self._measure()

    def explain(self, step: int) -> list[RowOrigin]:
        """Name the origin of each row of this rank's batch at any step that is known."""
        self._check_known(step, f"what step {step} holds")
        try:
            return super().explain(step)
        except StoreError:
            with self._turn:
                growth = self._growth
                if growth is None or not growth.lost(self.store):
                    raise
                self._take_more(growth)
        return self.explain(step)

    def steps_of(self, document: int, source: str | None = None) -> list[int]:
        """Name the steps of the present epoch whose rows, on any rank, hold input tokens of a document."""
        self._look()
        if self._growth is not None:
            raise self._unknown("which steps use a document")
        return super().steps_of(document, source)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was saved. A state that knows the end of its epoch waits until it is known here too."""
        with self._turn:
            if self._growth is not None and not states_unknown(state):
                self._finish()
            super().load_state_dict(state)
            self._measure()

    def reset(self) -> None:
        """Go back to the very beginning of the run."""
        super().reset()
        self._measure()

    def close(self) -> None:
        """Stop all threads; batches that were delivered stay valid."""
        super().close()
        growth = self._growth
        if growth is not None:
            growth.close()

    @property
    def member(self) -> Member:
        """This loader's part in a mixture, which waits until it is made."""
        with self._turn:
            self._finish()
        return self._run.members[self._name]

    @property
    def store(self) -> TokenStore:
        """The store that rows come from, as far as it is made."""
        return self._run.members[self._name].store

    def _look(self) -> None:
        """Notice what was made meanwhile."""
        if self._growth is not None:
            with self._turn:
                if self._growth is not None and self._growth.look()[1]:
                    self._take_more(self._growth)

    def _check_known(self, step: int, what: str) -> None:
        self._look()
        if self._growth is not None and step >= self._known_step:
            raise self._unknown(what)

    def _unknown(self, what: str) -> UnknownLength:
        return UnknownLength(
            f"{what} is not known yet: {self.store.documents} rows are made so far",
            hint="go on training, or call loader.wait() to wait until all rows are made",
        )

    def wait(self) -> None:
        """Wait until all rows are made; only what looks ahead needs it."""
        with self._turn:
            self._finish()


def _found(growth: Growth, member: MakeMember, documents: int) -> tuple[Member, bool]:
    """Wait for more documents than these; gives their part in the run, and whether they are all."""
    while True:
        store, complete = growth.wait(documents)
        try:
            return member(store, complete), complete
        except StoreError:
            if complete or not growth.lost(store):
                raise


def states_unknown(state: Mapping[str, Any]) -> bool:
    """Whether a state was saved before the end of its epoch was known."""
    return isinstance(state, Mapping) and state.get("unknown_length") is True
