"""Games come in the order in which they were drawn; each use of a bad one is counted, and few of them are listed."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from games.archives import packed_game, write_tar
from millstream.errors import LoaderError, RecipeError
from millstream.games import open_chunk_source
from millstream.selfplay import Losses, LostUse
from millstream.selfplay.chunk_feed import (
    ChunkFilter,
    ChunkReader,
    ChunkSet,
    ChunkSourceFeed,
    ChunkUnpacker,
    Discovery,
    FrameShuffler,
    TensorGenerator,
    chunk_reader,
)
from millstream.selfplay.chunk_feed.game_stage import Draw
from millstream.stages import Queue


def draws(path: Path, games: list[bytes], uses: int = 2) -> list[Draw]:
    source = open_chunk_source(write_tar(path, [(f"{index}.gz", game) for index, game in enumerate(games)]))
    count = len(games)
    return [Draw(n, n % count, n // count, path.name, n % count, source) for n in range(uses * count)]


def read(given: list[Draw], **settings: Any) -> tuple[ChunkReader, list[tuple[int, int]]]:
    queue: Queue[Draw] = Queue(capacity=1000)
    stage = ChunkReader(queue, **settings)
    stage.start()
    with queue.producer() as producer:
        producer.put_many(given)
    return stage, [(game.chunk, game.use) for game in stage.output()]


@pytest.mark.parametrize("threads", [1, 4])
def test_games_come_in_order_and_each_use_of_a_bad_one_is_counted(tmp_path: Path, threads: int) -> None:
    games = [packed_game(2, mark=mark) for mark in range(6)]
    games[3] = games[3][:30] + bytes(20) + games[3][50:]
    stage, found = read(draws(tmp_path / "a.tar", games), threads=threads)
    assert found == [(chunk, use) for use in range(2) for chunk in (0, 1, 2, 4, 5)]
    assert (stage.counters()["drops"], len(stage.bad)) == ({"damaged gzip": 2}, 1)


def test_a_file_that_is_gone_costs_its_games(tmp_path: Path) -> None:
    given = draws(tmp_path / "a.tar", [packed_game(2)] * 3)
    (tmp_path / "a.tar").unlink()
    lost: list[LostUse] = []
    stage, found = read(given, lost=lost.append)
    assert not found
    assert stage.counters()["drops"] == {"file gone": 6}  # uses of games
    assert [(use.draw, use.game, use.use) for use in lost] == [(n, n % 3, n // 3) for n in range(6)]


def test_a_file_that_goes_away_while_ranks_read_it_is_an_error(tmp_path: Path) -> None:
    given = draws(tmp_path / "a.tar", [packed_game(2)] * 3)
    (tmp_path / "a.tar").unlink()
    reader = ChunkReader(Queue(), shared=True)
    assert not list(reader.process(replace(given[0], source=None)))  # it was gone for all of them
    with pytest.raises(LoaderError, match="other ranks"):
        list(reader.process(given[0]))


def test_what_was_lost_before_is_not_read_though_it_is_there(tmp_path: Path) -> None:
    given = draws(tmp_path / "a.tar", [packed_game(2)] * 3, uses=1)
    losses = Losses([LostUse(0, "a.tar", 0, 0), LostUse(2, "a.tar", 2, 0, came=1)])
    reader = ChunkReader(Queue(), losses=losses)
    games = [game for draw in given for game in reader.process(draw)]
    unpacker = ChunkUnpacker(Queue())
    assert [(each.chunk, len(each.frames)) for game in games for each in unpacker.process(game)] == [(1, 2), (2, 1)]
    assert reader.counters()["drops"] == {"file gone": 1}


def test_bad_games_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_reader, "MOST_LISTED", 10)
    game = packed_game(1)
    given = draws(tmp_path / "a.tar", [game, *[game[:30] + bytes(20) + game[50:]] * 50], uses=1)
    stage, _ = read(given)
    assert sum(stage.counters()["drops"].values()) == 50
    assert len(stage.bad) == 10


def test_a_slow_source_blocks_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one file does not answer, the other threads read on."""
    slow, quick = (draws(tmp_path / name, [packed_game(2)] * 4, uses=8) for name in ("slow.tar", "quick.tar"))
    answers, others, pread = threading.Event(), threading.Barrier(3), os.pread

    def read_slowly(descriptor: int, size: int, offset: int) -> bytes:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == "slow.tar" and not answers.is_set():
            others.wait(10)
            answers.wait(10)
        elif not answers.is_set():
            others.wait(10)  # two of them at the same time, and the slow one has not come back
            answers.set()
        return pread(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", read_slowly)
    given = [replace(draw, number=n) for n, draw in enumerate([slow[0], *quick])]
    _, found = read(given, threads=3)
    assert found == [(draw.chunk, draw.use) for draw in given]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", [ChunkFilter, ChunkUnpacker])
def test_stages_that_take_games_read_them_by_themselves(tmp_path: Path, kind: Any, threads: int) -> None:
    games = [packed_game(2, mark=mark) for mark in range(6)]
    games[3] = games[3][:30] + bytes(20) + games[3][50:]
    given = [*draws(tmp_path / "a.tar", games), Draw(12, 0, 2, "b.tar", 0, None)]
    queue: Queue[Draw] = Queue(capacity=1000)
    stage = kind(queue, threads=threads, **({"rules": None} if kind is ChunkFilter else {}))
    stage.start()
    with queue.producer() as producer:
        producer.put_many(given)
    found = [(game.draw, game.chunk, game.use, game.source, len(game.frames)) for game in stage.output()]
    assert found == [(n, n % 6, n // 6, "a.tar", 2) for n in range(12) if n % 6 != 3]
    assert stage.counters()["drops"] == {"damaged gzip": 2, "gone": 1}
    if kind is ChunkFilter:
        listed = [(each.source, each.index, each.reason) for each in stage.rejections]
        assert sorted(listed) == [("a.tar", 3, "damaged gzip")] * 2 + [("b.tar", 0, "gone")]


def test_positions_are_shuffled_of_games_that_nobody_has_read(tmp_path: Path) -> None:
    given = draws(tmp_path / "a.tar", [packed_game(2, mark=mark) for mark in range(6)])
    made = []
    for stages in ((ChunkReader, FrameShuffler), (FrameShuffler,)):
        queue: Queue[Any] = Queue(capacity=1000)
        last: Any = queue
        for kind in stages:
            last = kind(last)
            last.start()
        with queue.producer() as producer:
            producer.put_many(given)
        made.append([piece.frames.origins.tolist() for piece in last.output()])
    assert made[0] == made[1]


def test_a_stage_that_takes_no_games_is_still_refused_behind_a_chunk_set(tmp_path: Path) -> None:
    found = Discovery(tmp_path, name="found")
    feed = ChunkSourceFeed(found, name="feed")
    drawn = ChunkSet(feed, name="drawn")
    with pytest.raises(RecipeError, match="'tensors' takes Shuffled, but 'drawn' gives Draw"):
        TensorGenerator(drawn, name="tensors")  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="'wanted' takes Game or Draw, but 'feed' gives ChunkSource"):
        ChunkFilter(feed, name="wanted")  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="'drawn' takes ChunkSource, but 'found' gives FileFound"):
        ChunkSet(found, name="drawn")
