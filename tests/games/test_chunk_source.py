"""Chunks of any file come out as they went in; what cannot be read has a reason."""

from __future__ import annotations

import errno
import gzip
import os
import random
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from games.archives import packed_game, raw_game, varied_game, write_games, write_tar
from games.chunks import play, zipped
from millstream.errors import RecordError, SourceError
from millstream.games import ChunkSource, Descriptors, FrameBlock, IndexCache, chunk_source, open_chunk_source
from millstream.games.chunk_source import FRAME_BYTES
from millstream.games.descriptors import FileIdentity


def _reason(path: Path) -> str:
    with pytest.raises(RecordError) as error:
        open_chunk_source(path)
    assert error.value.where == str(path)
    return error.value.reason


@pytest.mark.parametrize("version", FRAME_BYTES)
def test_frames_are_counted_before_a_chunk_is_read(tmp_path: Path, version: int) -> None:
    games = [packed_game(frames, version) for frames in (3, 1, 70)]
    path = write_tar(tmp_path / "a.tar", ((f"{i}.gz", game) for i, game in enumerate(games)))
    source = open_chunk_source(path)
    assert (source.name, len(source), source.frames.tolist()) == ("a.tar", 3, [3, 1, 70])
    assert source.nbytes == 28 * 3
    source.close()


@pytest.mark.parametrize("name", ["game.gz", "game.bin", "game", "training.17"])
def test_a_file_of_one_game_is_a_source_of_one_chunk(tmp_path: Path, name: str) -> None:
    raw = raw_game(4)
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    source = open_chunk_source(tmp_path / name)
    assert (source.frames.tolist(), source.raw(0)) == ([4], raw)


def test_packed_and_unpacked_games_may_lie_in_one_archive(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("0.gz", packed_game(2, mark=1)), ("1", raw_game(3, mark=2))])
    source = open_chunk_source(path)
    assert source.frames.tolist() == [2, 3]
    assert [source.raw(i) for i in range(2)] == [raw_game(2, mark=1), raw_game(3, mark=2)]


def test_what_holds_no_games_says_why(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(bytes(1024)))
    (tmp_path / "a.pgn").write_text("1. e4")
    (tmp_path / "empty.gz").touch()
    (tmp_path / "short.gz").write_bytes(b"short")
    (tmp_path / "damaged.gz").write_bytes(b"not gzip, but long enough to be")
    (tmp_path / "cut.gz").write_bytes(packed_game(1)[:20])
    (tmp_path / "v70.gz").write_bytes(gzip.compress((70).to_bytes(4, "little") + bytes(8000)))
    (tmp_path / "cut.tar").write_bytes(write_games(tmp_path / "a.tar", 1).read_bytes()[:600])
    expected = {
        "a.tar.gz": "packed archive",
        "a.pgn": "not data",
        "empty.gz": "empty",
        "short.gz": "truncated",
        "damaged.gz": "damaged gzip",
        "cut.gz": "truncated",
        "v70.gz": "unknown version",
        "cut.tar": "truncated",
        "none.gz": "gone",
    }
    assert {name: _reason(tmp_path / name) for name in expected} == expected
    assert _reason(write_tar(tmp_path / "b.tar", [("LICENSE", b"free")])) == "empty"


def test_a_damaged_chunk_is_one_bad_record_among_good_ones(tmp_path: Path) -> None:
    lies = bytearray(packed_game(2))
    lies[-4:] = (3 * 8356).to_bytes(4, "little")
    members = [("0.gz", b"\x1f\x8bdamaged but long"), ("1.gz", packed_game(1)), ("2.gz", bytes(lies))]
    source = open_chunk_source(write_tar(tmp_path / "a.tar", members))
    assert source.frames.tolist()[1:] == [1, 3]
    assert len(source.read(1)) == 1
    for index in (0, 2):
        with pytest.raises(RecordError, match=f"chunk {index}: damaged gzip"):
            source.read(index)


