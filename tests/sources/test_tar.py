"""Tar archives: one text per sample, nothing unpacked, no name trusted."""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SourceError
from sources.samples import PACKERS, Seen, judge, see, write


def archive(members: list[tuple[str, bytes]], format: int = tarfile.PAX_FORMAT) -> bytes:
    """Make an archive of these files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def read(raw: bytes, name: str = "a.tar", **settings: Any) -> Seen:
    with tempfile.TemporaryDirectory() as folder:
        return see(write(Path(folder, name), raw), **settings)


@given(
    st.lists(st.text(st.characters(codec="utf-8"), max_size=700), max_size=12),
    st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]),
    st.sampled_from(["", "a folder/", "long" * 60 + "/", "grün/"]),
    st.sampled_from(sorted(PACKERS)),
    st.sampled_from([1, 3000, 1 << 20]),
)
def test_every_text_comes_once_whatever_the_kind_of_archive_the_chunks_and_the_compression(
    texts: list[str], format: int, folder: str, ending: str, chunk_bytes: int
) -> None:
    members = [
        (f"{folder}{place:04}.{kind}", data)
        for place, text in enumerate(texts)
        for kind, data in (("png", b"\x89PNG"), ("txt", text.encode()), ("json", b"{}"))
    ]
    raw = archive(members, format)

    seen = read(PACKERS[ending](raw), "a.tar" + ending, chunk_bytes=chunk_bytes, encoding="utf-8")

    bare = [text.removeprefix("\ufeff") for text in texts]
    assert [(record.row, record.text) for record in seen.records] == [
        (row, text) for row, text in enumerate(bare) if text
    ]
    assert all(
        raw[record.start : record.stop].decode().removeprefix("\ufeff") == record.text for record in seen.records
    )
    assert not seen.bad


def test_a_text_may_lie_in_json_in_markdown_or_in_lines_of_json() -> None:
    lines = b'{"text": "two"}\nbad\n\n{"text": "three"}\n'
    raw = archive(
        [
            ("a.json", json.dumps({"text": "one"}).encode()),
            ("b.jsonl", lines),
            ("c.md", b"# four"),
            ("d.JSON", b'{"no": 1}'),
            ("e.txt", b""),
            ("f.jpg", b"\xff\xd8"),
        ]
    )

    seen = read(raw)

    assert [(record.row, record.text) for record in seen.records] == [
        (0, "one"),
        (1, "two"),
        (4, "three"),
        (5, "# four"),
    ]
    assert [(bad.row, bad.reason) for bad in seen.bad] == [(2, "not JSON"), (6, "no text in 'text'")]
    assert seen.skipped == {"blank line": 1, "empty": 1, "sample without text": 1}
    assert raw[seen.records[1].start : seen.records[1].stop] == b'{"text": "two"}'


def test_a_second_text_of_a_sample_is_counted_and_its_metadata_is_not() -> None:
    raw = archive([("a.txt", b"one"), ("a.json", b"{}"), ("b.0.txt", b"two"), ("b.1.txt", b"lost")])

    seen = read(raw)

    assert seen.texts == ["one", "two"]
    assert seen.skipped == {"second text of a sample": 1}


@pytest.mark.parametrize("name", ["../up.txt", "/etc/passwd.txt", "a/../../b.txt", "a/..", "..\\up.txt"])
def test_a_name_that_leads_out_of_the_archive_is_refused(name: str, tmp_path: Path) -> None:
    file = write(tmp_path / "a.tar", archive([("good.txt", b"good"), (name, b"evil"), ("last.txt", b"last")]))

    with pytest.raises(SourceError, match=r"a.tar:2: unsafe name: .* leads out of the archive"):
        judge(file)
    seen = see(file)
    assert (seen.texts, seen.reasons) == (["good", "last"], ["unsafe name"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar"]


def test_links_folders_and_devices_are_passed_over() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind in (("d", tarfile.DIRTYPE), ("l.txt", tarfile.SYMTYPE), ("p.txt", tarfile.FIFOTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
        info = tarfile.TarInfo("x.txt")
        info.size = 2
        tar.addfile(info, io.BytesIO(b"hi"))

    assert read(out.getvalue()).texts == ["hi"]


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_a_cut_archive_is_one_bad_record_after_the_samples_before_it(ending: str) -> None:
    raw = archive([("a.txt", b"first"), ("b.txt", b"x" * 5000)])

    seen = read(PACKERS[ending](raw[:2000]), "a.tar" + ending)

    assert (seen.texts, seen.reasons) == (["first"], ["truncated"])


@pytest.mark.parametrize("place", [600, 1024 + 130])
def test_a_damaged_header_is_one_bad_record(place: int) -> None:
    raw = bytearray(archive([("a.txt", b"first"), ("b.txt", b"second")]))
    raw[1024 + place % 512] ^= 0x55

    seen = read(bytes(raw))

    assert (seen.texts, seen.reasons) == (["first"], ["damaged"])


def test_a_member_over_the_limit_is_bad_and_the_next_one_is_read() -> None:
    seen = read(archive([("a.txt", b"x" * 5000), ("b.txt", b"ok")]), max_document_bytes=100)

    assert (seen.texts, seen.reasons) == (["ok"], ["too long"])


@given(st.binary(max_size=1500), st.integers(0, 3000))
def test_noise_in_an_archive_never_breaks_the_reader(noise: bytes, place: int) -> None:
    raw = bytearray(archive([("a.txt", b"first"), ("b.txt", b"second" * 100)]))
    raw[place : place + len(noise)] = noise

    seen = read(bytes(raw))

    assert set(seen.reasons) <= {"damaged", "truncated", "not UTF-8", "unsafe name", "too long"}
