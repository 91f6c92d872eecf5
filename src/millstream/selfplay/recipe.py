"""The stages of a self-play pipeline as recipes name them, with settings that a file can say.

Each has the name of its class and takes what the class takes, except for what is no plain value:

    positions: 0.03125                          a rate below 1, or a count
    weights: {q_weight: 6, policy_scale: 3.5}   as PositionWeights
    hanse: 1                                    an exponent
    rescore: {new_input_format: 3}              as RescoreSettings
    match: {visits: {least: 1}, version: [6, 7]}
    position_cache: 1GB                         of a chunk_unpacker, for the chunk_reader that its games come from
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from millstream.errors import RecipeError
from millstream.games import RescoreSettings, Rules, Wanted
from millstream.selfplay.chunk_feed import (
    PREFETCHED_USES,
    ChunkFilter,
    ChunkReader,
    ChunkRescorer,
    ChunkSet,
    ChunkSourceFeed,
    ChunkUnpacker,
    Discovery,
    FrameShuffler,
    GameStage,
    Partial,
    PositionCache,
    TensorGenerator,
)
from millstream.selfplay.hanse import HanseSampling
from millstream.selfplay.sampling import PositionSampling, PositionWeights
from millstream.selfplay.splitter import Splitter
from millstream.settings import A_SIZE, made_from, size_in_bytes
from millstream.stages import Queue, Stage

Input = Queue[Any]
Settings = dict[str, Any]


def chunk_source_feed(
    input: Input, *, cache_dir: str | None = None, partial: Partial = "drop", **settings: Any
) -> ChunkSourceFeed:
    """Open files of games."""
    return ChunkSourceFeed(input, cache_dir=cache_dir, partial=partial, **settings)


def chunk_set(
    input: Input,
    *,
    num_chunks: int | None = None,
    seed: int = 0,
    endless: bool = True,
    outlives_input: bool = False,
    hanse: float | None = None,
    weights: Settings | None = None,
    root: str = "",
    **settings: Any,
) -> ChunkSet:
    """Say which game is used next."""
    sampling = None if hanse is None else HanseSampling(hanse, _weights(weights))
    return ChunkSet(
        input,
        num_chunks=num_chunks,
        seed=seed,
        endless=endless,
        outlives_input=outlives_input,
        hanse=sampling,
        root=root,
        **settings,
    )


def chunk_reader(input: Input, *, positions: float | None = None, seed: int = 0, **settings: Any) -> ChunkReader:
    """Read games, or of each only some positions, where no stage behind needs the others."""
    sampling = None if positions is None else PositionSampling.of(positions)
    return ChunkReader(input, sampling=sampling, seed=seed, **settings)


def chunk_filter(
    input: Input,
    *,
    rules: Rules | None = "moves",
    match: Settings | None = None,
    keep: Literal["games", "frames"] = "games",
    **settings: Any,
) -> ChunkFilter:
    """Drop games that break a rule or do not match."""
    wanted = {name: _wanted(name, said) for name, said in (match or {}).items()}
    return ChunkFilter(input, rules=rules, match=wanted, keep=keep, **settings)


def chunk_rescorer(
    input: Input, *, rescore: Settings | None = None, rules: Literal["moves", "legal"] = "moves", **settings: Any
) -> ChunkRescorer:
    """Rescore games."""
    return ChunkRescorer(input, rescore=made_from(RescoreSettings, rescore, "rescore"), rules=rules, **settings)


def chunk_unpacker(
    input: Input,
    *,
    positions: float | None = None,
    weights: Settings | None = None,
    position_cache: int | str | None = None,
    seed: int = 0,
    **settings: Any,
) -> ChunkUnpacker:
    """Choose positions of games."""
    sampling = PositionSampling.of(positions, _weights(weights))
    if not position_cache:
        return ChunkUnpacker(input, sampling=sampling, seed=seed, **settings)
    cache = _reader_of(input).cache = PositionCache(_bytes(position_cache))
    return ChunkUnpacker(input, sampling=sampling, seed=seed, cache=cache, prefetch=PREFETCHED_USES, **settings)


def frame_shuffler(input: Input, *, frames: int = 1 << 17, seed: int = 0, **settings: Any) -> FrameShuffler:
    """Shuffle positions of many games."""
    return FrameShuffler(input, frames=frames, seed=seed, **settings)


def stages_of_recipes() -> dict[str, Callable[..., Stage[Any]]]:
    """All of them by name."""
    made = (chunk_source_feed, chunk_set, chunk_reader, chunk_filter, chunk_rescorer, chunk_unpacker, frame_shuffler)
    return {
        **{each.__name__: each for each in made},
        "discovery": Discovery,
        "splitter": Splitter,
        "tensor_generator": TensorGenerator,
    }


def _weights(said: Settings | None) -> PositionWeights:
    return made_from(PositionWeights, said, "weights")


def _bytes(said: int | str) -> int:
    found = size_in_bytes(said) if isinstance(said, str) else said
    if found is None or found < 1:
        raise RecipeError(f"position_cache={said!r} is not a size", hint=A_SIZE)
    return found


def _reader_of(games: Input) -> ChunkReader:
    """Where games come from that go through stages which change them."""
    maker = games.maker
    while isinstance(maker, GameStage):
        maker = maker.inputs[0].maker
    if not isinstance(maker, ChunkReader) or maker.chooses:
        raise RecipeError(
            "position_cache: there is no chunk_reader of whole games to keep positions for",
            hint="let it stand behind a chunk_reader without positions, with nothing but filters and rescorers between",
        )
    return maker


def _wanted(name: str, said: Any) -> Wanted:
    """A list names values, `least` and `most` a range, and anything else is a value.

    >>> _wanted("version", [6, 7]), _wanted("visits", {"least": 1}), _wanted("input_format", 3)
    ({6, 7}, (1, None), 3)
    """
    if isinstance(said, Mapping):
        if not said or said.keys() - {"least", "most"}:
            raise RecipeError(f"match: {name} shall be {dict(said)}", hint="a range has least, most or both")
        return said.get("least"), said.get("most")
    return set(said) if isinstance(said, list) else said
