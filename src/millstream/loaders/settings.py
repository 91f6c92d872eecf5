"""The settings that every loader shares, by the same names, and what the model can take, checked at the start."""

from __future__ import annotations

import difflib
import json
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

from millstream.errors import LoaderError, OrderError
from millstream.order import Shuffle
from millstream.settings import at_least, byte_count, local_path
from millstream.stages import cpus
from millstream.tensors import FRAMEWORKS, default_framework

LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")
RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),  # torchrun
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)
MEMORY = "memory://"
"""The `cache_dir` that is no folder."""
MOST_THREADS = 1024
MOST_PREFETCHED = 1024
SENSIBLE = {
    "batch_size": "it counts the rows of one rank; pass batch_size=8, or leave it out",
    "chunk_size": "it counts the tokens of a row; pass chunk_size=2048, or what the model was built for",
    "threads": "one thread fills at the speed of memory; leave it out, or pass threads=2",
    "prefetch": "it counts the batches kept ready; leave it out, or pass prefetch=8",
    "memory_budget": "it counts bytes; pass memory_budget='2GB', or leave it out",
    "cache_limit": "it counts bytes; pass cache_limit='10GB', or leave it out",
    "position_cache": "it counts bytes; pass position_cache='1GB', or leave it out",
    "epoch_size": "it counts the samples of an epoch; leave it out to end with the first source that is used up",
    "workers": "it counts the threads that encode; leave it out to use every processor",
    "max_document_bytes": "it limits the memory for one document; leave it out for 64 MiB",
    "max_length": "it counts the most tokens of a row; pass max_length=2048, or what the model was built for",
    "mix_block": "it counts the places among which weights are dealt out; leave it out for 1000",
}
ANY = "pass a whole number from 1 on, or leave it out"


@dataclass(frozen=True)
class ModelLimits:
    """The part of a model's configuration that its data must respect; None where it does not say.

    >>> ModelLimits.of({"vocab_size": 50257, "n_positions": 1024, "eos_token_id": 50256})
    ModelLimits(vocab_size=50257, longest_row=1024, eos_id=50256, pad_id=None)
    """

    vocab_size: int | None = None
    longest_row: int | None = None
    eos_id: int | None = None
    pad_id: int | None = None

    @classmethod
    def of(cls, config: object) -> ModelLimits:
        """Read a Hugging Face config: an object, a dict, a `config.json` or the folder that holds one."""
        if config is None:
            return cls()
        values = _values(config)
        if isinstance(values.get("text_config"), Mapping):  # multimodal models keep the language model's part inside
            values = {**values, **values["text_config"]}
        length = next((key for key in LENGTH_KEYS if values.get(key) is not None), None)
        limits = cls(
            _config_integer(values, "vocab_size", least=1),
            None if length is None else _config_integer(values, length, least=1),
            _config_integer(values, "eos_token_id"),
            _config_integer(values, "pad_token_id"),
        )
        for name, value in (("eos_token_id", limits.eos_id), ("pad_token_id", limits.pad_id)):
            if value is not None and limits.vocab_size is not None and value >= limits.vocab_size:
                raise LoaderError(
                    f"model_config: {name} is {value}, but the vocabulary has {limits.vocab_size} ids",
                    hint=f"correct {name} or vocab_size; ids count from 0",
                )
        return limits


NO_LIMITS = ModelLimits()


def _values(config: object) -> Mapping[str, Any]:
    if isinstance(config, str | os.PathLike):
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        try:
            config = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise LoaderError(
                f"model_config: {path}: {error}", hint="give a Hugging Face config.json, dict or object"
            ) from None
    if hasattr(config, "to_dict"):
        config = config.to_dict()
    if not isinstance(config, Mapping):
        raise LoaderError(
            f"model_config: {type(config).__name__} is no config", hint="give a config.json, dict or object"
        )
    return config


def _config_integer(values: Mapping[str, Any], key: str, least: int = 0) -> int | None:
    value = values.get(key)
    if isinstance(value, list) and value:  # some models stop at any of several ids; the first one ends a text
        value = value[0]
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise LoaderError(
            f"model_config: {key} is {value!r}, not an integer of at least {least}",
            hint=f"correct it, or leave {key} out",
        )
    return value


