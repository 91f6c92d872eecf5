"""SelfPlayDataLoader: a folder of self-play games, which may keep growing -> batches of positions.

Its keywords are checked when it is made: a mistake shows there, and not in the first batch much later.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from glob import has_magic
from pathlib import Path
from typing import Any, Unpack, get_args

import numpy as np

from millstream.batches import SelfPlayBatch
from millstream.errors import BudgetError, LoaderError
from millstream.games import (
    MOST_SLOTS,
    ORIGIN,
    SLOT_BYTES,
    FieldMatch,
    Predicate,
    RescoreSettings,
    Rules,
    Wanted,
    check_rules,
)
from millstream.loaders.fillers import StageFiller
from millstream.loaders.hooks import PerRow, transform_batch
from millstream.loaders.loader import DataLoader
from millstream.loaders.runs import SelfPlayRun
from millstream.loaders.settings import LoaderSettings, SharedKeywords, check_choice, parse_bytes, positive, resolve
from millstream.selfplay import HanseSampling, MemoryShares, PositionSampling, PositionWeights, SelfPlayTask
from millstream.selfplay.chunk_feed import LAYOUTS, Output, Partial, Tensors
from millstream.settings import local_path, made_from
from millstream.stats import Ledger
from millstream.tensors import backend

_TIMES = ("busy_s", "input_wait_s", "output_wait_s")
Weights = PositionWeights | Mapping[str, float] | None
_LINKS = "make a folder with links to all of them, and pass that"


class SelfPlayDataLoader(DataLoader[SelfPlayBatch]):
    """Positions of Leela Chess Zero games in random order, from a window of the newest games that moves on.

    >>> with example_self_play(batch_size=4) as loader:
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
        watch: Continue without end with the games that come; False: one pass over what is there is an epoch, and ends.
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
            checkpoints, which a run needs to be resumed while it watches.
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


def example_self_play(**keywords: Any) -> SelfPlayDataLoader:
    """A loader over three games of twelve positions, for examples."""
    from millstream.games import example_folder

    how = {"watch": False, "framework": "numpy", "shuffle_frames": 4, **keywords}
    return SelfPlayDataLoader(example_folder(), **how)


class SelfPlayDelivery:
    """Finishes the batches of a run over games."""

    def __init__(self, run: SelfPlayRun) -> None:
        self._run, self._backend = run, backend(run.settings.framework)
        self.ledger = Ledger()  # the stages count what is lost

    def finish(self, filled: Tensors) -> tuple[SelfPlayBatch, int]:
        """Make the batch of the run's next step, with all transforms; gives it and its number of rows."""
        run = self._run
        batch = batch_of(filled, run.epoch, run.step, self._backend)
        for transform in run.settings.transforms:
            batch = transform_batch(transform, batch)
        return batch, len(batch)


def batch_of(tensors: Tensors, epoch: int, step: int, framework: Any) -> SelfPlayBatch:
    """A batch in the memory of the tensors; what is known of each row has its own, and outlives them."""
    start, stop = tensors.rows
    mine = tensors.origins[start:stop]
    columns = {key: mine[key].astype(np.int64) for key in ("chunk", "ply", "use")}
    metadata = {"epoch": epoch, "step": step, "rows": stop - start, **columns}
    if tensors.rule50 is not None:
        metadata["rule50"] = tensors.rule50.copy()
    planes = tensors.planes
    if planes.dtype == np.uint64 and framework.NAME in ("jax", "mlx"):  # they have no such numbers by default
        planes = planes.view(np.uint8).reshape(len(planes), -1, 8)
    arrays = [framework.share(array) for array in (planes, tensors.policy, tensors.values)]
    return SelfPlayBatch(*arrays, framework=framework.NAME, metadata=metadata)


def task_of(
    path: str | os.PathLike[str],
    settings: LoaderSettings,
    *,
    num_chunks: int | None,
    positions: float | PositionSampling | None,
    weights: Weights,
    hanse: float | HanseSampling | None,
    shuffle_frames: int,
    rules: Rules | None,
    match: Mapping[str, Wanted] | None,
    predicates: Sequence[Predicate],
    rescore: RescoreSettings | Mapping[str, Any] | None,
    position_cache: int | str | None,
    **as_they_are: Any,
) -> SelfPlayTask:
    """What a loader makes of a folder, by its keywords."""
    _refuse(settings)
    check_choice("output", as_they_are["output"], tuple(LAYOUTS))
    check_choice("partial", as_they_are["partial"], get_args(Partial))
    sampling, heavy = _weighted(positions, weights, hanse)
    filters = {"rules": rules, "match": match, "predicates": tuple(predicates)}
    return SelfPlayTask(
        str(Path(path).absolute()),
        num_chunks=None if num_chunks is None else positive("num_chunks", num_chunks),
        shuffle=settings.shuffle != "none",
        shuffle_frames=1 if settings.shuffle == "none" else positive("shuffle_frames", shuffle_frames),
        positions=sampling,
        hanse=heavy,
        position_cache=parse_bytes(None if position_cache == 0 else position_cache, "position_cache") or 0,
        filters=filters if rules is not None or match or predicates else None,
        rescore=None if rescore is None else made_from(RescoreSettings, rescore, "rescore"),
        seed=settings.seed,
        threads=settings.threads,
        index_cache=None if settings.cache_dir is None else str(settings.cache_dir / "indices"),
        **as_they_are,
    )


