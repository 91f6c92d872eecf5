"""SelfPlayDataLoader: a folder of self-play games, which may grow for ever -> batches of positions."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from millstream.batches.engine import Counters, closed_error
from millstream.batches.self_play import SelfPlayBatch
from millstream.errors import LoaderError, UnknownLength
from millstream.games.predicates import Predicate, Wanted
from millstream.games.rescore import RescoreSettings
from millstream.games.rules import Rules
from millstream.live.hanse import HanseSampling
from millstream.live.positions import PositionSampling, PositionWeights
from millstream.live.tensor_maker import LAYOUTS, Output, Tensors
from millstream.loaders.agreement import Agreement
from millstream.loaders.callbacks import Callbacks
from millstream.loaders.loader import DataLoader
from millstream.loaders.origin import RowOrigin
from millstream.loaders.running import no_workers
from millstream.loaders.self_play_explain import origins_of, steps_of
from millstream.loaders.self_play_run import SelfPlayRun
from millstream.loaders.self_play_task import SelfPlayTask, count_frames
from millstream.loaders.settings import SharedKeywords, check_choice, parse_bytes, positive, resolve
from millstream.loaders.transforms import PerRow, transform_batch
from millstream.settings import made_from
from millstream.stats import Profile
from millstream.tensors import backend, inside_torch_worker


class SelfPlayDataLoader(DataLoader[SelfPlayBatch]):
    """Positions of Leela Chess Zero games in random order, from a window of the newest games that moves on.

    >>> with example_loader(batch_size=4) as loader:
    ...     batch = loader.next()
    >>> batch.planes.shape, batch.policy.shape, batch.values.shape
    ((4, 112, 8, 8), (4, 1858), (4, 6, 3))

    Args:
        path: A folder of `.gz` games and `.tar` archives of them, and all folders in it.
        num_chunks: Games in the window; None: all.
        watch: Go on for ever with what comes; False: one pass over what is there is an epoch, and ends.
        positions: How many positions each use of a game gives: a rate below 1, a count of 1 or more, or settings;
            by default all.
        weights: Prefer positions that the network was wrong about; settings, or their names and values.
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
        **shared: Unpack[SharedKeywords],
    ) -> None:
        settings = resolve(shared, SelfPlayDataLoader.__init__.__kwdefaults__ or ())
        if any(isinstance(transform, PerRow) for transform in settings.transforms):
            raise LoaderError("rows of self-play are no tokens", hint="pass functions batch -> batch")
        check_choice("output", output, tuple(LAYOUTS))
        weighted = made_from(PositionWeights, weights, "weights")
        filters = {"rules": rules, "match": match, "predicates": tuple(predicates)}
        task = SelfPlayTask(
            str(Path(path).absolute()),
            num_chunks=None if num_chunks is None else positive("num_chunks", num_chunks),
            watch=watch,
            poll_s=poll_s,
            shuffle_frames=1 if settings.shuffle == "none" else positive("shuffle_frames", shuffle_frames),
            positions=positions
            if isinstance(positions, PositionSampling)
            else PositionSampling.of(positions, weighted),
            hanse=HanseSampling(hanse, weighted) if isinstance(hanse, int | float) else hanse,
            position_cache=parse_bytes(position_cache or None, "position_cache") or 0,
            filters=filters if rules is not None or match or predicates else None,
            rescore=None if rescore is None else made_from(RescoreSettings, rescore, "rescore"),
            output=output,
            seed=settings.seed,
            threads=settings.threads,
            index_cache=None if settings.cache_dir is None else str(settings.cache_dir / "indices"),
        )
        self.settings, self.task = settings, task
        self._run = SelfPlayRun(task, settings, replay=None if replay is None else Path(replay))
        self._callbacks, self._profile = Callbacks(settings.callbacks), Profile()
        self._agreement = Agreement(settings.rank, settings.world_size)
        self._backend = backend(settings.framework)
        self._turn = threading.RLock()
        self._closed, self._at_close = False, list[Callable[[], None]]()
        self._num_batches: int | None = None

    @property
    def step(self) -> int:
        """The number of the next step."""
        return self._run.step

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
        with self._turn:
            if self._closed:
                raise closed_error()
            run = self._run
            self._agreement.check(self.plan_fingerprint)
            try:
                tensors = run.next(size)
                if tensors is None:
                    epoch = run.epoch
                    run.end_epoch()
                    self._callbacks.epoch_ended(epoch)
                    return None
                batch = self._batch(tensors)
            except Exception as error:
                self._callbacks.error(error)
                raise
            run.delivered(tensors)
            if self._callbacks.any:
                self._callbacks.delivered(run.epoch, batch)
            self._profile.delivered(len(batch), time.perf_counter_ns() - began)
            return batch

    def _batch(self, tensors: Tensors) -> SelfPlayBatch:
        start, stop = tensors.rows
        mine = tensors.origins[start:stop]
        metadata = {
            "epoch": self._run.epoch,
            "step": self._run.step,
            "rows": stop - start,
            "chunk": mine["chunk"].astype(np.int64),
            "ply": mine["ply"].astype(np.int64),
            "use": mine["use"].astype(np.int64),
        }
        if tensors.rule50 is not None:
            metadata["rule50"] = tensors.rule50
        planes, share = tensors.planes, self._backend.share
        if planes.dtype == np.uint64 and self._backend.NAME in ("jax", "mlx"):  # they have no such numbers by default
            planes = planes.view(np.uint8).reshape(len(planes), -1, 8)
        arrays = [share(array) for array in (planes, tensors.policy, tensors.values)]
        batch = SelfPlayBatch(*arrays, framework=self._backend.NAME, metadata=metadata)
        for transform in self.settings.transforms:
            batch = transform_batch(transform, batch)
        return batch

    def get_num_batches(self) -> int:
        """Say how many batches an epoch has; nobody knows it while the folder is watched."""
        if self.task.watch:
            raise UnknownLength("a folder that is watched has no end", hint="count steps yourself")
        if not self.task.knows_length:
            raise UnknownLength("how many positions are chosen shows when they are read", hint="iterate once and count")
        if self._num_batches is None:
            step = self.settings.batch_size * self.settings.world_size
            frames = count_frames(self.task)
            self._num_batches = frames // step if self.settings.drop_last else -(-frames // step)
        return self._num_batches

    def prefetch(self, batches: int) -> None:
        """Keep this many batches ready from now on."""
        with self._turn:
            self._run.prefetch(positive("prefetch", batches))

    # Going elsewhere

    def reset(self) -> None:
        """Go back to the beginning; a run that watches, to the last state that was committed or loaded."""
        with self._turn:
            self._run.restart()
            self._callbacks.jumped()

    def seek(self, step: int) -> None:
        """Stay at the present step: which positions come depends on all before."""
        if step != self.step:
            raise LoaderError(
                f"a self-play run cannot go from step {self.step} to step {step}",
                hint="load_state_dict() goes to a state, reset() to the beginning",
            )

    def state_dict(self) -> dict[str, Any]:
        """Describe where the run stands; with `cache_dir`, a file in there holds the window."""
        with self._turn:
            return self._run.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was saved, with this loader's own batch size and ranks."""
        with self._turn:
            self._run.resume(state)
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
            return origins_of(step, self._run)

    def steps_of(self, document: int, source: str | None = None) -> list[int]:
        """Name the steps of the present epoch that a game was in, on any rank, given by its number."""
        with self._turn:
            return steps_of(document, source, self._run)

    def plan_fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common."""
        shared = ("seed", "batch_size", "world_size")
        facts = {key: getattr(self.settings, key) for key in shared}
        return {"loader": self._run.kind, **facts, **self.task.facts, "step": self.step}

    # Measuring

    @property
    def losses(self) -> dict[str, int]:
        """What was left out so far, by reason."""
        return self._run.losses

    def statistics(self) -> dict[str, Any]:
        """What each stage does: busy share, rates, drops, the window; see the guide on pipelines."""
        graph = self._run.graph
        return {**_NOTHING, "window_s": 0.0} if graph is None else graph.pipeline.statistics()

    def counters(self) -> dict[str, Any]:
        """What went through each stage since it began; `serve_metrics` of `millstream.stages` shows it to others."""
        graph = self._run.graph
        return _NOTHING if graph is None else graph.pipeline.counters()

    def on_close(self, call: Callable[[], None]) -> None:
        """Have something called when the loader is closed, once."""
        self._at_close.append(call)

    def enable_profiling(self) -> None:
        """Start measuring from here."""
        self._profile.start(Counters())

    def get_profiling_results(self) -> dict[str, Any]:
        """Say how fast batches were delivered, which stage waited for which, and who holds which memory."""
        results = self._profile.results(Counters())
        graph = self._run.graph
        stages = {} if graph is None else graph.pipeline.counters()["stages"]
        results["waits"] |= {name: {key: each[key] for key in _TIMES} for name, each in stages.items()}
        results["memory"] = {"batches": self._run.budget.used_bytes, **self._run.memory}
        results["losses"] = self.losses
        return results

    def close(self) -> None:
        """Stop all threads; batches that were delivered stay valid."""
        self._closed = True
        self._run.close()
        while self._at_close:
            self._at_close.pop()()

    def __repr__(self) -> str:
        return f"SelfPlayDataLoader({self.task.path!r}, epoch {self.epoch}, step {self.step})"

    def __reduce__(self) -> Any:
        raise no_workers()


_NOTHING: dict[str, Any] = {"seconds": 0.0, "stages": {}, "queues": {}}
"""What is known of stages before they begin."""
_TIMES = ("busy_s", "input_wait_s", "output_wait_s")


def example_loader(**keywords: Any) -> SelfPlayDataLoader:
    """A loader over three games of twelve positions, for examples."""
    from millstream.games.example import example_folder

    how = {"watch": False, "framework": "numpy", "shuffle_frames": 4, **keywords}
    return SelfPlayDataLoader(example_folder(), **how)