class SharedKeywords(TypedDict, total=False):
    """What every loader takes."""

    batch_size: int
    seed: int
    shuffle: bool | str
    rank: int | None
    world_size: int | None
    framework: str | None
    threads: int | None
    prefetch: int | None
    labels: Literal["next", "same"]
    drop_last: bool
    pad_last: bool
    memory_budget: int | str | None
    cache_dir: str | os.PathLike[str] | None
    cache_limit: int | str | None
    transforms: Sequence[Callable[..., Any]]
    callbacks: Sequence[object]
    model_config: object


@dataclass(frozen=True)
class LoaderSettings:
    """The shared settings, checked and with nothing left open."""

    batch_size: int = 8
    seed: int = 0
    shuffle: Shuffle = "global"
    rank: int = 0
    world_size: int = 1
    framework: str = "numpy"
    threads: int = 1
    prefetch: int | None = None
    labels: Literal["next", "same"] = "next"
    drop_last: bool = False
    pad_last: bool = False
    memory_budget: int | None = None
    cache_dir: Path | None = None
    in_memory: bool = False
    """Whether what a cache would hold is to stay in memory (`cache_dir="memory://"`)."""
    cache_limit: int | None = None
    """Bytes that a stream, or the cache of parts of what is prepared, may keep on the disk."""
    transforms: tuple[Callable[..., Any], ...] = ()
    callbacks: tuple[object, ...] = ()
    limits: ModelLimits = NO_LIMITS


