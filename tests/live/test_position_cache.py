"""A cache of positions changes nothing but the time that it takes."""

from __future__ import annotations

from typing import Any

import pytest

from live.games import a_game, through
from millstream.games import Game
from millstream.live.chunk_unpacker import ChunkUnpacker
from millstream.live.position_cache import PositionCache
from millstream.live.positions import PositionSampling
from millstream.stages import Queue


def origins(game: Game) -> list[Any]:
    return list(game.frames.origins.tolist())


@pytest.mark.parametrize("sampling", [PositionSampling(), PositionSampling(count=2), PositionSampling(rate=0.5)])
def test_what_a_use_gives_says_which_use_it_is_from_the_cache_too(sampling: PositionSampling) -> None:
    cache, kept, plain = PositionCache(10**7), Queue[Game](), Queue[Game]()
    (now,) = through(ChunkUnpacker(kept, sampling=sampling, cache=cache, prefetch=2), kept, [a_game(3)])
    (alone,) = through(ChunkUnpacker(plain, sampling=sampling), plain, [a_game(3)])
    assert origins(now) == origins(alone)
    assert {use for _, _, use in origins(now)} == {0}
    for use in (1, 2):
        found = cache.take(3, use)
        assert found is not None
        assert set(found[1].origins["use"].tolist()) == {use}
