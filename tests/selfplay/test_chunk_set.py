"""The chunk set gives the games of the sources that are there, and holds none that it does not need."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from games.archives import write_games
from millstream.errors import StageError
from millstream.games import open_chunk_source
from millstream.selfplay import Event, FileFound, FileRemoved, HanseSampling, ScanComplete
from millstream.selfplay.admission import ReplayPolicy
from millstream.selfplay.chunk_feed import ChunkSet
from millstream.stages import Queue


@contextmanager
def started(folder: Path, *given: Any, **settings: Any) -> Iterator[tuple[ChunkSet, Any]]:
    """A chunk set, and what puts more into it."""
    queue: Queue[Any] = Queue(capacity=1000)
    stage = ChunkSet(queue, root=str(folder), **{"capacity": 1, **settings})
    stage.start()
    with queue.producer() as producer:
        producer.put_many(list(given))
        yield stage, producer.put
        stage.stop()
    assert stage.join(timeout_s=5)


def source(folder: Path, name: str, games: int = 3) -> Any:
    return open_chunk_source(write_games(folder / name, games))


def names_of(stage: ChunkSet, draws: int) -> list[tuple[str, int]]:
    return [(draw.name, draw.index) for draw in islice(stage.output(), draws)]


def test_one_pass_gives_each_game_once_and_ends(tmp_path: Path) -> None:
    given = [source(tmp_path, "a.tar"), source(tmp_path, "b.tar"), ScanComplete()]
    queue: Queue[Any] = Queue(capacity=10)
    stage = ChunkSet(queue, root=str(tmp_path), endless=False)
    stage.start()
    with queue.producer() as producer:
        producer.put_many(given)
    assert sorted((draw.name, draw.index) for draw in stage.output()) == [
        (n, i) for n in ("a.tar", "b.tar") for i in range(3)
    ]


@pytest.mark.parametrize("scanned", [True, False])
def test_what_is_no_source_is_refused_and_not_waited_for(tmp_path: Path, *, scanned: bool) -> None:
    """A queue does not say what comes: files that were found, but not opened, would be passed over without end."""
    file = FileFound(str(write_games(tmp_path / "a.tar", 1)), 1, 1)
    given = [source(tmp_path, "b.tar"), ScanComplete(), file] if scanned else [file]
    with (
        started(tmp_path, *given) as (stage, _),
        pytest.raises(StageError, match=r"takes chunk sources, not a FileFound\n  hint: let a ChunkSourceFeed"),
    ):
        for _ in stage.output():
            pass


def test_the_ages_of_the_oldest_and_the_newest_file_are_told(tmp_path: Path) -> None:
    for name, age in (("a.tar", 300), ("b.tar", 200), ("c.tar", 100)):
        write_games(tmp_path / name, 2)
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    given = [open_chunk_source(tmp_path / name) for name in ("a.tar", "b.tar", "c.tar")]
    with started(tmp_path, *given, ScanComplete(), num_chunks=4) as (stage, _):
        names_of(stage, 1)
        ages = stage.gauges()
    assert ages["oldest_s"] == pytest.approx(200, abs=30)
    assert ages["newest_s"] == pytest.approx(100, abs=30)
    assert ages["span_s"] == pytest.approx(100, abs=1)


def test_a_file_that_was_replaced_is_read_anew_and_one_that_is_gone_no_more(tmp_path: Path) -> None:
    first, other = source(tmp_path, "a.tar"), source(tmp_path, "b.tar")
    with started(tmp_path, first, other, ScanComplete()) as (stage, put):
        names_of(stage, 6)
        second = source(tmp_path, "a.tar", games=5)
        put(FileRemoved(first.path))
        put(second)
        names_of(stage, 10)
        found = [draw for draw in islice(stage.output(), 20) if draw.name == "a.tar"]
        assert {draw.source for draw in found} == {second}
        assert {draw.index for draw in found} == set(range(5))
        put(FileRemoved(other.path))
        names_of(stage, 10)
        assert {name for name, _ in names_of(stage, 20)} == {"a.tar"}
        assert "b.tar" not in stage._sources


def test_an_empty_window_waits_for_games(tmp_path: Path) -> None:
    with started(tmp_path, ScanComplete()) as (stage, put):
        put(source(tmp_path, "a.tar"))
        assert len(names_of(stage, 3)) == 3


def test_sources_that_left_are_let_go_of_with_their_weights(tmp_path: Path) -> None:
    sources = [source(tmp_path, f"{number:03d}.tar") for number in range(30)]
    told: list[Event] = []
    with started(tmp_path, sources[0], ScanComplete(), num_chunks=6, hanse=HanseSampling(), journal=told.extend) as (
        stage,
        put,
    ):
        for each in sources[1:]:
            put(each)
            names_of(stage, 4)
        assert len(stage._sources) <= 4
        assert not stage._arrived
    assert [event.name for event in told if event.kind == "enter"] == [f"{number:03d}.tar" for number in range(30)]


def test_a_source_that_another_rank_lets_in_is_opened_or_it_is_said_that_it_cannot_be(tmp_path: Path) -> None:
    stamp = source(tmp_path, "a.tar").stamp

    class Told(ReplayPolicy):
        def first(self, window: Any, found: Any) -> list[Event]:
            return [Event(0, "enter", "a.tar", 3, stamp)]

        def needs(self, event: Event) -> bool:
            return True

        def later(self, window: Any, *_: Any, **__: Any) -> list[Event]:
            return [Event(window.draws, "enter", "b.tar", 3)] if window.draws >= 6 else []

    queue: Queue[Any] = Queue()
    stage = ChunkSet(queue, root=str(tmp_path), entrance=Told([]))
    stage.start()
    with queue.producer() as producer:
        producer.put(ScanComplete())
        assert {name for name, _ in names_of(stage, 6)} == {"a.tar"}
        with pytest.raises(StageError, match=r"b\.tar: rank 0 lets it in"):
            names_of(stage, 9)


def test_sources_are_taken_in_while_nobody_takes_games(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a splitter could not serve the other branch, which is trained on."""
    monkeypatch.setattr("millstream.selfplay.chunk_feed.chunk_set.PATIENCE_S", 0.01)
    sources: Queue[Any] = Queue(capacity=1)
    stage = ChunkSet(sources, capacity=1, root=str(tmp_path), outlives_input=True)
    stage.start()
    with sources.producer() as producer:
        for number in range(30):
            producer.put(open_chunk_source(write_games(tmp_path / f"{number:02d}.tar", 1)), timeout_s=60)
            if number == 0:
                producer.put(ScanComplete())
        producer.put(open_chunk_source(write_games(tmp_path / "soon gone.tar", 1)))
        producer.put(FileRemoved(str(tmp_path / "soon gone.tar")))
        deadline = time.monotonic() + 60
        while sources.size and time.monotonic() < deadline:
            time.sleep(0.01)
    assert len(stage._came_meanwhile) <= 30
    drawn = {stage.output().get(60).name for _ in range(60)}
    assert drawn == {f"{number:02d}.tar" for number in range(30)}
    stage.stop()
    assert stage.join(5)


