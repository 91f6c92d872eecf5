"""Plain text: each document once, with the bytes it came from."""

from __future__ import annotations

import io
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SourceError
from millstream.sources import Record, Rejects, TextSource, reading


def read(raw: bytes, source: TextSource, rejects: Rejects | None = None) -> list[Record]:
    return list(source.records(io.BytesIO(raw), "a.txt", Rejects() if rejects is None else rejects))


@given(st.text())
def test_a_file_is_one_document_with_all_its_bytes(text: str) -> None:
    raw = text.encode()

    records = read(raw, TextSource())

    assert [record.text.encode() for record in records] == [raw.removeprefix(b"\xef\xbb\xbf")][: len(records)]
    assert bool(records) == bool(raw.removeprefix(b"\xef\xbb\xbf"))


@given(
    st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8"))),
    st.sampled_from(["\n", "\r\n"]),
)
def test_every_line_comes_once_and_its_byte_range_gives_it_back(lines: list[str], end: str) -> None:
    raw = end.join(lines).encode()
    rejects = Rejects()

    records = read(raw, TextSource("line"), rejects)

    bare = [line if place else line.removeprefix("\ufeff") for place, line in enumerate(lines)]
    assert [record.text for record in records] == [line for line in bare if line]
    assert all(raw[record.start : record.stop].decode() == record.text for record in records)
    assert [record.row for record in records] == [place for place, line in enumerate(bare) if line]


@given(st.lists(st.text("ab", max_size=30), min_size=1), st.sampled_from(["<>", "|", "aab"]), st.integers(1, 40))
def test_separators_cut_as_str_split_does_and_long_pieces_are_counted(
    pieces: list[str], separator: str, limit: int
) -> None:
    text = separator.join(pieces)
    rejects = Rejects("skip")

    records = read(text.encode(), TextSource("separator", separator=separator, max_bytes=limit), rejects)

    expected = [piece for piece in text.split(separator) if piece]
    assert [record.text for record in records] == [piece for piece in expected if len(piece) <= limit]
    assert rejects.counts["too long"] == sum(len(piece) > limit for piece in expected)


def test_a_document_longer_than_many_blocks_is_passed_over_without_being_held() -> None:
    raw = b"a" * (5 << 20) + b"<|end|>" + b"b"
    rejects = Rejects("skip")

    records = read(raw, TextSource("separator", separator="<|end|>", max_bytes=1 << 20), rejects)

    assert [(record.text, record.start, record.row) for record in records] == [("b", len(raw) - 1, 1)]
    assert rejects.counts == {"too long": 1}


def test_a_byte_order_mark_belongs_to_no_document() -> None:
    (record,) = read(b"\xef\xbb\xbfhi", TextSource())

    assert (record.text, record.start, record.stop) == ("hi", 3, 5)


def test_bytes_that_are_not_utf8_are_named_by_their_offset() -> None:
    with pytest.raises(SourceError, match=r"a.txt:2: not UTF-8: byte 5 of the file is 0xe9") as caught:
        read(b"ok\nab\xe9\n", TextSource("line"))

    assert caught.value.hint is not None
    assert "iconv" in caught.value.hint


def test_bytes_that_are_not_utf8_can_be_left_out_and_counted() -> None:
    rejects = Rejects("skip")

    records = read(b"ok\nab\xe9\nalso ok", TextSource("line"), rejects)

    assert [record.text for record in records] == ["ok", "also ok"]
    assert rejects.counts == {"not UTF-8": 1}


def test_a_file_over_the_limit_says_how_to_cut_it() -> None:
    with pytest.raises(SourceError, match=r"more than 10 bytes; the limit is 10[\s\S]*documents=\"line\""):
        read(b"x" * 100, TextSource(max_bytes=10))


@pytest.mark.parametrize(
    ("documents", "separator"), [("page", None), ("separator", None), ("file", "|"), ("separator", "")]
)
def test_settings_that_do_not_fit_are_refused(documents: str, separator: str | None) -> None:
    with pytest.raises(SourceError, match="documents="):
        TextSource(documents, separator=separator)


def test_a_piece_of_many_blocks_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(io.BytesIO):
        reads = 0

        def read(self, size: int | None = -1, /) -> bytes:
            self.reads += 1
            return super().read(size)

    monkeypatch.setattr(reading, "_BLOCK", 64)
    stream = Counting(b"x" * (1 << 20) + b"\nend")
    begun = time.process_time()

    pieces = list(reading.split(stream, b"\n", 1 << 21))

    assert [(start, stop, whole) for _, start, stop, whole in pieces] == [
        (0, 1 << 20, True),
        ((1 << 20) + 1, (1 << 20) + 4, True),
    ]
    assert stream.reads > 10_000
    assert time.process_time() - begun < 2  # searched again with every block it took a hundred times as long