def resolve(given: SharedKeywords, own: Iterable[str] = ()) -> LoaderSettings:
    """Check the shared keywords and fill in what was left out; `own` are those that only one loader has.

    >>> settings = resolve({"shuffle": False, "memory_budget": "2GB", "rank": 1, "world_size": 4})
    >>> settings.shuffle, settings.memory_budget, settings.rank, settings.batch_size
    ('none', 2000000000, 1, 8)
    """
    unknown = sorted(set(given) - set(SharedKeywords.__annotations__))
    if unknown:
        known = [*own, *SharedKeywords.__annotations__]
        near = difflib.get_close_matches(unknown[0], known, n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise TypeError(f"unknown keyword {unknown[0]!r}; {meant}there are {', '.join(known)}")
    rank, world_size = ranks(given.get("rank"), given.get("world_size"))
    drop_last, pad_last = _flag(given, "drop_last"), _flag(given, "pad_last")
    if drop_last and pad_last:
        raise LoaderError("drop_last and pad_last exclude each other", hint="leave one of them out")
    framework = given.get("framework")
    framework = default_framework() if framework is None else framework
    if framework not in FRAMEWORKS:
        raise LoaderError(f"unknown framework {framework!r}", hint=f"use one of {', '.join(FRAMEWORKS)}")
    if given.get("labels", "next") not in ("next", "same"):
        raise LoaderError(f"labels={given['labels']!r} is unknown", hint="use 'next' or 'same'")
    threads = given.get("threads")
    return LoaderSettings(
        batch_size=positive("batch_size", given.get("batch_size", 8)),
        seed=_seed(given.get("seed", 0)),
        shuffle=shuffle_name(given.get("shuffle", "global")),
        rank=rank,
        world_size=world_size,
        framework=framework,
        threads=positive("threads", default_threads() if threads is None else threads, MOST_THREADS),
        prefetch=None if given.get("prefetch") is None else positive("prefetch", given["prefetch"], MOST_PREFETCHED),
        labels=given.get("labels", "next"),
        drop_last=drop_last,
        pad_last=pad_last,
        memory_budget=parse_bytes(given.get("memory_budget")),
        cache_dir=None if given.get("cache_dir") == MEMORY else _folder(given.get("cache_dir")),
        in_memory=given.get("cache_dir") == MEMORY,
        cache_limit=parse_bytes(given.get("cache_limit"), "cache_limit"),
        transforms=_functions(given.get("transforms", ())),
        callbacks=_listed("callbacks", given.get("callbacks", ())),
        limits=ModelLimits.of(given.get("model_config")),
    )


def positive(name: str, value: object, most: int | None = None) -> int:
    """Insist on an integer of at least 1."""
    number = at_least(name, value, SENSIBLE.get(name, ANY))
    if most is not None and number > most:
        raise LoaderError(f"{name}={number} is too many", hint=f"pass {name}={most} at most")
    return number


def check_choice(word: str, value: object, choices: tuple[str, ...]) -> None:
    """Insist on one of some words."""
    if value not in choices:
        raise LoaderError(f"{word}={value!r} is unknown", hint=f"use one of {', '.join(map(repr, choices))}")


def whole(value: object) -> int | None:
    """Give an integer of any kind as a Python integer, None for anything else, True and False too."""
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _flag(given: SharedKeywords, name: Literal["drop_last", "pad_last"]) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise LoaderError(f"{name} must be True or False, not {value!r}", hint=f"pass {name}=True, or leave it out")
    return value


def _seed(value: object) -> int:
    seed = whole(value)
    if seed is None or not -(2**63) <= seed < 2**64:
        raise LoaderError(f"seed must be an integer of 64 bits, not {value!r}", hint="pass seed=0, or leave it out")
    return seed


def _folder(value: str | os.PathLike[str] | None) -> Path | None:
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise LoaderError(
            f"cache_dir={value!r} is no path", hint="pass the path of a folder beside the checkpoints, or leave it out"
        )
    if str(value).rstrip("/") == "memory:":  # also a Path, which has lost its slashes
        raise LoaderError(
            f"cache_dir={value!r} is no folder", hint=f"pass the text {MEMORY!r} to keep windows of a stream in memory"
        )
    return local_path(value, "a cache_dir", LoaderError)


def _listed(name: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise LoaderError(f"{name} must be a list, not {type(value).__name__}", hint=f"pass {name}=[…]")
    return tuple(value)


def _functions(value: Any) -> tuple[Callable[..., Any], ...]:
    transforms = _listed("transforms", value)
    for transform in transforms:
        if not callable(transform):
            raise LoaderError(
                f"transforms hold {transform!r}, which cannot be called",
                hint="pass functions batch -> batch, or (row, rng) -> row marked with `per_row`",
            )
    return transforms


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
    return 1 if cpus() <= 2 else 2


def ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Take rank and world size as given, else from the variables that launchers set.

    >>> ranks(2, 8)
    (2, 8)
    """
    launched = None if rank is not None and world_size is not None else _launched()
    if launched is not None:
        rank, world_size = launched[0] if rank is None else rank, launched[1] if world_size is None else world_size
    if rank is None and (world_size is None or whole(world_size) == 1):
        # Among several, a rank that was left out must not be 0 on all of them.
        rank, world_size = 0, 1
    if world_size is None and rank == 0:
        world_size = 1
    hint = "ranks count from 0; pass both rank= and world_size=, or neither under torchrun, SLURM or MPI"
    place, size = whole(rank), whole(world_size)
    if place is None or size is None:
        raise OrderError(f"rank={rank!r} of world_size={world_size!r} are not both integers", hint=hint)
    if not 0 <= place < size:
        raise OrderError(f"rank {place} is outside 0..{size - 1}", hint=hint)
    return place, size


def _launched() -> tuple[int, int] | None:
    """Rank and world size as a launcher gave them."""
    for rank, size in RANK_VARIABLES:
        if rank in os.environ and size in os.environ:
            return _integer(rank), _integer(size)
    return None


def _integer(variable: str) -> int:
    value = os.environ[variable]
    if not value.isdecimal():
        raise OrderError(
            f"the environment variable {variable} is {value!r}, not a number",
            hint=f"unset {variable}, or pass rank= and world_size=",
        )
    return int(value)


def parse_bytes(value: int | str | None, name: str = "memory_budget") -> int | None:
    """Read a size: bytes, or a number with a unit.

    >>> parse_bytes("1.5 GB"), parse_bytes("64MiB"), parse_bytes(None)
    (1500000000, 67108864, None)
    """
    return None if value is None else byte_count(name, value, SENSIBLE.get(name, ANY))
