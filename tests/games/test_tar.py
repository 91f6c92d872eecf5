"""The index of an archive says what Python's own reader says, and no bytes lead it astray."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from games.archives import packed_game, write_tar
from millstream.games.index_cache import TarIndex, index_tar

_NAMES = st.one_of(
    st.integers(0, 10**6).map(lambda i: f"training.{i}.gz"),
    st.text("aä世/.", min_size=1, max_size=20).map(lambda text: f"{text}x.gz".lstrip("/")),
    st.integers(90, 400).map(lambda size: "n" * size + ".gz"),
    st.integers(90, 300).map(lambda size: "/".join(["folder"] * (size // 7)) + "/raw"),
)
_MEMBERS = st.lists(st.tuples(_NAMES, st.binary(min_size=18, max_size=1500)), max_size=8)


def _index(path: Path) -> TarIndex:
    return _index_and_sizes(path)[0]


def _index_and_sizes(path: Path) -> tuple[TarIndex, list[int]]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        index, inflated = index_tar(descriptor)
        return index, inflated.tolist()
    finally:
        os.close(descriptor)


def _seal(data: bytearray, at: int) -> None:
    """Put the sum of a header into it."""
    data[at + 148 : at + 156] = b"%06o\0 " % (sum(data[at : at + 148]) + 256 + sum(data[at + 156 : at + 512]))


def _is_game(name: str) -> bool:
    return not name.rpartition("/")[2].startswith(".")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(members=_MEMBERS, form=st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
@example(members=[("n" * 300 + ".gz", bytes(30))], form=tarfile.PAX_FORMAT)
@example(members=[("n" * 300 + ".gz", bytes(30)), ("0.gz", bytes(512))], form=tarfile.GNU_FORMAT)
def test_members_lie_where_python_finds_them(tmp_path: Path, members: list[tuple[str, bytes]], form: int) -> None:
    try:
        path = write_tar(tmp_path / "some.tar", members, form)
    except ValueError:
        return  # a name that ustar has no place for
    index = _index(path)
    with tarfile.open(path) as archive:
        expected = [member for member in archive if member.isreg() and _is_game(member.name)]
    assert index.places["offset"].tolist() == [member.offset_data for member in expected]
    assert index.places["size"].tolist() == [member.size for member in expected]
    assert index.places["gzip"].tolist() == [member.name.endswith(".gz") for member in expected]
    assert index.has_end and not index.problem


def test_what_gzip_says_at_the_end_of_a_member_is_its_inflated_size(tmp_path: Path) -> None:
    games = [packed_game(frames) for frames in (1, 3, 200)]
    path = write_tar(tmp_path / "a.tar", ((f"{i}.gz", game) for i, game in enumerate(games)))
    assert _index_and_sizes(path)[1] == [8356, 3 * 8356, 200 * 8356]


def test_what_is_no_game_is_counted_by_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for name, kind, data in [
            ("run", tarfile.DIRTYPE, b""),
            ("run/LICENSE", tarfile.REGTYPE, b"free"),
            ("run/notes.txt", tarfile.REGTYPE, b"text"),
            ("run/._0.gz", tarfile.REGTYPE, bytes(20)),
            ("run/link.gz", tarfile.SYMTYPE, b""),
            ("run/same.gz", tarfile.LNKTYPE, b""),
            ("run/pipe", tarfile.FIFOTYPE, b""),
            ("run/none.gz", tarfile.REGTYPE, b""),
            ("run/0.gz", tarfile.REGTYPE, packed_game(1)),
        ]:
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(data), "0.gz"
            archive.addfile(info, io.BytesIO(data))
    index = _index(path)
    assert len(index.places) == 1
    assert index.skipped == {"not data": 2, "hidden": 1, "link": 2, "device": 1, "too short": 1}


def test_a_regular_member_with_bytes_is_no_folder_whatever_its_name(tmp_path: Path) -> None:
    data = bytearray(write_tar(tmp_path / "a.tar", [("0.gz_", packed_game(1)), ("1", bytes(512))]).read_bytes())
    with tarfile.open(tmp_path / "a.tar") as archive:
        second = archive.getmembers()[1].offset
    data[4:5], data[second : second + 1] = b"/", b"\0"
    _seal(data, 0)
    _seal(data, second)
    (tmp_path / "a.tar").write_bytes(data)
    index = _index(tmp_path / "a.tar")
    assert (index.places["gzip"].tolist(), index.skipped) == ([1], {"no name": 1})


def test_archives_may_lie_one_behind_the_other_and_the_last_one_says_how_it_ends(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("0.gz", packed_game(1))])
    one = path.read_bytes()
    path.write_bytes(one + one)
    both = _index(path)
    assert both.places["offset"].tolist() == [512, len(one) + 512]
    assert (both.problem, both.has_end) == ("", True)
    path.write_bytes(one + one[:530])
    cut = _index(path)
    assert (len(cut.places), cut.problem, cut.problem_at, cut.has_end) == (1, "truncated", len(one), False)


def test_what_lies_behind_the_end_of_an_archive_and_is_none_is_counted(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("0.gz", packed_game(1))])
    path.write_bytes(path.read_bytes() + b"signed by somebody")
    index = _index(path)
    assert (len(index.places), index.skipped, index.problem) == (1, {"behind the end": 1}, "")


def test_headers_for_all_members_are_read(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("0.gz", packed_game(1))], tarfile.PAX_FORMAT, {"comment": "Größe 世界"})
    assert len(_index(path).places) == 1


@pytest.mark.parametrize("cut", [1, 511, 600, 1024])
def test_a_cut_archive_keeps_its_whole_games_and_says_so(tmp_path: Path, cut: int) -> None:
    path = write_tar(tmp_path / "a.tar", [("0.gz", packed_game(1)), ("1.gz", b"g" * 2000)])
    with tarfile.open(path) as archive:
        last = archive.getmembers()[1]
    os.truncate(path, last.offset_data + 2000 - cut)
    index = _index(path)
    assert len(index.places) == 1
    assert (index.problem, index.problem_at, index.has_end) == ("truncated", last.offset, False)


def test_an_archive_without_its_end_is_whole_but_may_still_grow(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("0.gz", b"g" * 512)])
    os.truncate(path, 1024)
    index = _index(path)
    assert (len(index.places), index.problem, index.has_end) == (1, "", False)


def test_a_file_that_is_no_archive_is_damaged_from_its_start(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"not an archive" * 100)
    index = _index(tmp_path / "a.tar")
    assert (len(index.places), index.problem, index.problem_at) == (0, "damaged", 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=6), seal=st.booleans())
def test_no_bytes_lead_out_of_the_file(tmp_path: Path, changes: list[tuple[int, int]], *, seal: bool) -> None:
    path = write_tar(tmp_path / "a.tar", [("n" * 200, bytes(600)), ("ü.gz", bytes(90))], tarfile.PAX_FORMAT)
    data = bytearray(path.read_bytes()[:6144])
    for at, value in changes:
        data[at % len(data)] = value
    if seal:
        for at in range(0, len(data), 512):
            _seal(data, at)
    path.write_bytes(data)
    places = _index(path).places
    assert all(offset + size <= len(data) for offset, size in zip(places["offset"], places["size"], strict=True))


def test_a_descriptor_that_is_none_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        index_tar(-1)
