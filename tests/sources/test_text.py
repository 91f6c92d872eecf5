"""Plain text: each document once, with the bytes it came from, however the file is cut into chunks."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SourceError
from millstream.sources import Reading, source_file
from sources.samples import PACKERS, Seen, judge, see, write


def read(raw: bytes, name: str = "a.txt", **settings: Any) -> Seen:
    with tempfile.TemporaryDirectory() as folder:
        return see(write(Path(folder, name), raw), **settings)


@given(st.text())
def test_a_file_is_one_document_with_all_its_bytes(text: str) -> None:
    raw = text.encode()
    bare = raw.removeprefix(b"\xef\xbb\xbf")

    seen = read(raw, encoding="utf-8")

    assert [text.encode() for text in seen.texts] == ([bare] if bare else [])
    assert seen.skipped == ({} if bare else {"empty": 1})


lines = st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8")))


@given(lines, st.sampled_from(["\n", "\r\n"]), st.integers(1, 60), st.booleans())
def test_every_line_comes_once_and_its_byte_range_gives_it_back(
    texts: list[str], end: str, chunk_bytes: int, bom: bool
) -> None:
    raw = b"\xef\xbb\xbf" * bom + end.join(texts).encode()
    bare = texts if bom or not texts else [texts[0].removeprefix("\ufeff"), *texts[1:]]

    seen = read(raw, documents="line", chunk_bytes=chunk_bytes, encoding="utf-8")

    assert seen.texts == [line for line in bare if line]
    assert all(raw[record.start : record.stop].decode() == record.text for record in seen.records)
    assert [record.row for record in seen.records] == [place for place, line in enumerate(bare) if line]


@given(
    st.lists(st.text("ab<>", max_size=30), min_size=1),
    st.sampled_from(["<>", "|", "aab", "aa", "<<>", "abab"]),
    st.integers(1, 40),
    st.integers(1, 50),
    st.sampled_from(sorted(PACKERS)),
)
def test_separators_cut_as_str_split_does_whatever_the_chunks_and_long_pieces_are_bad(
    pieces: list[str], separator: str, limit: int, chunk_bytes: int, ending: str
) -> None:
    text = separator.join(pieces)

    seen = read(
        PACKERS[ending](text.encode()),
        "a.txt" + ending,
        separator=separator,
        max_document_bytes=limit,
        chunk_bytes=chunk_bytes,
    )

    expected = text.split(separator)
    short = [(row, piece) for row, piece in enumerate(expected) if 0 < len(piece) <= limit]
    assert [(record.row, record.text) for record in seen.records] == short
    assert [bad.row for bad in seen.bad] == [row for row, piece in enumerate(expected) if len(piece) > limit]
    assert set(seen.reasons) <= {"too long"}
    assert all(text[record.start : record.stop] == record.text for record in seen.records)


def test_a_document_longer_than_many_blocks_is_passed_over_without_being_held() -> None:
    raw = b"a" * (5 << 20) + b"<|end|>" + b"b"
    for name, pack in PACKERS.items():
        seen = read(pack(raw), "a.txt" + name, separator="<|end|>", max_document_bytes=1 << 20, chunk_bytes=1 << 18)

        assert [(record.text, record.start, record.row) for record in seen.records] == [("b", len(raw) - 1, 1)]
        assert seen.reasons == ["too long"]


def test_a_byte_order_mark_belongs_to_no_document() -> None:
    (record,) = read(b"\xef\xbb\xbfhi").records

    assert (record.text, record.start, record.stop) == ("hi", 3, 5)


@pytest.mark.parametrize("separator", [None, "\n\n", "<>", "aab"])
@pytest.mark.parametrize("ending", ["", ".gz", ".zstd"])
def test_chunks_limits_and_blocks_never_change_what_is_read(
    separator: str | None, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(7)
    end = separator or "\r\n"
    text = end.join("".join(random.choices("ab<>\r", k=random.randrange(12))) for _ in range(60))
    file = write(tmp_path / ("a.txt" + ending), PACKERS[ending](text.encode()))
    for limit in (1, 5, 6, 7, 1000):
        settings: dict[str, Any] = {"separator": separator, "max_document_bytes": limit}
        settings["documents"] = "separator" if separator else "line"
        whole = see(file, **settings)
        for block, chunk_bytes in itertools.product((1, 2, 7), (1, 2, 6, 50)):
            monkeypatch.setattr(source_file, "BLOCK_BYTES", block)

            assert see(file, chunk_bytes=chunk_bytes, again=False, **settings) == whole
        monkeypatch.undo()


ENCODINGS = {"utf-16": "auto", "utf-32": "auto", "utf-8-sig": "auto", "latin-1": "latin-1", "utf-16-be": "utf-16-be"}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("ending", PACKERS)
def test_every_encoding_gives_the_same_texts(encoding: str, ending: str) -> None:
    raw = PACKERS[ending]("grün\nweiß\n\nblau".encode(encoding))

    seen = read(raw, "a.txt" + ending, documents="line", encoding=ENCODINGS[encoding], chunk_bytes=5)

    assert seen.texts == ["grün", "weiß", "blau"]
    assert [record.row for record in seen.records] == [0, 1, 3]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("ending", PACKERS)
def test_a_character_may_lie_across_any_two_blocks(encoding: str, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_file, "BLOCK_BYTES", 1)

    seen = read(
        PACKERS[ending]("ß\nüü\n".encode(encoding)), "a.txt" + ending, documents="line", encoding=ENCODINGS[encoding]
    )

    assert seen.texts == ["ß", "üü"]


def test_what_is_not_valid_in_another_encoding_is_a_bad_record_too() -> None:
    raw = b"\xff\xfe" + "one\n".encode("utf-16-le") + b"\x00\xd8" + "\ntwo".encode("utf-16-le")

    (bad,) = read(raw, documents="line").bad
    assert (bad.reason, bad.start) == ("not UTF-16-LE", 4)
    assert "byte 4 of the text, counted as UTF-8" in bad.found
    assert read(raw).reasons == ["not UTF-16-LE"]
    assert read(raw, documents="line", on_invalid="replace").texts == ["one", "\ufffd", "two"]


def test_bytes_that_are_not_utf8_are_named_by_their_offset(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"a.txt:2: not UTF-8: byte 5 of the file is 0xe9") as caught:
        judge(write(tmp_path / "a.txt", b"ok\nab\xe9\n"), documents="line", chunk_bytes=2)

    assert caught.value.hint is not None
    assert "iconv" in caught.value.hint


@pytest.mark.parametrize("documents", ["line", "file"])
def test_bytes_that_are_not_utf8_are_left_out_or_replaced_and_counted(documents: str) -> None:
    raw = b"ok\nab\xe9\nalso ok"

    rejected, replaced = (read(raw, documents=documents, on_invalid=policy) for policy in ("reject", "replace"))

    assert rejected.texts == (["ok", "also ok"] if documents == "line" else [])
    assert rejected.reasons == ["not UTF-8"]
    assert rejected.bad[0].raw == (b"ab\xe9" if documents == "line" else raw)
    assert "\n".join(replaced.texts) == "ok\nab\ufffd\nalso ok"
    assert replaced.repaired == {"invalid bytes replaced": 1}


def test_mixed_encodings_lose_only_the_lines_that_are_not_utf8() -> None:
    raw = "grün\n".encode() + "weiß\n".encode("latin-1") + b"blau\n"

    seen = read(raw, documents="line", chunk_bytes=3)

    assert (seen.texts, [bad.row for bad in seen.bad]) == (["grün", "blau"], [1])


def test_nuls_are_characters_like_others() -> None:
    assert read(b"a\0b\n\0\n", documents="line").texts == ["a\0b", "\0"]


def test_a_file_over_the_limit_says_how_to_cut_it(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"more than 10 bytes; the limit is 10[\s\S]*documents=\"line\""):
        judge(write(tmp_path / "a.txt", b"x" * 100), max_document_bytes=10)


@pytest.mark.parametrize(
    "settings",
    [
        {"documents": "page"},
        {"documents": "separator"},
        {"documents": "line", "separator": "|"},
        {"documents": "separator", "separator": ""},
        {"on_invalid": "ignore"},
        {"chunk_bytes": 0},
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(SourceError, match="="):
        Reading(**settings)  # type: ignore[arg-type]


def test_an_unknown_encoding_is_refused() -> None:
    with pytest.raises(SourceError, match="encoding='klingon' is unknown"):
        read(b"x", encoding="klingon")
