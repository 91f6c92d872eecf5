"""The settings that every loader shares, by the same names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

from millstream.errors import LoaderError, OrderError
from millstream.loaders.model_config import NO_LIMITS, ModelLimits
from millstream.order.shuffle import Shuffle
from millstream.tensors import FRAMEWORKS, default_framework

RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),  # torchrun
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)
UNITS = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "KI": 2**10,
    "MI": 2**20,
    "GI": 2**30,
    "TI": 2**40,
}


class SharedKeywords(TypedDict, total=False):
    """What every loader takes."""

    batch_size: int
    seed: int
    shuffle: bool | str
    rank: int | None
    world_size: int | None
    framework: str | None
    threads: int | None
    prefetch: int
    labels: Literal["next", "same"]
    drop_last: bool
    pad_last: bool
    memory_budget: int | str | None
    cache_dir: str | os.PathLike[str] | None
    transforms: Sequence[Callable[..., Any]]
    callbacks: Sequence[object]
    model_config: object


@dataclass(frozen=True)
class Settings:
    """The shared settings, checked and with nothing left open."""

    batch_size: int = 8
    seed: int = 0
    shuffle: Shuffle = "global"
    rank: int = 0
    world_size: int = 1
    framework: str = "numpy"
    threads: int = 1
    prefetch: int = 8
    labels: Literal["next", "same"] = "next"
    drop_last: bool = False
    pad_last: bool = False
    memory_budget: int | None = None
    cache_dir: Path | None = None
    transforms: tuple[Callable[..., Any], ...] = ()
    callbacks: tuple[object, ...] = ()
    limits: ModelLimits = NO_LIMITS


def resolve(given: SharedKeywords) -> Settings:
    """Check the shared keywords and fill in what was left out.

    >>> settings = resolve({"shuffle": False, "memory_budget": "2GB", "rank": 1, "world_size": 4})
    >>> settings.shuffle, settings.memory_budget, settings.rank, settings.batch_size
    ('none', 2000000000, 1, 8)
    """
    unknown = sorted(set(given) - set(SharedKeywords.__annotations__))
    if unknown:
        raise TypeError(f"unknown keyword {unknown[0]!r}; loaders share {', '.join(SharedKeywords.__annotations__)}")
    rank, world_size = ranks(given.get("rank"), given.get("world_size"))
    if given.get("drop_last") and given.get("pad_last"):
        raise LoaderError("drop_last and pad_last exclude each other", hint="leave one of them out")
    cache_dir = given.get("cache_dir")
    framework = given.get("framework") or default_framework()
    if framework not in FRAMEWORKS:
        raise LoaderError(f"unknown framework {framework!r}", hint=f"use one of {', '.join(FRAMEWORKS)}")
    if given.get("labels", "next") not in ("next", "same"):
        raise LoaderError(f"labels={given['labels']!r} is unknown", hint="use 'next' or 'same'")
    seed = given.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise LoaderError(f"seed must be an integer, not {seed!r}")
    return Settings(
        batch_size=positive("batch_size", given.get("batch_size", 8)),
        seed=seed,
        shuffle=shuffle_name(given.get("shuffle", "global")),
        rank=rank,
        world_size=world_size,
        framework=framework,
        threads=positive("threads", given.get("threads") or default_threads()),
        prefetch=positive("prefetch", given.get("prefetch", 8)),
        labels=given.get("labels", "next"),
        drop_last=given.get("drop_last", False),
        pad_last=given.get("pad_last", False),
        memory_budget=parse_bytes(given.get("memory_budget")),
        cache_dir=None if cache_dir is None else Path(cache_dir),
        transforms=tuple(given.get("transforms", ())),
        callbacks=tuple(given.get("callbacks", ())),
        limits=ModelLimits.of(given.get("model_config")),
    )


def positive(name: str, value: object) -> int:
    """Insist on an integer of at least 1."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < 1:
        raise LoaderError(f"{name} must be an integer of at least 1, not {value!r}")
    return int(value)


def shuffle_name(value: bool | str) -> Shuffle:  # noqa: FBT001 - a promised call shape
    """Translate the `shuffle` keyword: True and "global", "local", or False for file order."""
    names: Mapping[object, Shuffle] = {True: "global", False: "none", "global": "global", "local": "local"}
    if not isinstance(value, bool | str) or value not in names:
        raise LoaderError(
            f"shuffle={value!r} is unknown", hint="use 'global' (or True), 'local', or False for file order"
        )
    return names[value]


def default_threads() -> int:
    """Two threads where there are cores to spare: one fills at the speed of memory already."""
    return 1 if len(os.sched_getaffinity(0)) <= 2 else 2


def ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Take rank and world size as given, else from the variables that launchers set.

    >>> ranks(2, 8)
    (2, 8)
    """
    if rank is None and world_size is None:
        for rank_name, size_name in RANK_VARIABLES:
            if rank_name in os.environ and size_name in os.environ:
                rank, world_size = _integer(rank_name), _integer(size_name)
                break
    rank, world_size = rank or 0, 1 if world_size is None else world_size
    if not 0 <= rank < world_size:
        raise OrderError(
            f"rank {rank} is outside 0..{world_size - 1}",
            hint="ranks count from 0; pass both rank= and world_size=, or neither under torchrun, SLURM or MPI",
        )
    return rank, world_size


def _integer(variable: str) -> int:
    value = os.environ[variable]
    if not value.isdecimal():
        raise OrderError(f"the environment variable {variable} is {value!r}, not a number")
    return int(value)


def parse_bytes(value: int | str | None) -> int | None:
    """Read a size: bytes, or a number with a unit.

    >>> parse_bytes("1.5 GB"), parse_bytes("64MiB"), parse_bytes(None)
    (1500000000, 67108864, None)
    """
    if value is None:
        return None
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?\s*", value.upper())
        if match is None:
            raise LoaderError(f"memory_budget={value!r} is not a size", hint="write bytes, or '512MB', '2GB', '64MiB'")
        return int(float(match[1]) * UNITS[match[2] or ""])
    return positive("memory_budget", value)
