"""A cache of positions changes nothing but the time that it takes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from millstream.games import FrameBlock, Game
from millstream.selfplay import PositionSampling
from millstream.selfplay.chunk_feed import ChunkUnpacker, PositionCache
from millstream.selfplay.chunk_feed.chunk_unpacker import AROUND
from millstream.stages import Queue
from selfplay.games import a_game, through
from selfplay.growing_games import add, chunks_of, loader


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


def test_a_full_cache_keeps_the_newest_games_and_no_more_than_it_may() -> None:
    frames = a_game(0).frames.select([0])
    most = 40 * (frames.nbytes + AROUND)
    cache = PositionCache(most)
    for chunk in random.Random(1).sample(range(100), 100):  # draws are shuffled
        for use in (1, 2):
            cache.put(chunk, use, 20, frames)
    assert cache.counters()["bytes"] <= most
    assert {chunk for chunk in range(100) if cache.take(chunk, 1)} == set(range(80, 100))


def test_what_was_taken_is_forgotten() -> None:
    cache = PositionCache(10**9)
    for chunk in range(20_000):
        cache.put(chunk, 1, 0, FrameBlock.empty())
        cache.take(chunk, 1)
    assert len(cache._oldest) <= 1025
    assert cache.counters()["bytes"] == 0


def test_games_that_left_the_window_make_room_in_the_cache_for_those_in_it(tmp_path: Path) -> None:
    for number in range(2):
        add(tmp_path, number, (20,) * 20)
    how = {
        "watch": True,
        "num_chunks": 40,
        "poll_s": 0.02,
        "positions": 1,
        "position_cache": "100KB",
    }  # for the positions of a few games
    with loader(tmp_path, **how) as run:
        run.next()
        for number in range(2, 6):
            total = chunks_of(run)
            add(tmp_path, number, (20,) * 20)
            while chunks_of(run) == total:
                run.next()
        for _ in range(60):
            run.next()
        assert run._run.graph is not None
        window, cache = run._run.graph.chunk_set.window, run._run.graph.reader.cache
        assert cache is not None
        held = [chunk for chunk, _ in cache._held]
    assert held
    assert min(held) >= window.lower
