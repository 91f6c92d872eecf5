"""What `SelfPlayDataLoader` is asked for -> its task; what would mean nothing is refused."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from millstream.errors import LoaderError
from millstream.games import Predicate, Rules, Wanted
from millstream.games.rescore import RescoreSettings
from millstream.live import LAYOUTS, HanseSampling, Partial, PositionSampling, PositionWeights
from millstream.loaders import LoaderSettings, PerRow, check_choice, parse_bytes, positive
from millstream.loaders.self_play.memory import SelfPlayTask
from millstream.settings import made_from

Weights = PositionWeights | Mapping[str, float] | None


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
