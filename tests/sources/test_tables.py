"""Parquet, Arrow and Hugging Face datasets: a row is a record, however the rows lie in groups and batches."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SourceError
from millstream.sources import Reading, discover, format_named, raw_record, read_file
from sources.samples import PACKERS, Dataset, judge, see, write

texts_or_none = st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=20), max_size=30)
KINDS = [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string()), pa.string_view()]


def write_table(path: Path, table: pa.Table, rows: int) -> None:
    """Write a table in groups of `rows` rows, in the format of the ending."""
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=rows)
    elif path.suffix == ".arrows":
        with pa.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, rows)
    else:
        with pa.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, rows)


@given(
    texts_or_none,
    st.sampled_from(KINDS),
    st.integers(1, 10),
    st.sampled_from([1, 50, 1 << 20]),
    st.sampled_from([".parquet", ".arrow", ".arrows", ".feather"]),
)
def test_every_row_comes_once_whatever_its_type_the_groups_and_the_chunks(
    texts: list[str | None], kind: pa.DataType, rows: int, chunk_bytes: int, ending: str
) -> None:
    column = pa.array(texts, pa.string()).cast(kind)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a" + ending)
        write_table(path, pa.table({"id": range(len(texts)), "text": column}), rows)
        (file,) = discover(path).files

        seen = see(file, chunk_bytes=chunk_bytes)

        for record in seen.records:
            assert raw_record(file, Reading(), record.row, record.start, record.stop).decode() == record.text
    assert [(record.row, record.text) for record in seen.records] == [
        (row, text) for row, text in enumerate(texts) if text
    ]
    assert [bad.row for bad in seen.bad] == [row for row, text in enumerate(texts) if text is None]
    assert seen.skipped["empty"] == sum(text == "" for text in texts)
    assert seen.rows == len(texts)


@pytest.mark.parametrize("ending", [".parquet", ".arrow", ".arrows"])
class TestBad:
    def test_a_table_without_the_column_is_one_bad_record(self, ending: str, tmp_path: Path) -> None:
        for columns, found in [({"content": ["x"]}, "it has 'content'"), ({"text": [7]}, "it is a column of int64")]:
            path = tmp_path / ("a" + ending)
            write_table(path, pa.table(columns), 10)
            (file,) = discover(path).files

            with pytest.raises(SourceError, match=rf"no text in 'text': {found}"):
                judge(file)
            assert see(file).reasons == ["no text in 'text'"]

    def test_a_cut_file_is_one_bad_record_after_what_can_be_read(self, ending: str, tmp_path: Path) -> None:
        path = tmp_path / ("a" + ending)
        write_table(path, pa.table({"text": ["some text"] * 1000}), 100)
        raw = path.read_bytes()

        file = write(path, raw[: len(raw) * 2 // 3])

        with pytest.raises(SourceError, match="damaged: "):
            judge(file)
        seen = see(file, chunk_bytes=1)
        assert seen.reasons == ["damaged"]
        assert set(seen.texts) <= {"some text"}
        assert bool(seen.texts) == (ending == ".arrows")

    def test_an_empty_or_foreign_file_is_one_bad_record(self, ending: str, tmp_path: Path) -> None:
        for raw in (b"", b"this is no table" * 100):
            assert see(write(tmp_path / ("a" + ending), raw)).reasons == ["damaged"]

    def test_long_and_invalid_texts_are_bad_records(self, ending: str, tmp_path: Path) -> None:
        path = tmp_path / ("a" + ending)
        write_table(path, pa.table({"text": pa.array([b"ok", b"caf\xe9", b"x" * 50], pa.binary())}), 10)
        (file,) = discover(path).files

        seen = see(file, max_document_bytes=20)

        assert [(bad.row, bad.reason) for bad in seen.bad] == [(1, "not UTF-8"), (2, "too long")]
        assert "byte 3 of the text is 0xe9" in seen.bad[0].found
        assert see(file, on_invalid="replace").texts == ["ok", "caf\ufffd", "x" * 50]


@pytest.mark.parametrize("ending", [".parquet.gz", ".arrow.zst"])
def test_a_packed_table_says_that_it_has_to_be_unpacked(ending: str, tmp_path: Path) -> None:
    file = write(tmp_path / ("a" + ending), PACKERS["." + ending.rpartition(".")[2]](b"anything"))

    with pytest.raises(SourceError, match=r"it is packed with \w+[\s\S]*unpack it first"):
        judge(file)


def test_a_row_of_a_damaged_file_cannot_be_had_again(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"a.parquet:8: damaged"):
        raw_record(write(tmp_path / "a.parquet", b"this is no table"), Reading(), 7, -1, -1)


def test_damage_inside_a_row_group_costs_that_chunk_only(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"text": [f"text number {number}" for number in range(300)]})
    pyarrow.parquet.write_table(table, path, row_group_size=100, use_dictionary=False, compression="zstd")
    raw = bytearray(path.read_bytes())
    group = pyarrow.parquet.ParquetFile(path).metadata.row_group(1).column(0)
    place = group.data_page_offset + 40
    raw[place : place + 60] = bytes(60)

    seen = see(write(path, bytes(raw)), chunk_bytes=1)

    assert [record.row for record in seen.records] == [*range(100), *range(200, 300)]
    assert seen.reasons == ["damaged"]
    assert "rows 101 to 200 are lost" in seen.bad[0].found


@given(texts_or_none, st.sampled_from([1, 50, 1 << 20]))
def test_a_dataset_object_is_read_like_a_file(texts: list[str | None], chunk_bytes: int) -> None:
    (file,) = discover(Dataset(texts)).files

    seen = see(file, chunk_bytes=chunk_bytes)

    assert file.name == "wiki/en/train"
    assert [(record.row, record.text) for record in seen.records] == [
        (row, text) for row, text in enumerate(texts) if text
    ]


def test_a_chunk_of_a_dataset_takes_its_own_rows_along_and_no_others() -> None:
    (file,) = discover(Dataset(["the mill by the stream " * 9] * 500)).files

    chunks = list(format_named(file.format).chunks(file, Reading(chunk_bytes=1 << 12)))

    assert len(chunks) > 9
    assert max(len(pickle.dumps(chunk)) for chunk in chunks) < 1 << 14


def test_datasets_and_files_may_be_listed_together(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hi")

    found = discover({tmp_path / "a.txt": 1, Dataset(["x"]): 2})

    assert [(file.name, file.weight) for file in found.files] == [("a.txt", 1.0), ("wiki/en/train", 2.0)]


def test_of_several_splits_none_is_read_unless_it_is_named() -> None:
    """What is held out for testing must not be trained on because it came along."""
    splits = {"train": Dataset(["x"]), "test": Dataset(["y"])}

    with pytest.raises(SourceError, match=r"2 splits \('train', 'test'\)(?s:.*)data\['train'\]"):
        discover(splits)
    assert [see(file).texts for file in discover({"train": splits["train"]}).files] == [["x"]]


def test_datasets_in_a_list_are_read_one_after_another_under_names_of_their_own() -> None:
    found = discover([Dataset(["x"]), Dataset(["y"])])

    assert [file.name for file in found.files] == ["wiki/en/train", "wiki/en/train-1"]
    assert [see(file).texts for file in found.files] == [["x"], ["y"]]


def test_a_dataset_without_the_column_is_refused() -> None:
    (file,) = discover(Dataset(["x"])).files

    with pytest.raises(SourceError, match=r"wiki/en/train: no text in 'content': it has 'id', 'text'"):
        list(read_file(file, Reading(text_field="content")))
