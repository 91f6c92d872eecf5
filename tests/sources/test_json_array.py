"""An array of objects is read element by element: what it holds comes once, in order, and each element by its place."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chats.chatml import bpe
from millstream import ConversationDataLoader, SourceError
from millstream.sources import FoundFile, Reading, discover, raw_record
from sources.samples import PACKERS, judge, see, write

HARD = st.text(st.sampled_from(list('",[]{}\\\n\t é:')), min_size=1, max_size=30)
ROWS = st.lists(
    st.fixed_dictionaries({"text": HARD}, optional={"more": st.lists(st.dictionaries(HARD, HARD))}), max_size=12
)


def array(path: Path, rows: list[Any], **how: Any) -> FoundFile:
    return write(path, json.dumps(rows, **how).encode())


@given(
    rows=ROWS,
    indent=st.sampled_from([None, 0, 2]),
    chunk_bytes=st.sampled_from([1, 17, 200, 1 << 20]),
    around=st.sampled_from([b"", b"\n", b" \r\n\t "]),
    ending=st.sampled_from(["", ".gz", ".zstd"]),
)
def test_every_element_comes_once_whatever_it_holds_and_however_the_file_is_cut(
    rows: list[dict[str, Any]], indent: int | None, chunk_bytes: int, around: bytes, ending: str
) -> None:
    data = around + json.dumps(rows, indent=indent, ensure_ascii=False).encode() + around
    file = write(Path(tempfile.mkdtemp(), f"a.json{ending}"), PACKERS[ending](data))

    seen = see(file, chunk_bytes=chunk_bytes)
    whole = see(file, chunk_bytes=chunk_bytes, whole_rows=True)

    assert seen.texts == [row["text"] for row in rows]
    assert [json.loads(text) for text in whole.texts] == rows
    assert [record.row for record in seen.records] == list(range(len(rows)))
    assert not seen.bad and not seen.skipped and seen.rows == len(rows)
    for record in whole.records:
        raw = raw_record(file, Reading(whole_rows=True), record.row, record.start, record.stop)
        assert json.loads(raw) == rows[record.row]


def test_a_bad_element_is_named_by_its_number_and_place_and_costs_no_other(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.json", b'[{"text": "one"}, {"text": tru}, 7, {"txt": 1}, {"text": "a\nb"}, {"text": "two"}]'
    )

    seen = see(file)

    assert seen.texts == ["one", "two"]
    assert [(bad.reason, bad.row) for bad in seen.bad] == [
        ("not JSON", 1),
        ("not an object", 2),
        ("no text in 'text'", 3),
        ("not JSON", 4),
    ]
    assert file.path.read_bytes()[seen.bad[0].start : seen.bad[0].stop].strip() == b'{"text": tru}'
    with pytest.raises(SourceError, match=r"a\.json:2: not JSON"):
        judge(file)


@pytest.mark.parametrize("size", range(1, 35))
def test_a_file_that_was_cut_off_ends_with_one_bad_record(tmp_path: Path, size: int) -> None:
    whole = b'[{"text": "one"}, {"text": "two"}]\n'
    file = write(tmp_path / "a.json", whole[:size])

    seen = see(file)

    assert seen.reasons == ([] if size == 34 else ["cut off"])
    assert seen.texts == ["one", "two"][: (size >= 16) + (size >= 33)]
    assert seen.rows == len(seen.texts) + len(seen.bad)


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_what_follows_the_array_is_a_bad_record(tmp_path: Path, chunk_bytes: int) -> None:
    file = write(tmp_path / "a.json", b'[{"text": "one"}]\n[{"text": "two"}]')

    seen = see(file, chunk_bytes=chunk_bytes)

    assert (seen.texts, seen.reasons) == (["one"], ["not one array"])


def test_an_object_per_line_is_read_as_json_lines(tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", b'\n{"text": "one"}\nno json\n{"text": "two"}')

    seen = see(file, chunk_bytes=10)

    assert (seen.texts, seen.reasons, seen.skipped) == (["one", "two"], ["not JSON"], {"blank line": 1})


@pytest.mark.parametrize("data", [b'{\n "text": "one"\n}', b'{"data": [\n{"text": "one"}]}', b"7", b'"text"', b"text"])
def test_anything_else_is_refused_with_what_to_do(tmp_path: Path, data: bytes) -> None:
    file = write(tmp_path / "a.json", data)

    with pytest.raises(SourceError, match=r"neither an array nor JSON lines(?s:.*)convert it to JSON lines"):
        judge(file)


def test_an_element_that_is_too_long_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    file = array(tmp_path / "a.json", [{"text": "one"}, {"text": "x" * 5000}, {"text": "two"}])

    seen = see(file, max_document_bytes=100, chunk_bytes=64)

    assert (seen.texts, seen.reasons) == (["one"], ["too long"])


def test_in_folders_they_are_taken_when_they_are_asked_for(tmp_path: Path) -> None:
    """Most of them are settings: a folder of texts must not fail because of a `config.json` in it."""
    array(tmp_path / "data.json", [{"text": "one"}])
    (tmp_path / "a.txt").write_text("x")

    assert [file.name for file in discover(tmp_path).files] == ["a.txt"]
    assert discover(tmp_path).skipped == {"json, and not named": 1}
    assert [file.name for file in discover(tmp_path, include="*.json").files] == ["data.json"]
    assert [file.name for file in discover(str(tmp_path / "*.json")).files] == ["data.json"]


@pytest.mark.parametrize(
    "row",
    [
        {"instruction": "2+2?", "input": "", "output": "4"},
        {"conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]},
    ],
    ids=["alpaca", "sharegpt"],
)
def test_conversations_are_read_as_they_are_published(tmp_path: Path, row: dict[str, Any]) -> None:
    array(tmp_path / "chats.json", [row] * 5, indent=2)
    how: dict[str, Any] = {"tokenizer": bpe(), "chat_template": "chatml", "cache_dir": tmp_path / "cache"}
    with ConversationDataLoader(
        tmp_path / "chats.json", max_length=64, framework="numpy", shuffle=False, **how
    ) as loader:
        assert len(loader.next().input_ids) == 5
        assert "⟦4" in str(loader.show(0))
        assert "(chats.json:1)" in str(loader.show(0))
