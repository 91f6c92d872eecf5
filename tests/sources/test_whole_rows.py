"""Whole rows: whatever the format, the text of a record is its row as a JSON object."""

from __future__ import annotations

import json
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import examples
from millstream.errors import SourceError
from millstream.sources import Reading, discover, raw_record, read_file
from sources.samples import PACKERS, Dataset, see, write
from sources.test_tables import write_table

rows_of_texts = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 99),
            "messages": st.lists(
                st.fixed_dictionaries(
                    {"role": st.sampled_from(["user", "assistant"]), "content": st.text('aé🙂\n"\\')}
                ),
                min_size=1,
                max_size=3,
            ),
        }
    ),
    min_size=1,
    max_size=12,
)


@examples(40)
@given(
    rows_of_texts,
    st.sampled_from(["jsonl", "jsonl.gz", "parquet", "arrow", "arrows", "rows"]),
    st.sampled_from([1, 100, 1 << 20]),
)
def test_every_row_comes_once_with_its_origin_and_can_be_had_again(
    rows: list[dict[str, Any]], ending: str, chunk_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"a.{ending}")
        if ending.startswith("jsonl"):
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
            path.write_bytes(PACKERS[path.suffix if path.suffix != ".jsonl" else ""](lines))
        elif ending != "rows":
            write_table(path, pa.Table.from_pylist(rows), 3)
        (file,) = discover(rows if ending == "rows" else path).files

        seen = see(file, whole_rows=True, chunk_bytes=chunk_bytes)

        assert [(record.row, json.loads(record.text)) for record in seen.records] == list(enumerate(rows))
        for record in seen.records:
            raw = raw_record(file, Reading(whole_rows=True), record.row, record.start, record.stop)
            assert raw.decode() == record.text


def test_a_line_is_delivered_as_it_stands_and_blank_lines_are_counted(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", b'{"a" : 1.50}\r\n\n  \t\n {"b":2}')

    seen = see(file, whole_rows=True)

    assert [(record.text, record.row, record.start, record.stop) for record in seen.records] == [
        ('{"a" : 1.50}', 0, 0, 12),
        (' {"b":2}', 3, 19, 27),
    ]
    assert seen.skipped == {"blank line": 2}
    assert seen.rows == 4


def test_a_line_that_is_not_utf8_is_a_bad_record_or_repaired(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", b'{"a": 1}\n{"a": "caf\xe9"}\n{"a": 2}\n')

    seen = see(file, whole_rows=True)

    assert [(bad.reason, bad.row, bad.start) for bad in seen.bad] == [("not UTF-8", 1, 9)]
    assert [record.row for record in seen.records] == [0, 2]
    assert see(file, whole_rows=True, on_invalid="replace").texts[1] == '{"a": "caf\ufffd"}'


def test_lines_of_utf16_are_converted(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", '{"a": "é"}\n{"a": 2}\n'.encode("utf-16"))

    assert see(file, whole_rows=True).texts == ['{"a": "é"}', '{"a": 2}']


def test_a_line_that_is_too_long_is_a_bad_record(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", b'{"a": 1}\n{"a": "%s"}\n' % (b"x" * 100))

    seen = see(file, whole_rows=True, max_document_bytes=50)

    assert (seen.texts, seen.reasons) == (['{"a": 1}'], ["too long"])


def test_a_packed_file_that_was_cut_keeps_its_first_rows(tmp_path: Path) -> None:
    lines = b"".join(b'{"a": %d}\n' % number for number in range(5000))
    file = write(tmp_path / "a.jsonl.gz", PACKERS[".gz"](lines)[:-40])

    seen = see(file, whole_rows=True)

    assert len(seen.records) > 1000
    assert len(seen.bad) == 1


def test_what_json_has_not_is_written_as_what_it_has(tmp_path: Path) -> None:
    table = pa.table({"bytes": [b"\xff"], "day": [date(2024, 2, 29)], "none": pa.array([None], pa.string())})
    write_table(tmp_path / "a.parquet", table, 1)
    (file,) = discover(tmp_path / "a.parquet").files

    (text,) = see(file, whole_rows=True).texts

    assert json.loads(text) == {"bytes": {"base64": "/w=="}, "day": "2024-02-29", "none": None}


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_a_row_of_a_table_that_is_not_utf8_costs_that_row_only(ending: str, tmp_path: Path) -> None:
    texts = pa.array([b"ok", b"caf\xe9", b"fine"], pa.binary())
    column = pa.Array.from_buffers(pa.string(), 3, texts.buffers())
    write_table(tmp_path / ("a" + ending), pa.table({"text": column}), 3)
    (file,) = discover(tmp_path / ("a" + ending)).files

    seen = see(file, whole_rows=True)

    assert seen.texts == ['{"text": "ok"}', '{"text": "fine"}']
    assert [(bad.reason, bad.row) for bad in seen.bad] == [("unreadable row", 1)]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["x"]), pa.array(["y"])], ["text", "text"])
    write_table(tmp_path / "a.arrow", table, 1)
    (file,) = discover(tmp_path / "a.arrow").files

    assert see(file, whole_rows=True).reasons == ["columns of one name"]


def test_a_damaged_table_is_one_bad_record(tmp_path: Path) -> None:
    assert see(write(tmp_path / "a.parquet", b"this is no table"), whole_rows=True).reasons == ["damaged"]


def test_a_dataset_object_gives_its_rows() -> None:
    (file,) = discover(Dataset(["x", None])).files

    assert see(file, whole_rows=True).texts == ['{"id": 0, "text": "x"}', '{"id": 1, "text": null}']


def test_rows_at_hand_are_read_like_lines_also_where_one_field_is_wanted() -> None:
    (file,) = discover([{"text": "one"}, {"text": ""}, {"text": 7}, {"text": "two", "bytes": b"x"}]).files

    seen = see(file)

    assert [(record.row, record.text) for record in seen.records] == [(0, "one"), (3, "two")]
    assert [(bad.reason, bad.row) for bad in seen.bad] == [("no text in 'text'", 2)]
    assert seen.skipped == {"empty": 1}


def test_a_row_at_hand_that_json_cannot_hold_is_a_bad_record() -> None:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    (file,) = discover([{"a": 1}, circle, {(1, 2): 3}, {"a": "\ud800"}]).files

    seen = see(file, whole_rows=True)

    assert seen.texts == ['{"a": 1}', '{"a": "\\ud800"}']
    assert [(bad.reason, bad.row) for bad in seen.bad] == [("not JSON", 1), ("not JSON", 2)]


def test_lists_of_rows_and_files_may_be_listed_together(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", b'{"a": 1}\n')

    found = discover([tmp_path / "a.jsonl", [{"a": 2}], [{"a": 3}]])

    assert [file.name for file in found.files] == ["a.jsonl", "rows", "rows-2"]
    assert [see(file, whole_rows=True).texts for file in found.files] == [['{"a": 1}'], ['{"a": 2}'], ['{"a": 3}']]


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.tar"])
def test_a_format_without_rows_says_which_ones_have_them(name: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=rf"{name}: a file of format[\s\S]*jsonl, parquet"):
        list(read_file(write(tmp_path / name, b"text\nx\n"), Reading(whole_rows=True)))
