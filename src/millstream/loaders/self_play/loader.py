"""SelfPlayDataLoader: a folder of self-play games, which may grow for ever -> batches of positions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from millstream.batches import SelfPlayBatch
from millstream.games import Predicate, Rules, Wanted
from millstream.games.rescore import RescoreSettings
from millstream.live import HanseSampling, Output, Partial, PositionSampling, PositionWeights
from millstream.loaders import DataLoader, SharedKeywords, resolve
from millstream.loaders.fillers import StageFiller
from millstream.loaders.self_play.batch import SelfPlayDelivery
from millstream.loaders.self_play.checks import check_keywords
from millstream.loaders.self_play.keywords import task_of
from millstream.loaders.self_play.memory import MemoryShares
from millstream.loaders.self_play.run import SelfPlayRun

_TIMES = ("busy_s", "input_wait_s", "output_wait_s")


class SelfPlayDataLoader(DataLoader[SelfPlayBatch]):
    """Positions of Leela Chess Zero games in random order, from a window of the newest games that moves on.

    >>> with example_loader(batch_size=4) as loader:
    ...     batch = loader.next()
    >>> batch.planes.shape, batch.policy.shape, batch.values.shape
    ((4, 112, 8, 8), (4, 1858), (4, 6, 3))

    In what `explain()` says, a document is a game by its number in the run, and `start` is its ply. The length of an
    epoch is that of the present one, by the headers of its files; it is unknown while the folder is watched, where not
    every position is used, and once a game could not be read. `seek()` cannot leave the present step, as which
    positions come depends on all before; `reset()` of a run that watches goes to the last state that was committed or
    loaded.

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

    _run: SelfPlayRun
    _filler: StageFiller

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
        shares = MemoryShares.of(
            task,
            settings.memory_budget,
            batch_size=settings.batch_size,
            ranks=settings.world_size,
            prefetch=settings.prefetch or 2,
        )
        self.task = shares.given_to(task)
        shared_out = replace(settings, memory_budget=shares.batches)
        run = SelfPlayRun(self.task, shared_out, replay=None if replay is None else Path(replay))
        super().__init__(run, StageFiller(run), SelfPlayDelivery(run), settings)

    # What each stage does

    def statistics(self) -> dict[str, Any]:
        """What each stage does: busy share, rates, drops, the window; see the guide on pipelines."""
        return self._filler.statistics()

    def counters(self) -> dict[str, Any]:
        """What went through each stage since it began, also when it has ended.

        `serve_metrics` of `millstream.stages` shows it to others.
        """
        return self._filler.stage_counters()

    def get_profiling_results(self) -> dict[str, Any]:
        """Say how fast batches were delivered, which stage waited for which, and who holds which memory."""
        results, stages = super().get_profiling_results(), self.counters()["stages"]
        results["waits"] |= {name: {key: each[key] for key in _TIMES} for name, each in stages.items()}
        return results

    def __repr__(self) -> str:
        return f"SelfPlayDataLoader({self.task.path!r}, epoch {self.epoch}, step {self.step})"


def example_loader(**keywords: Any) -> SelfPlayDataLoader:
    """A loader over three games of twelve positions, for examples."""
    from millstream.games import example_folder

    how = {"watch": False, "framework": "numpy", "shuffle_frames": 4, **keywords}
    return SelfPlayDataLoader(example_folder(), **how)
