"""SelfPlayDataLoader: a folder of self-play games, which may grow for ever -> batches of positions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from millstream.batches.engine import closed_error
from millstream.batches.self_play import SelfPlayBatch
from millstream.errors import LoaderError
from millstream.games.predicates import Predicate, Wanted
from millstream.games.rescore import RescoreSettings
from millstream.games.rules import Rules
from millstream.live.chunk_source_feed import Partial
from millstream.live.hanse import HanseSampling
from millstream.live.positions import PositionSampling, PositionWeights
from millstream.live.tensor_maker import Output
from millstream.loaders.agreement import Agreement
from millstream.loaders.callbacks import Callbacks
from millstream.loaders.loader import DataLoader, no_workers
from millstream.loaders.origin import RowOrigin
from millstream.loaders.self_play.batch import batch_of
from millstream.loaders.self_play.checks import check_keywords, checked_step
from millstream.loaders.self_play.explain import origins_of, steps_of
from millstream.loaders.self_play.found import FoundFiles
from millstream.loaders.self_play.keywords import task_of
from millstream.loaders.self_play.length import EpochLength
from millstream.loaders.self_play.memory import MemoryShares
from millstream.loaders.self_play.numbers import SelfPlayNumbers
from millstream.loaders.self_play.run import SelfPlayRun
from millstream.loaders.settings import SharedKeywords, positive, resolve
from millstream.loaders.transforms import transform_batch
from millstream.stages.lifetime import ForkLock, HomeProcess, close_on_exit, defer_sigint
from millstream.stats import Profile
from millstream.tensors import backend, inside_torch_worker


class SelfPlayDataLoader(SelfPlayNumbers, DataLoader[SelfPlayBatch]):
    """Positions of Leela Chess Zero games in random order, from a window of the newest games that moves on.

    >>> with example_loader(batch_size=4) as loader:
    ...     batch = loader.next()
    >>> batch.planes.shape, batch.policy.shape, batch.values.shape
    ((4, 112, 8, 8), (4, 1858), (4, 6, 3))

    Args:
        path: A folder of `.gz` games and `.tar` archives of them, and all folders in it.
        num_chunks: Games in the window; None: all.
        watch: Go on for ever with what comes; False: one pass over what is there is an epoch, and ends.
        positions: How many positions each use of a game gives: a rate below 1, a whole number, or settings; by default
            all.
        weights: Prefer positions that the network was wrong about, where a number of them is chosen, and games that
            have such, under `hanse`; settings, or their names and values.
        hanse: Use long games more often: an exponent, 1 for positions that are alike.
        shuffle_frames: Positions that are shuffled into each other.
        rules: What games must keep: "values", "moves" or "legal"; None looks at nothing.
        match: Fields of frames and what they must be; games that do not match are left out.
        predicates: Functions of a game that say whether to keep it, or why not.
        rescore: What is changed before games are learned from; settings, or their names and values.
        position_cache: Bytes for positions of games that were read, such as "1GB", or 0: pays with a small count.
        output: Tensors of "float32" or "float16", or "boards": planes as 64 bits each (8 bytes in jax and mlx), with
            policy and values in 16 bits. `millstream.games.expand` says how to expand them on the accelerator.
        replay: The journal of an earlier run: the same games enter at the same draws.
        poll_s: Look for new files so often; None: be told by the system, where that works.
        partial: What becomes of an archive that is cut or damaged at its end: "drop" it, or "keep" the games before
            that. It is counted either way.
        shared: Keywords that every loader has, such as `batch_size`, `seed` and `cache_dir`, a folder beside the
            checkpoints, which a run needs to be gone on with while it watches.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        num_chunks: int | None = None,
        watch: bool = True,
        positions: float | PositionSampling | None = None,
        weights: PositionWeights | Mapping[str, float] | None = None,
        hanse: float | HanseSampling | None = None,
        shuffle_frames: int = 1 << 17,
        rules: Rules | None = None,
        match: Mapping[str, Wanted] | None = None,
        predicates: Sequence[Predicate] = (),
        rescore: RescoreSettings | Mapping[str, Any] | None = None,
        position_cache: int | str | None = None,
        output: Output = "float32",
        replay: str | os.PathLike[str] | None = None,
        poll_s: float | None = None,
        partial: Partial = "drop",
        **shared: Unpack[SharedKeywords],
    ) -> None:
        how = {"watch": watch, "poll_s": poll_s, "hanse": hanse, "shuffle_frames": shuffle_frames}
        check_keywords(path, replay, **how, rules=rules, match=match, predicates=predicates)
        settings = resolve(shared, SelfPlayDataLoader.__init__.__kwdefaults__ or ())
        task = task_of(
            path,
            settings,
            num_chunks=num_chunks,
            watch=watch,
            positions=positions,
            weights=weights,
            hanse=hanse,
            shuffle_frames=shuffle_frames,
            rules=rules,
            match=match,
            predicates=predicates,
            rescore=rescore,
            position_cache=position_cache,
            output=output,
            poll_s=poll_s,
            partial=partial,
        )
        shares = MemoryShares.of(task, settings)
        self.settings, self.task = settings, shares.given_to(task)
        shared_out = replace(settings, memory_budget=shares.batches)
        self._run = SelfPlayRun(self.task, shared_out, replay=None if replay is None else Path(replay))
        close_on_exit(self, self._run.close)
        self._length = EpochLength(self._run)
        self._callbacks, self._profile = Callbacks(settings.callbacks), Profile()
        self._agreement = Agreement(settings.rank, settings.world_size)
        self._found = FoundFiles(settings.rank, settings.world_size)
        self._backend = backend(settings.framework)
        self._asking, self._turn = ForkLock(), self._run.turn
        """Who has the first may wait for a batch, who has the second moves the run: a state waits for no game."""
        self._untaken: tuple[int, SelfPlayBatch] | None = None
        """A batch that did not reach the trainer, and the size that was asked for."""
        self._made: tuple[int, SelfPlayBatch] | None = None
        """A batch on its way to the trainer."""
        self._closed, self._at_close = False, list[Callable[[], None]]()
        self._process = HomeProcess()

    @property
    def step(self) -> int:
        """The number of the next step."""
        return self._run.step - (self._untaken is not None)

    @property
    def epoch(self) -> int:
        """How often all games were gone through; 0 for a run that watches."""
        return self._run.epoch

    # Batches

    def get_batch(self, batch_size: int | None = None) -> SelfPlayBatch:
        """Give the next `batch_size` positions of this rank, as one step of the run."""
        batch = self._deliver(batch_size)
        if batch is None:  # an epoch was over
            batch = self._deliver(batch_size)
        assert batch is not None
        return batch

    def get_iterator(self) -> Iterator[SelfPlayBatch]:
        """Iterate over the rest of the present epoch; a run that watches has no end."""
        if inside_torch_worker():
            raise no_workers()
        while (batch := self._deliver(None)) is not None:
            yield batch

    def _deliver(self, batch_size: int | None) -> SelfPlayBatch | None:
        """The next batch; None, and the next epoch begins, where one ends."""
        began = time.perf_counter_ns()
        size = self.settings.batch_size if batch_size is None else positive("batch_size", batch_size)
        with self._asking:
            if self._closed:
                raise closed_error()
            self._agreement.check(self.plan_fingerprint)
            try:
                batch = self._coming(size) if self._untaken is None else self._again(size, *self._untaken)
                if batch is not None:
                    self._hand_over(batch, size)
                    self._profile.delivered(batch.metadata["rows"], time.perf_counter_ns() - began)
            except BaseException as error:
                if self._made is not None:
                    self._untaken = self._made
                if isinstance(error, Exception):
                    self._callbacks.error(error)
                raise
            finally:
                self._made = None
            return batch

    def _coming(self, batch_size: int) -> SelfPlayBatch | None:
        """The batch of the coming step; whoever waits for games here keeps nobody from saving a state."""
        run = self._run
        with self._turn:
            run.start()
        tensors = run.next(batch_size)
        self._found.check(run.epoch, run.found)
        with self._turn:
            if tensors is None:
                epoch = run.epoch
                self._length.end_epoch()
                run.end_epoch()
                self._callbacks.epoch_ended(epoch)
                return None
            batch = batch_of(tensors, run.epoch, run.step, self._backend)
            for transform in self.settings.transforms:
                batch = transform_batch(transform, batch)
            with defer_sigint():
                run.delivered(tensors)
                self._made = batch_size, batch
            return batch

    def _hand_over(self, batch: SelfPlayBatch, batch_size: int) -> None:
        """Tell listeners of a batch; if one fails, it is the next one once more."""
        self._made, self._untaken = (batch_size, batch), None
        if self._callbacks.any:
            self._callbacks.delivered(self._run.epoch, batch)

    def _again(self, batch_size: int, asked: int, untaken: SelfPlayBatch) -> SelfPlayBatch:
        if batch_size != asked:
            raise LoaderError(
                f"the batch of step {self.step} was made, but a listener failed: it has batch_size={asked}",
                hint=f"ask once more for batch_size={asked}, or load a state",
            )
        return untaken

    def get_num_batches(self) -> int:
        """Say how many batches the present epoch has at the loader's own batch size, by the headers of its files.

        Nobody knows it while the folder is watched, where not every position is used, or once a game could not be read.
        """
        return self._length.batches()

    def prefetch(self, batches: int) -> None:
        """Keep this many batches ready from now on."""
        with self._turn:
            self._run.prefetch(positive("prefetch", batches))

    # Going elsewhere

    def reset(self) -> None:
        """Go back to the beginning; a run that watches, to the last state that was committed or loaded."""
        with self._asking, self._turn:
            self._run.restart()
            self._jumped()

    def seek(self, step: int) -> None:
        """Stay at the present step: which positions come depends on all before."""
        if step != self.step:
            raise LoaderError(
                f"a self-play run cannot go from step {self.step} to step {step}",
                hint="load_state_dict() goes to a state, reset() to the beginning",
            )

    def state_dict(self) -> dict[str, Any]:
        """Describe where the run stands, behind the last batch that was delivered; another thread may wait for the next
        one meanwhile. With `cache_dir`, a file in there holds the window."""
        with self._turn:
            if self._untaken is not None:
                raise LoaderError(
                    f"the run stands behind step {self.step}, of which a listener did not take the batch",
                    hint="next() gives it once more; save the state then",
                )
            return self._run.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was saved, with this loader's own batch size and ranks."""
        with self._asking, self._turn:
            self._run.resume(state)
            self._jumped()

    def _jumped(self) -> None:
        self._untaken = None
        self._callbacks.jumped()

    def commit(self, state: Mapping[str, Any]) -> None:
        """Say that a state is safely saved: the window of older ones is let go of."""
        with self._turn:
            self._run.commit(state)

    # Explaining

    def explain(self, step: int) -> list[RowOrigin]:
        """Name file, game, ply and use of each row of this rank's batch at a step that was made.

        A `Span`'s document is the game's number in the run, and `start` its ply.
        """
        with self._turn:
            return origins_of(checked_step(step), self._run)

    def steps_of(self, document: int, source: str | None = None) -> list[int]:
        """Name the steps of the present epoch that a game was in, on any rank, given by its number."""
        with self._turn:
            return steps_of(document, source, self._run)

    def plan_fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common."""
        shared = ("seed", "batch_size", "world_size")
        facts = {key: getattr(self.settings, key) for key in shared}
        return {"loader": self._run.kind, **facts, **self.task.facts, "step": self.step}

    # The end

    def on_close(self, call: Callable[[], None]) -> None:
        """Have something called when the loader is closed, once."""
        self._at_close.append(call)

    def close(self) -> None:
        """Stop all threads; batches that were delivered stay valid."""
        self._closed = True
        self._run.close()
        while self._at_close and not self._process.left:  # what was asked for in a parent is closed there
            self._at_close.pop()()

    def __repr__(self) -> str:
        return f"SelfPlayDataLoader({self.task.path!r}, epoch {self.epoch}, step {self.step})"

    def __reduce__(self) -> Any:
        raise no_workers()


def example_loader(**keywords: Any) -> SelfPlayDataLoader:
    """A loader over three games of twelve positions, for examples."""
    from millstream.games.example import example_folder

    how = {"watch": False, "framework": "numpy", "shuffle_frames": 4, **keywords}
    return SelfPlayDataLoader(example_folder(), **how)
