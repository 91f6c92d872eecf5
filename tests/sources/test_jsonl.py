"""JSON lines: each record once, with the byte range of its line; every bad line has a reason."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from laws import examples
from millstream import _core
from millstream.errors import SourceError
from millstream.sources.jsonl import text_of
from sources.samples import PACKERS, Seen, judge, see, write


def read(raw: bytes, name: str = "a.jsonl", **settings: Any) -> Seen:
    with tempfile.TemporaryDirectory() as folder:
        return see(write(Path(folder, name), raw), **settings)


@given(
    st.lists(st.text(st.characters(codec="utf-8"))),
    st.booleans(),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
    st.booleans(),
    st.integers(1, 200),
    st.sampled_from(sorted(PACKERS)),
)
def test_every_record_comes_once_with_its_line_whatever_the_chunks_and_the_compression(
    texts: list[str], ascii_only: bool, end: str, bom: bool, chunk_bytes: int, ending: str
) -> None:
    lines = [json.dumps({"id": place, "text": text}, ensure_ascii=ascii_only) for place, text in enumerate(texts)]
    raw = b"\xef\xbb\xbf" * bom + end.join(lines).encode()

    seen = read(PACKERS[ending](raw), "a.jsonl" + ending, chunk_bytes=chunk_bytes)

    assert seen.texts == [text for text in texts if text]
    assert [json.loads(raw[record.start : record.stop])["text"] for record in seen.records] == seen.texts
    assert [record.row for record in seen.records] == [
        place * (1 + (end == "\n\n")) for place, text in enumerate(texts) if text
    ]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from(["text", "id", "a", 'q"', "t\u00e9xt", "te\\xt"]), values, max_size=5)
layouts = st.sampled_from([{}, {"indent": None, "separators": (",", ":")}, {"separators": (" ,\t", "\r:  ")}])


def expected(line: bytes, field: str = "text") -> str | None:
    """What Python's own parser says: the text, or None if the line has no usable one."""
    seen = text_of(line, 0, field) if _is_utf8(line) else None
    return seen if isinstance(seen, str) else None


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def native_text(line: bytes, field: str = "text") -> str | None:
    """What the native parser vouches for."""
    text, ends, *_ = _core.parse_jsonl(np.frombuffer(line, np.uint8), field)
    return text.tobytes().decode() if len(ends) else None


@examples(300)
@given(objects, layouts, st.booleans(), st.data())
def test_what_the_native_parser_accepts_is_what_python_reads_also_in_damaged_lines(
    value: dict[str, Any], layout: dict[str, Any], ascii_only: bool, data: st.DataObject
) -> None:
    line = bytearray(json.dumps(value, ensure_ascii=ascii_only, **layout).encode().replace(b"\n", b" "))
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, max(0, len(line) - 1)))
        line[place : place + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from(
                [b"", b'"', b"\\", b"{", b"}", b",", b":", b"[", b"]", b"\xff", b"0", b"u12", b"\0", b" ", b"-"]
            )
        )
    said = native_text(bytes(line))

    assert said is None or said == expected(bytes(line))


@examples(200)
@given(st.lists(st.sampled_from(list(b'{}[]",:\\ute1-0.E+nulltrfas \r\xc3\xa9\xed\xa0\x80/bd8D'))), st.booleans())
@example(list(b'"a": 1'), True)
def test_the_native_parser_never_accepts_what_python_refuses(noise: list[int], framed: bool) -> None:
    line = b'{"text": "x", ' + bytes(noise) + b"}" if framed else bytes(noise)
    said = native_text(line)

    assert said is None or said == expected(line)


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=6), st.text(st.characters(codec="utf-8"))))
def test_the_native_parser_accepts_every_ordinary_line(fields: dict[str, str]) -> None:
    line = json.dumps(
        {**{key: value for key, value in fields.items() if key.isascii() and key.isalnum()}, "text": "héllo \\ \n"}
    )

    assert native_text(line.encode()) == "héllo \\ \n"