@pytest.mark.parametrize(
    ("name", "bad", "reason"),
    [
        ("log", b"some text of a log\n" * 30, "unknown version"),
        ("gz", b"\x1f\x8bdamaged but long", "damaged gzip"),
        ("gz", packed_game(1)[:20], "truncated"),
    ],
)
def test_members_that_are_no_games_cost_only_themselves_however_many_come_first(
    tmp_path: Path, name: str, bad: bytes, reason: str
) -> None:
    members = [(f"bad{i}.{name}", bad) for i in range(100)] + [(f"{i}.gz", packed_game(3)) for i in range(2)]
    source = open_chunk_source(write_tar(tmp_path / "a.tar", members))
    assert (len(source), source.frames.tolist()[100:]) == (102, [3, 3])
    assert [len(source.read(i)) for i in (100, 101)] == [3, 3]
    for index in (0, 99):
        with pytest.raises(RecordError, match=f"chunk {index}: {reason}"):
            source.read(index)
    assert _reason(write_tar(tmp_path / "b.tar", members[:100])) == reason


def test_a_chunk_that_has_not_the_frames_that_its_size_promised_is_a_bad_record(tmp_path: Path) -> None:
    twice = packed_game(1) + packed_game(2)  # two members: only the last says how long it is
    source = open_chunk_source(write_tar(tmp_path / "a.tar", [("0.gz", packed_game(1)), ("1.gz", twice)]))
    with pytest.raises(RecordError, match="chunk 1: frame count: there are 3 frames"):
        source.read(1)


@pytest.mark.parametrize("zeros", [1, 2, 3, 4, 100])
def test_zeros_behind_a_game_are_no_part_of_it(tmp_path: Path, zeros: int) -> None:
    games = [packed_game(2), packed_game(3) + bytes(zeros), packed_game(4, version=7) + bytes(zeros)]
    source = open_chunk_source(write_tar(tmp_path / "a.tar", ((f"{i}.gz", game) for i, game in enumerate(games))))
    (tmp_path / "a.gz").write_bytes(games[1])
    assert source.frames.tolist() == [2, 3, 4]
    assert open_chunk_source(tmp_path / "a.gz").frames.tolist() == [3]
    for _ in range(2):
        assert [len(source.read(i, np.array([1], np.uint32))) for i in range(3)] == [1, 1, 1]


def test_games_of_several_versions_may_lie_in_one_archive(tmp_path: Path) -> None:
    versions = [6, 7, 6, 3, 5, 4]
    members = [(f"{i}.gz", packed_game(2 + i, version)) for i, version in enumerate(versions)]
    source = open_chunk_source(write_tar(tmp_path / "a.tar", [*members, ("cut.gz", b"\x1f\x8bdamaged but long")]))
    assert source.frames.tolist() == [2, 3, 4, 5, 6, 7, 0]
    assert [int(source.read(i).fields["version"][0]) for i in range(6)] == versions


@pytest.mark.parametrize("name", ["a.tar", "a.gz"])
def test_a_length_that_no_game_has_is_not_believed(tmp_path: Path, name: str) -> None:
    lies = bytearray(packed_game(2))
    lies[-4:] = (500_000 * 8356).to_bytes(4, "little")
    path = tmp_path / name
    write_tar(path, [("0.gz", bytes(lies))]) if name == "a.tar" else path.write_bytes(lies)
    assert open_chunk_source(path).frames.tolist() == [0]


def test_frames_are_those_of_the_game_or_those_asked_for(tmp_path: Path) -> None:
    raw = b"".join(raw_game(1, mark=mark) for mark in range(10))
    (tmp_path / "game.gz").write_bytes(gzip.compress(raw))
    source = open_chunk_source(tmp_path / "game.gz")
    assert source.read(0).fields["rule50_count"].tolist() == list(range(10))
    some = source.read(0, np.array([2, 7], np.uint32))
    assert some.fields["rule50_count"].tolist() == some.origins["ply"].tolist() == [2, 7]


@given(st.sampled_from(sorted(FRAME_BYTES)), st.lists(st.lists(st.integers(0, 11), max_size=5), min_size=1, max_size=6))
@settings(max_examples=20)
def test_a_chunk_that_was_read_before_gives_the_same_frames_by_its_front(version: int, uses: list[list[int]]) -> None:
    path = _written(zipped(play(random.Random(version), version, plies=12)[0]))
    known = open_chunk_source(path)
    for use in uses:
        plies = np.array(use, np.uint32)
        _assert_equal(known.read(0, plies), open_chunk_source(path).read(0, plies))