def closing(folder: Path, games: int, **settings: Any) -> ChunkSet:
    """A chunk set whose input has ended."""
    queue: Queue[Any] = Queue(capacity=10)
    stage = ChunkSet(queue, root=str(folder), capacity=1, **settings)
    stage.start()
    with queue.producer() as producer:
        producer.put_many([source(folder, "a.tar", games), ScanComplete()])
    return stage


def test_an_endless_set_ends_with_its_input_and_each_game_was_given(tmp_path: Path) -> None:
    assert sorted(draw.index for draw in closing(tmp_path, 5).output()) == list(range(5))


def test_who_asks_for_it_gets_games_for_ever(tmp_path: Path) -> None:
    stage = closing(tmp_path, 5, outlives_input=True)
    assert len(names_of(stage, 100)) == 100
    stage.stop()
    assert stage.join(5)


def test_an_input_that_ends_in_a_later_pass_ends_it_behind_that_one(tmp_path: Path) -> None:
    with started(tmp_path, source(tmp_path, "a.tar", 4), ScanComplete()) as (stage, _):
        names_of(stage, 6)
        stage.inputs[0].queue.close()
        rest = [draw.index for draw in stage.output()]
    assert (6 + len(rest)) % 4 == 0


def test_it_is_said_once_that_games_are_used_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = source(tmp_path, "a.tar"), ScanComplete()
    with caplog.at_level("INFO", "millstream.selfplay"), started(tmp_path, *given) as (stage, _):
        names_of(stage, 20)
    said = [(each.levelname, each.getMessage()) for each in caplog.records if "pass" in each.getMessage()]
    assert said[0] == ("WARNING", "chunk_set: each of its 3 games was given; pass 1 begins")
    assert {level for level, _ in said[1:]} == {"INFO"}