ODD = {
    b'{"text": "a", "text": "b"}': "b",
    b'{"te\\u0078t": "a"}': "a",
    b'{"text": "a", "n": NaN, "i": -Infinity}': "a",
    b'{"text": "a", "deep": ' + b"[" * 200 + b"]" * 200 + b"}": "a",
    b'{"text": "\\ud83d\\ude00 \\u00e9 \\u20ac \\/ \\b"}': "😀 é € / \b",
    b'  {"text" : "a"}\t\r': "a",
    b'{"n": ' + b"1" * 1000 + b', "text": "a"}': "a",
}


@pytest.mark.parametrize("line", ODD, ids=lambda line: line[:24].decode())
def test_rare_lines_are_read_too_and_in_their_place(line: bytes) -> None:
    seen = read(b'{"text": "before"}\n' + line + b'\n{"text": "after"}')

    assert [(record.row, record.text) for record in seen.records] == [(0, "before"), (1, ODD[line]), (2, "after")]


BAD = {
    b'{"text": "cut off': ("not JSON", "Unterminated string"),
    b"hello": ("not JSON", "it begins 'hello'"),
    b'["text"]': ("not an object", "a JSON array"),
    b'"text"': ("not an object", "a JSON string"),
    b"null": ("not an object", "a JSON null"),
    b"17": ("not an object", "a JSON number"),
    b'{"content": "x", "id": 1}': ("no text in 'text'", "it has 'content', 'id'"),
    b"{}": ("no text in 'text'", "it has no fields"),
    b'{"text": 7}': ("no text in 'text'", "it is a JSON number"),
    b'{"text": null}': ("no text in 'text'", "it is a JSON null"),
    b'{"text": "\\ud800"}': ("not Unicode", "surrogate"),
    b'{"text": "\xff"}': ("not UTF-8", "byte 27 of the file is 0xff"),
    b'{"text": "a\0b"}': ("not JSON", "control character"),
    b"[" * 100_000: ("not JSON", "nested too deep"),
    b'{"text": "' + b"x" * 300_000 + b'"}': ("too long", "the limit is 200,000"),
}


@pytest.mark.parametrize("line", BAD, ids=lambda line: line[:24].decode("ascii", "replace"))
def test_a_bad_line_is_an_error_that_says_where_and_what(line: bytes, tmp_path: Path) -> None:
    reason, found = BAD[line]

    with pytest.raises(SourceError) as caught:
        judge(write(tmp_path / "a.jsonl", b'{"text": "good"}\n' + line + b"\n"), max_document_bytes=200_000)

    assert str(caught.value).startswith(f"a.jsonl:2: {reason}: ")
    assert found in caught.value.message
    assert caught.value.hint is not None


@pytest.mark.parametrize("chunk_bytes", [7, 1000, 1 << 23])
def test_bad_lines_are_left_out_and_reported_when_asked(chunk_bytes: int) -> None:
    raw = b"\n".join([b'{"text": "first"}', *BAD, b'{"text": "last"}'])

    seen = read(raw, max_document_bytes=200_000, chunk_bytes=chunk_bytes)

    assert seen.texts == ["first", "last"]
    assert seen.reasons == [reason for reason, _ in BAD.values()]
    assert [bad.row for bad in seen.bad] == list(range(1, len(BAD) + 1))


def test_blank_lines_and_empty_texts_are_counted_under_every_policy() -> None:
    seen = read(b'\n  \n{"text": ""}\n\x0b\n{"text": "x"}')

    assert seen.records[0].row == 4
    assert seen.skipped == {"blank line": 3, "empty": 1}
    assert not seen.bad


def test_the_text_may_be_in_another_field() -> None:
    assert read(b'{"content": "x"}', text_field="content").texts == ["x"]


def test_a_binary_file_with_this_name_is_bad_line_by_line() -> None:
    seen = read(bytes(range(256)) * 40)

    assert not seen.records
    assert set(seen.reasons) == {"not UTF-8", "not JSON"}


def test_invalid_bytes_can_be_replaced_and_are_counted() -> None:
    seen = read(b'{"text": "a\xffb"}\n{"text": "c"}', on_invalid="replace")

    assert seen.texts == ["a\ufffdb", "c"]
    assert seen.repaired == {"invalid bytes replaced": 1}