def test_a_chunk_that_was_read_before_is_not_unpacked_behind_what_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_chunk_source(write_games(tmp_path / "a.tar", 2, frames=50))
    first = np.array([0, 3], np.uint32)
    source.read(0, first)
    monkeypatch.setattr(chunk_source, "inflate", lambda packed: pytest.fail("the whole game was unpacked"))
    assert source.read(0, first).origins["ply"].tolist() == [0, 3]
    with pytest.raises(pytest.fail.Exception):
        source.read(1, first)


def test_a_file_that_is_written_over_is_noticed_by_whoever_knows_its_chunks(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(varied_game(30, seed=1))
    source, plies = open_chunk_source(tmp_path / "a.gz"), np.array([0], np.uint32)
    source.read(0, plies)
    with (tmp_path / "a.gz").open("r+b") as file:
        file.seek(-2000, os.SEEK_END)
        file.write(bytes(100))
    with pytest.raises(RecordError, match="damaged gzip"):
        source.read(0, plies)


def _written(packed: bytes) -> Path:
    path = Path(tempfile.mkdtemp()) / "game.gz"
    path.write_bytes(packed)
    return path


def _assert_equal(found: FrameBlock, wanted: FrameBlock) -> None:
    for column in ("fields", "ends", "moves", "probabilities", "origins"):
        assert getattr(found, column).tobytes() == getattr(wanted, column).tobytes(), column


def test_some_chunks_of_a_source_keep_their_places_in_the_file(tmp_path: Path) -> None:
    source = open_chunk_source(write_games(tmp_path / "a.tar", 10)).select([7, 2])
    assert (len(source), source.numbers.tolist(), source.nbytes) == (2, [7, 2], 56)
    assert [source.read(i).fields["rule50_count"][0] for i in range(2)] == [7, 2]


def test_archives_that_were_written_one_behind_the_other_are_read_as_one(tmp_path: Path) -> None:
    one, two = (write_games(tmp_path / name, games).read_bytes() for name, games in (("1.tar", 3), ("2.tar", 2)))
    (tmp_path / "both.tar").write_bytes(one + two)
    source = open_chunk_source(tmp_path / "both.tar")
    assert [source.read(i).fields["rule50_count"][0] for i in range(len(source))] == [0, 1, 2, 0, 1]
    assert (source.problem, source.skipped) == ("", {})


def test_a_cut_archive_gives_its_whole_games_and_says_so(tmp_path: Path) -> None:
    path = write_games(tmp_path / "a.tar", 10)
    with tarfile.open(path) as archive:
        os.truncate(path, archive.getmembers()[9].offset_data + 10)
    source = open_chunk_source(path)
    assert (len(source), source.problem) == (9, "truncated")


@pytest.mark.parametrize("name", ["a.tar", "a.gz", "a.bin"])
def test_a_copy_has_the_stamp_of_a_file_and_another_one_of_its_size_has_not(tmp_path: Path, name: str) -> None:
    def written(folder: str, mark: int) -> Path:
        path = tmp_path / folder / name
        path.parent.mkdir()
        game = raw_game(2, mark=mark)
        if name == "a.tar":
            return write_tar(path, [("0.bin", raw_game(2)), ("1.bin", game)])
        path.write_bytes(gzip.compress(game, 0) if name == "a.gz" else game)
        return path

    first, copy, other = written("first", 1), written("copy", 1), written("other", 2)
    os.utime(copy, (5, 5))
    stamps = [open_chunk_source(path).stamp for path in (first, copy, other)]
    assert first.stat().st_size == other.stat().st_size
    assert stamps[0] == stamps[1] != stamps[2]


def test_readers_of_one_archive_do_not_disturb_each_other(tmp_path: Path) -> None:
    source = open_chunk_source(write_games(tmp_path / "a.tar", 100))
    with ThreadPoolExecutor(8) as threads:
        chunks = threads.map(lambda i: source.raw(i % 100)[8277], range(1000))
        assert list(chunks) == [i % 100 for i in range(1000)]
    source.close()


def test_hundreds_of_archives_need_few_descriptors(tmp_path: Path) -> None:
    original = write_games(tmp_path / "0.tar", 2).read_bytes()
    for i in range(1, 500):
        (tmp_path / f"{i}.tar").write_bytes(original)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with Descriptors(most=16) as descriptors:
        sources = [open_chunk_source(tmp_path / f"{i}.tar", descriptors) for i in range(500)]
        assert all(source.raw(1) for source in sources)
        assert len(descriptors) == 16
        assert len(os.listdir("/proc/self/fd")) - before <= 16  # noqa: PTH208


def test_a_source_that_was_removed_is_read_while_it_is_open_and_then_gone(tmp_path: Path) -> None:
    path = write_games(tmp_path / "a.tar", 3)
    source = open_chunk_source(path)
    assert source.raw(0)
    path.unlink()
    assert source.raw(1)
    source.close()
    with pytest.raises(RecordError, match=r"a\.tar, chunk 2: gone"):
        source.raw(2)


def test_a_file_that_shrinks_is_a_bad_record(tmp_path: Path) -> None:
    path = write_games(tmp_path / "a.tar", 3)
    source = open_chunk_source(path)
    assert source.raw(0)
    os.truncate(path, 600)
    with pytest.raises(RecordError, match="truncated"):
        source.raw(2)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_machine_without_files_or_memory_is_no_bad_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path = write_games(tmp_path / "a.tar", 3)
    source = open_chunk_source(path)

    def exhausted(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", exhausted)
    with pytest.raises(SourceError, match=os.strerror(code)) as error:
        source.read(1)
    assert not isinstance(error.value, RecordError)
    assert error.value.hint


def test_a_disk_that_fails_costs_the_games_that_lie_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_chunk_source(write_games(tmp_path / "a.tar", 3))

    def fails(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", fails)
    with pytest.raises(RecordError, match="chunk 1: unreadable: Input/output error"):
        source.read(1)


class TestKeptIndex:
    def _opened(self, path: Path) -> ChunkSource:
        return open_chunk_source(path, cache=IndexCache(path.parent / "cache"))

    def test_is_the_same_as_a_fresh_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = write_games(tmp_path / "a.tar", 5)
        fresh = self._opened(path)
        monkeypatch.setattr("millstream.games.chunk_source.index_tar", None)  # nobody may read the headers now
        kept = self._opened(path)
        assert kept.frames.tolist() == fresh.frames.tolist() == [2] * 5
        assert [kept.raw(i) for i in range(5)] == [fresh.raw(i) for i in range(5)]

    def test_of_a_changed_archive_is_made_anew(self, tmp_path: Path) -> None:
        path = write_games(tmp_path / "a.tar", 5)
        self._opened(path)
        write_games(path, 7)
        assert len(self._opened(path)) == 7
        assert len(list((tmp_path / "cache").iterdir())) == 1

    @pytest.mark.parametrize("at", [0, 20, 30, 100, -1])
    def test_that_is_damaged_is_made_anew(self, tmp_path: Path, at: int) -> None:
        path = write_games(tmp_path / "a.tar", 5)
        self._opened(path)
        (kept,) = (tmp_path / "cache").iterdir()
        data = bytearray(kept.read_bytes())
        data[at] ^= 1
        kept.write_bytes(data)
        assert len(self._opened(path)) == 5
        assert kept.read_bytes() != data
        kept.write_bytes(b"")
        assert len(self._opened(path)) == 5

    def test_that_cannot_be_written_costs_only_time(self, tmp_path: Path) -> None:
        (tmp_path / "cache").write_text("a file where the folder should be")
        assert len(self._opened(write_games(tmp_path / "a.tar", 5))) == 5


def test_an_index_that_nobody_asks_for_is_not_kept_for_ever(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    cache = IndexCache(folder)
    for name in ("a.tar", "b.tar"):
        open_chunk_source(write_games(tmp_path / name, 1), cache=cache)
    (folder / "of_others.index").touch()
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    assert cache.get("a.tar", FileIdentity.of(str(tmp_path / "a.tar"))) is not None
    IndexCache(folder)
    assert len(list(folder.iterdir())) == 2
