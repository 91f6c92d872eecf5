"""JSON lines: each record once, with the byte range of its line; every bad line has a reason."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SourceError
from millstream.sources import JsonlSource, Record, Rejects


def read(raw: bytes, rejects: Rejects | None = None, field: str = "text", limit: int = 1 << 20) -> list[Record]:
    source = JsonlSource(field, max_bytes=limit)
    return list(source.records(io.BytesIO(raw), "a.jsonl", Rejects() if rejects is None else rejects))


@given(
    st.lists(st.text(st.characters(codec="utf-8"))),
    st.booleans(),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
    st.booleans(),
)
def test_every_record_comes_once_and_its_byte_range_is_its_line(
    texts: list[str], ascii_only: bool, end: str, bom: bool
) -> None:
    lines = [json.dumps({"id": place, "text": text}, ensure_ascii=ascii_only) for place, text in enumerate(texts)]
    raw = b"\xef\xbb\xbf" * bom + end.join(lines).encode()

    records = read(raw)

    assert [record.text for record in records] == [text for text in texts if text]
    assert [json.loads(raw[record.start : record.stop])["text"] for record in records] == [
        record.text for record in records
    ]


BAD = {
    b'{"text": "cut off': ("not JSON", "Unterminated string"),
    b"hello": ("not JSON", "the line begins 'hello'"),
    b'["text"]': ("not an object", "a JSON array"),
    b'"text"': ("not an object", "a JSON string"),
    b"null": ("not an object", "a JSON null"),
    b'{"content": "x", "id": 1}': ("no text in 'text'", "it has 'content', 'id'"),
    b"{}": ("no text in 'text'", "it has no fields"),
    b'{"text": 7}': ("no text in 'text'", "it is a JSON number"),
    b'{"text": null}': ("no text in 'text'", "it is a JSON null"),
    b'{"text": "\\ud800"}': ("not Unicode", "surrogate"),
    b'{"text": "\xff"}': ("not UTF-8", "byte 27 of the file is 0xff"),
    b"[" * 100_000: ("not JSON", "recursion"),
    b'{"text": "' + b"x" * 300_000 + b'"}': ("too long", "the limit is 200,000"),
}


@pytest.mark.parametrize("line", BAD, ids=lambda line: line[:24].decode("ascii", "replace"))
def test_a_bad_line_is_an_error_that_says_where_and_what(line: bytes) -> None:
    reason, found = BAD[line]

    with pytest.raises(SourceError) as caught:
        read(b'{"text": "good"}\n' + line + b"\n", limit=200_000)

    assert str(caught.value).startswith(f"a.jsonl:2: {reason}: ")
    assert found in caught.value.message
    assert caught.value.hint is not None


def test_bad_lines_are_left_out_and_counted_by_reason_when_asked() -> None:
    rejects = Rejects("skip")
    raw = b"\n".join([b'{"text": "first"}', *BAD, b'{"text": "last"}'])

    records = read(raw, rejects, limit=200_000)

    assert [record.text for record in records] == ["first", "last"]
    assert sum(rejects.counts.values()) == len(BAD)
    assert set(rejects.counts) == {reason for reason, _ in BAD.values()}


def test_quarantine_keeps_the_bad_lines_with_their_origin(tmp_path: Path) -> None:
    kept = tmp_path / "rejected.jsonl"
    with Rejects("quarantine", kept) as rejects:
        read(b'{"text": "good"}\nbad \xff\n{}\n', rejects)

    entries = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [(entry["row"], entry["reason"], entry["raw"]) for entry in entries] == [
        (1, "not UTF-8", "bad \\xff"),
        (2, "no text in 'text'", "{}"),
    ]


def test_blank_lines_and_empty_texts_are_counted_under_every_policy() -> None:
    rejects = Rejects("error")

    assert read(b'\n  \n{"text": ""}\n{"text": "x"}', rejects)[0].row == 3
    assert rejects.counts == {"blank line": 2, "empty": 1}


def test_the_text_may_be_in_another_field() -> None:
    assert [record.text for record in read(b'{"content": "x"}', field="content")] == ["x"]


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(SourceError, match="on_bad='ignore' is unknown"):
        Rejects("ignore")  # type: ignore[arg-type]
