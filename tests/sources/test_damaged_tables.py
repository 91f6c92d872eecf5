"""Damage in Arrow and Parquet files: an error of ours or a counted skip comes of it, and no end of the process."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest

from millstream.errors import SourceError
from millstream.rollouts import read_rollouts
from millstream.sources import Reading, discover, raw_record
from sources.damaged_tables import ROWS, files
from sources.samples import Dataset, judge, see, write

CASES = 300
PROCESSES = 60 if "MILLSTREAM_FUZZ" in os.environ else 1
GROWING = ("growing words.arrows", "other words.arrows")
LONG = "a text that does not fit into its view"


@pytest.mark.parametrize("number", range(PROCESSES))
def test_mutated_tables_are_read_or_refused_under_every_policy(number: int, tmp_path: Path) -> None:
    """Every type of column, nested too, and rollouts; in a process of its own, which a wrong offset may end."""
    script, tests = Path(__file__).with_name("damaged_tables.py"), Path(__file__).parents[1]
    command = [sys.executable, "-X", "faulthandler", str(script), str(tmp_path), str(CASES * number), str(CASES)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")])}

    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    assert run.returncode == 0, f"case {(tmp_path / 'case').read_text()}: {run.stderr[-3000:]}"
    outcomes = json.loads(run.stdout)
    assert outcomes.keys() == {"read", "left out", "refused"}
    assert sum(outcomes.values()) >= 3 * 4 * CASES


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_a_table_of_any_type_that_is_whole_is_read_whole(tmp_path: Path, chunk_bytes: int) -> None:
    for name, whole in files().items():
        seen = see(write(tmp_path / name, whole), whole_rows=True, chunk_bytes=chunk_bytes)

        assert (seen.bad, len(seen.records)) == ([], 4 if name in GROWING else ROWS), name


def stream(column: pa.Array, name: str = "text") -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema([(name, column.type)])) as writer:
        writer.write_batch(pa.record_batch([column], names=[name]))
    return sink.getvalue()


def with_far_view() -> bytes:
    """A file of one text, whose view names a place a gigabyte past its end."""
    whole = bytearray(stream(pa.array([LONG], pa.string_view())))
    at = whole.index(struct.pack("<i4s", len(LONG), LONG[:4].encode()))
    whole[at + 12 : at + 16] = struct.pack("<i", 1 << 30)
    return bytes(whole)


@pytest.mark.parametrize("whole_rows", [True, False])
def test_a_view_that_points_elsewhere_is_damage(tmp_path: Path, whole_rows: bool) -> None:
    file = write(tmp_path / "a.arrows", with_far_view())

    seen = see(file, whole_rows=whole_rows)

    assert (seen.texts, seen.reasons, seen.rows) == ([], ["damaged"], 1)
    assert "rows 1 to 1 are lost" in seen.bad[0].found
    with pytest.raises(SourceError, match=r"damaged: .*View at slot 0 references range"):
        judge(file, whole_rows=whole_rows)
    with pytest.raises(SourceError, match=r"a.arrows:1: damaged"):
        raw_record(file, Reading(whole_rows=whole_rows), 0, -1, -1)


def test_a_damaged_batch_costs_the_rows_of_its_chunk_and_those_after_it_are_read(tmp_path: Path) -> None:
    column = pa.array([f"{n}: {LONG}" for n in range(9)], pa.string_view())
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, pa.schema([("text", column.type)])) as writer:
        writer.write_table(pa.table({"text": column}), 3)
    whole = bytearray(sink.getvalue())
    at = whole.index(struct.pack("<i4s", len(column[4].as_py()), b"4: a"))
    whole[at + 8 : at + 12] = struct.pack("<i", 99)

    seen = see(write(tmp_path / "a.arrow", bytes(whole)), chunk_bytes=1)

    assert [record.row for record in seen.records] == [0, 1, 2, 6, 7, 8]
    assert seen.reasons == ["damaged"]
    assert "rows 4 to 6 are lost" in seen.bad[0].found


@pytest.mark.parametrize("nested", [False, True])
def test_a_text_that_is_not_utf_8_is_bad_by_itself_and_no_damage_of_its_file(tmp_path: Path, nested: bool) -> None:
    texts = pa.array([b"good", b"caf\xe9", b"fine"]).view(pa.string())
    column = pa.StructArray.from_arrays([texts, pa.nulls(3)], ["said", "nothing"]) if nested else texts
    file = write(tmp_path / "a.arrows", stream(column))

    seen = see(file, whole_rows=nested)

    assert [record.row for record in seen.records] == [0, 2]
    assert [(bad.row, bad.reason) for bad in seen.bad] == [(1, "unreadable row" if nested else "not UTF-8")]
    if not nested:
        assert see(file, on_invalid="replace").texts == ["good", "caf\ufffd", "fine"]


@pytest.mark.parametrize(
    ("column", "rows"),
    [
        (pa.nulls(77_777), 1 << 40),
        (pa.RunEndEncodedArray.from_arrays(pa.array([77_777], pa.int64()), pa.array(["abc"])), 1 << 40),
        (pa.FixedSizeListArray.from_arrays(pa.nulls(77_777), 1), 1 << 40),
    ],
)
def test_rows_that_need_no_bytes_are_not_made_without_limit(tmp_path: Path, column: Any, rows: int) -> None:
    whole = stream(column).replace(struct.pack("<q", 77_777), struct.pack("<q", rows))

    seen = see(write(tmp_path / "a.arrows", whole), whole_rows=True)

    assert (seen.records, seen.reasons) == ([], ["expands too far"])


@pytest.mark.parametrize("whole_rows", [True, False])
def test_many_views_of_one_long_text_are_not_made_without_limit(tmp_path: Path, whole_rows: bool) -> None:
    views = pa.py_buffer(struct.pack("<i4sii", 1 << 20, b"aaaa", 0, 0) * 5000)
    column = pa.Array.from_buffers(pa.string_view(), 5000, [None, views, pa.py_buffer(b"a" * (1 << 20))])

    seen = see(write(tmp_path / "a.arrows", stream(column)), whole_rows=whole_rows, max_expansion=100)

    assert (seen.records, seen.reasons) == ([], ["expands too far"])


def test_words_in_views_are_texts(tmp_path: Path) -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 1]), pa.array(["a", LONG], pa.string_view()))

    seen = see(write(tmp_path / "a.arrows", stream(words)))

    assert seen.texts == [LONG, "a", LONG]
    assert [bad.row for bad in seen.bad] == [2]


def test_a_damaged_dataset_ends_with_one_bad_record() -> None:
    class Damaged(Dataset):
        def __init__(self) -> None:
            self.table = pa.table({"text": pa.ipc.open_stream(with_far_view()).read_next_batch().column(0)})

    (file,) = discover(Damaged()).files
    for whole_rows in (True, False):
        assert see(file, whole_rows=whole_rows).reasons == ["damaged"]


@pytest.mark.parametrize("on_bad", ["error", "skip", "quarantine"])
@pytest.mark.parametrize("ending", [".arrows", ".parquet"])
def test_damaged_rollouts_are_refused_or_left_out(tmp_path: Path, ending: str, on_bad: Any) -> None:
    path = tmp_path / f"a{ending}"
    if ending == ".arrows":
        path.write_bytes(with_far_view())
    else:
        pa.parquet.write_table(
            pa.table({"token_ids": [[5, 6, 7]] * 100}), path, compression="none", use_dictionary=False
        )
        whole = bytearray(path.read_bytes())
        place = pa.parquet.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset
        whole[place + 8 : place + 40] = bytes(32)
        path.write_bytes(whole)

    if on_bad == "error":
        with pytest.raises(SourceError, match="damaged"):
            list(read_rollouts(path, on_bad=on_bad))
    else:
        assert [bad.error.reason for chunk in read_rollouts(path, on_bad=on_bad) for bad in chunk.bad] == ["damaged"]
