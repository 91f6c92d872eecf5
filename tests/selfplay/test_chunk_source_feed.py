"""Every file of games becomes one source, in order; every other one is counted with its reason."""

from __future__ import annotations

import gzip
import os
import tarfile
from pathlib import Path

import pytest

from games.archives import packed_game, write_games, write_tar
from millstream.errors import LoaderError
from millstream.games import ChunkSource
from millstream.selfplay import Arrival, FileFound, FileRemoved, ScanComplete
from millstream.selfplay.chunk_feed import ChunkSourceFeed, Discovery, Sourced
from millstream.selfplay.splitter import Splitter
from millstream.stages import Queue


def _fed(arrivals: list[Arrival], threads: int = 1, **settings: object) -> tuple[list[Sourced], ChunkSourceFeed]:
    queue: Queue[Arrival] = Queue(capacity=len(arrivals) + 1)
    feed = ChunkSourceFeed(queue, threads=threads, capacity=1000, **settings)  # type: ignore[arg-type]
    feed.start()
    with queue.producer() as producer:
        producer.put_many(arrivals)
    return list(feed.output()), feed


def _found(path: Path) -> FileFound:
    return FileFound(str(path), path.stat().st_size, path.stat().st_mtime_ns)


def _told(item: Sourced) -> str:
    return item.name if isinstance(item, ChunkSource) else type(item).__name__


@pytest.mark.parametrize("threads", [1, 4])
def test_sources_leave_in_the_order_of_their_files_and_sentinels_stay_behind_them(tmp_path: Path, threads: int) -> None:
    sizes = (300, 1, 2, 100, 1, 1)
    paths = [write_games(tmp_path / f"{i}.tar", games) for i, games in enumerate(sizes)]
    arrivals: list[Arrival] = [
        *map(_found, paths[:4]),
        ScanComplete(),
        _found(paths[4]),
        FileRemoved("0.tar"),
        _found(paths[5]),
    ]
    sources, _ = _fed(arrivals, threads)
    expected = ["0.tar", "1.tar", "2.tar", "3.tar", "ScanComplete", "4.tar", "FileRemoved", "5.tar"]
    assert [_told(each) for each in sources] == expected
    assert [len(each) for each in sources if isinstance(each, ChunkSource)] == list(sizes)


def test_what_is_no_source_is_counted_and_what_is_broken_is_listed(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.gz", "b.txt", "c.gz", "d.tar", "e.gz", "f.tar")]
    paths[0].write_bytes(packed_game(2))
    paths[1].write_text("no game")
    paths[2].write_bytes(b"damaged, and long enough for gzip")
    paths[3].write_bytes(b"no archive" * 100)
    paths[4].write_bytes(gzip.compress((70).to_bytes(4, "little") + bytes(8000)))
    write_tar(paths[5], [("LICENSE", b"free"), ("0.gz", packed_game(1))])
    sources, feed = _fed([*map(_found, paths), FileFound(str(tmp_path / "gone.tar"), 1, 1)])
    assert [_told(each) for each in sources] == ["a.gz", "f.tar"]
    assert feed.counters()["drops"] == {
        "not data": 1,
        "damaged gzip": 1,
        "damaged": 1,
        "unknown version": 1,
        "gone": 1,
        "member: not data": 1,
    }
    assert [(Path(each.path).name, each.reason) for each in feed.bad] == [
        ("c.gz", "damaged gzip"),
        ("d.tar", "damaged"),
        ("e.gz", "unknown version"),
    ]


@pytest.mark.parametrize(
    ("partial", "expected", "told"),
    [("drop", [], "4 whole games before that dropped, too"), ("keep", [4], "4 whole games before that, for partial")],
)
def test_a_cut_archive_is_dropped_or_keeps_its_whole_games(
    tmp_path: Path, partial: str, expected: list[int], told: str
) -> None:
    path = write_games(tmp_path / "a.tar", 5)
    with tarfile.open(path) as archive:
        os.truncate(path, archive.getmembers()[4].offset_data + 5)
    sources, feed = _fed([_found(path)], partial=partial)
    assert [len(each) for each in sources if isinstance(each, ChunkSource)] == expected
    assert (feed.counters()["drops"], [each.reason for each in feed.bad]) == ({"truncated": 1}, ["truncated"])
    assert told in feed.bad[0].found


def test_indices_are_kept_for_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_games(tmp_path / "a.tar", 5)
    _fed([_found(path)], cache_dir=tmp_path / "cache")
    monkeypatch.setattr("millstream.games.chunk_source.index_tar", None)
    ((source,), _) = _fed([_found(path)], cache_dir=tmp_path / "cache")
    assert isinstance(source, ChunkSource)
    assert len(source.read(4)) == 2


def test_a_folder_becomes_sources_while_files_are_removed_and_read(tmp_path: Path) -> None:
    write_games(tmp_path / "a.tar", 3)
    discovery = Discovery(tmp_path)
    feed = ChunkSourceFeed(discovery)
    discovery.start()
    feed.start()
    output = feed.output()
    first = output.get(10)
    assert isinstance(first, ChunkSource)
    assert output.get(10) == ScanComplete()
    assert len(first.read(0)) == 2
    (tmp_path / "a.tar").unlink()
    assert output.get(10) == FileRemoved(first.path)
    assert len(first.read(1)) == 2
    write_games(tmp_path / "b.tmp", 4).rename(tmp_path / "b.tar")
    second = output.get(10)
    assert isinstance(second, ChunkSource)
    assert (second.name, len(second)) == ("b.tar", 4)
    feed.stop()
    discovery.stop()
    assert feed.join(1)
    assert discovery.join(1)


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(LoaderError, match="partial"):
        ChunkSourceFeed(Queue(), partial="some")  # type: ignore[arg-type]


def test_what_is_told_once_is_never_dropped(tmp_path: Path) -> None:
    """Without the sentinel of the first scan nothing would ever come."""
    found = Discovery(tmp_path)
    with pytest.raises(LoaderError, match="overflow='drop_new' would leave some of it out"):
        Discovery(tmp_path, overflow="drop_new")
    with pytest.raises(LoaderError, match="ChunkSourceFeed tells what happens"):
        ChunkSourceFeed(found, overflow="keep_newest")
    with pytest.raises(LoaderError, match="Splitter tells what happens"):
        Splitter(ChunkSourceFeed(found), weights={"a": 1}, overflow="keep_newest")