def _refuse(settings: LoaderSettings) -> None:
    if any(isinstance(transform, PerRow) for transform in settings.transforms):
        raise LoaderError("rows of self-play are no tokens", hint="pass functions batch -> batch")
    if settings.shuffle == "local":
        raise LoaderError(
            'shuffle="local": games are shuffled in a window of files, and positions in a reservoir',
            hint="leave it out, and pass num_chunks= and shuffle_frames=; shuffle=False keeps the order of the files",
        )
    if settings.pad_last:
        raise LoaderError(
            "pad_last=True: there is no position without loss to fill a batch up with",
            hint="leave it out: the last batch of an epoch is short; drop_last=True leaves it out",
        )


def _weighted(
    positions: float | PositionSampling | None, weights: Weights, hanse: float | HanseSampling | None
) -> tuple[PositionSampling, HanseSampling | None]:
    """Give the weights to those who choose by them; both may be settings that have their own."""
    sampling = positions if isinstance(positions, PositionSampling) else PositionSampling.of(positions)
    heavy = HanseSampling(hanse) if isinstance(hanse, int | float) else hanse
    if weights is None:
        return sampling, heavy
    weighted, used = made_from(PositionWeights, weights, "weights"), False
    if sampling is not positions and sampling.count is not None:
        sampling, used = replace(sampling, weights=weighted), True
    if heavy is not None and heavy is not hanse:
        heavy, used = replace(heavy, weights=weighted), True
    if not used:
        raise LoaderError(
            "weights= has no effect: nothing is chosen by it",
            hint="pass positions= as a count, or hanse= as a number; settings have weights of their own",
        )
    return sampling, heavy


def check_keywords(path: Any, replay: Any, **keywords: Any) -> None:
    """Refuse what cannot be meant, each with a hint."""
    _check_folder(path)
    if replay is not None:
        _check_journal(replay)
    if not isinstance(watch := keywords["watch"], bool):
        raise LoaderError(f"watch={watch!r} is neither True nor False", hint="pass watch=False for one pass")
    if (poll_s := keywords["poll_s"]) is not None and not (_is_number(poll_s) and poll_s > 0):
        raise LoaderError(f"poll_s={poll_s!r} is no time between two looks", hint="pass seconds, or leave it out")
    hanse = keywords["hanse"]
    if hanse is not None and not isinstance(hanse, HanseSampling) and not (_is_number(hanse) and hanse >= 0):
        raise LoaderError(f"hanse={hanse!r} is no exponent", hint="pass hanse=1 to make positions alike")
    _check_reservoir(keywords["shuffle_frames"])
    _check_filters(keywords["rules"], keywords["match"], keywords["predicates"])


def _check_reservoir(shuffle_frames: Any) -> None:
    """Refuse what the memory has no room for; only what is written to is taken up, so asking costs nothing."""
    frames = positive("shuffle_frames", shuffle_frames, MOST_SLOTS)
    try:
        np.empty(frames, ORIGIN)
    except MemoryError:
        takes = frames * (SLOT_BYTES + ORIGIN.itemsize)
        raise BudgetError(
            f"shuffle_frames={frames}: so many positions take {takes:,} bytes, which are not to be had",
            hint=f"a position takes {SLOT_BYTES + ORIGIN.itemsize} bytes; pass a smaller shuffle_frames",
        ) from None


def _check_folder(path: Any) -> None:
    if isinstance(path, Sequence) and not isinstance(path, str | bytes):
        raise LoaderError(f"path is a list of {len(path)}, and only one folder is watched", hint=_LINKS)
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise LoaderError(f"path={path!r} is no folder", hint="pass the path of a folder of games")
    folder = local_path(path, "a folder of games", LoaderError)
    if has_magic(str(folder)) and not folder.exists():
        raise LoaderError(
            f"path={str(folder)!r} is a pattern, and no folder",
            hint="pass the folder: all games in it and below it are taken; or one with links to those that you want",
        )
    if folder.is_file() or (folder.suffix in (".gz", ".tar") and not folder.exists()):
        raise LoaderError(f"{folder} is a file, and no folder", hint="pass the folder that it lies in, or link to it")


def _check_journal(replay: Any) -> None:
    if not isinstance(replay, str | os.PathLike) or not Path(replay).is_file():
        raise LoaderError(f"replay={replay!r}: there is no such journal", hint="it is admissions.jsonl in a cache_dir")


def _check_filters(rules: Any, match: Any, predicates: Any) -> None:
    if rules is not None:
        check_rules(rules)
    if match is not None:
        if not isinstance(match, Mapping):
            raise LoaderError(f"match={match!r} names no fields", hint='pass match={"visits": (1, None)}')
        FieldMatch(match)
    if isinstance(predicates, str) or not isinstance(predicates, Sequence) or not all(map(callable, predicates)):
        raise LoaderError(
            f"predicates={predicates!r} is no list of functions", hint="pass predicates=[f], functions of a game"
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
