"""Tables as text: cut as Python's csv module cuts them, whatever the chunks and the compression."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import examples
from millstream.errors import SourceError
from sources.samples import PACKERS, Seen, judge, see, write


def read(raw: bytes, name: str = "a.csv", **settings: Any) -> Seen:
    with tempfile.TemporaryDirectory() as folder:
        return see(write(Path(folder, name), raw), **settings)


fields = st.text(st.sampled_from('ab,;"\n\r\t é'), max_size=8)


@examples(200)
@given(
    st.lists(st.lists(fields, min_size=2, max_size=4)),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(1, 60),
    st.sampled_from(sorted(PACKERS)),
    st.sampled_from([",", "\t"]),
)
def test_what_the_csv_module_writes_comes_back_row_by_row(
    rows: list[list[str]], end: str, chunk_bytes: int, ending: str, delimiter: str
) -> None:
    out = io.StringIO(newline="")
    # With another line end the module forgets quotes that its own reader needs.
    quoting: Any = csv.QUOTE_MINIMAL if end == "\r\n" else csv.QUOTE_ALL
    csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows(
        [["id", "text", "more", "most"], *rows]
    )
    name = ("a.csv" if delimiter == "," else "a.tsv") + ending

    seen = read(PACKERS[ending](out.getvalue().encode()), name, chunk_bytes=chunk_bytes)

    assert [(record.row, record.text) for record in seen.records] == [
        (place, row[1]) for place, row in enumerate(rows) if row[1]
    ]
    assert not seen.bad
    raw = out.getvalue().encode()
    for record in seen.records:
        (again,) = csv.reader(io.StringIO(raw[record.start : record.stop].decode(), newline=""), delimiter=delimiter)
        assert again == rows[record.row]


@examples(300)
@given(st.text(st.sampled_from('ab,"\n\r'), max_size=40), st.integers(1, 20))
def test_any_text_is_cut_as_the_csv_module_cuts_it(body: str, chunk_bytes: int) -> None:
    rows = list(csv.reader(io.StringIO(body, newline="")))

    seen = read(b"id,text\n" + body.encode(), chunk_bytes=chunk_bytes)

    is_open = "open quote" in seen.reasons
    complete = rows[:-1] if is_open else rows
    assert seen.rows == len(rows)
    assert [(record.row, record.text) for record in seen.records] == [
        (place, row[1]) for place, row in enumerate(complete) if len(row) == 2 and row[1]
    ]
    assert seen.skipped["blank line"] == sum(not row for row in complete)
    assert len(seen.bad) - is_open == sum(len(row) not in (0, 2) for row in complete)


BAD = {
    b"only one\n": ("no text in 'text'", "it has no field number 2"),
    b"1,caf\xe9\n": ("not UTF-8", "0xe9"),
    b'1,"never closed\n': ("open quote", "never closed"),
    b"1," + b"x" * 5000 + b"\n": ("too long", "the limit is 2,000"),
}


@pytest.mark.parametrize("row", BAD, ids=lambda row: row[:12].decode("ascii", "replace"))
def test_a_bad_row_is_an_error_and_the_rows_before_it_are_read(row: bytes, tmp_path: Path) -> None:
    reason, found = BAD[row]
    file = write(tmp_path / "a.csv", b"id,text\n0,good\n" + row)

    with pytest.raises(SourceError, match=rf"a.csv:2: {reason}: ") as caught:
        judge(file, max_document_bytes=2000)
    seen = see(file, max_document_bytes=2000)

    assert found in caught.value.message
    assert (seen.texts, seen.reasons) == (["good"], [reason])


@pytest.mark.parametrize(
    ("header", "found"), [(b"a,b\n", "its first row has 'a', 'b'"), (b"text,text\n", "2 columns have this name")]
)
def test_a_table_without_the_column_is_one_bad_record(header: bytes, found: str, tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", header + b"x,y\n")

    with pytest.raises(SourceError, match=rf"a.csv:1: no text in 'text': {found}"):
        judge(file)
    assert see(file).reasons == ["no text in 'text'"]


def test_an_open_quote_that_swallows_too_much_ends_the_file_with_one_bad_record() -> None:
    seen = read(b"text\ngood\n" + b'"' + b"x\n" * 5000, max_document_bytes=1000, chunk_bytes=100)

    assert (seen.texts, seen.reasons) == (["good"], ["too long"])


def test_invalid_bytes_can_be_replaced() -> None:
    assert read(b'text,id\n"a\xff,""b",1\n', on_invalid="replace").texts == ['a\ufffd,"b']


@pytest.mark.parametrize("raw", [b"", b"text", b"text\n", b"\xef\xbb\xbftext\r\n"])
def test_a_table_without_rows_is_empty(raw: bytes) -> None:
    assert read(raw).rows == 0


def test_a_byte_order_mark_is_not_part_of_the_first_name() -> None:
    (record,) = read(b"\xef\xbb\xbftext\nhi\n").records

    assert (record.text, record.start, record.stop) == ("hi", 8, 10)


@pytest.mark.parametrize("row", ["1,hello, world and more", '1,"hello",x,y'])
def test_a_row_with_more_fields_than_columns_is_bad_and_not_cut(tmp_path: Path, row: str) -> None:
    seen = see(write(tmp_path / "a.csv", f"id,text\n{row}\n2,fine\n3\n".encode()))

    assert seen.texts == ["fine"]
    assert seen.reasons == ["too many fields", "no text in 'text'"]
