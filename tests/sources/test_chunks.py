"""Chunks stand by themselves: read in any order, by any thread, in another process, they give the same records."""

from __future__ import annotations

import csv
import io
import json
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest

from millstream.sources import (
    Chunk,
    ChunkRead,
    FoundFile,
    Reading,
    Record,
    format_named,
    read_file,
    source_file,
)
from millstream.sources.chunk import numbered
from sources.samples import PACKERS, write
from sources.test_tar import archive

TEXTS = [f"document {number}: grün " + "x" * (number % 97) for number in range(400)]


def as_csv() -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out).writerows([["id", "text"], *enumerate(TEXTS)])
    return out.getvalue().encode()


def as_parquet() -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(pa.table({"text": TEXTS}), out, row_group_size=50)
    return out.getvalue()


def as_arrow() -> bytes:
    out = io.BytesIO()
    table = pa.table({"text": TEXTS})
    with pyarrow.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table, 50)
    return out.getvalue()


FILES: dict[str, Callable[[], bytes]] = {
    "a.txt": lambda: "\n".join(TEXTS).encode(),
    "a.jsonl": lambda: "\n".join(json.dumps({"text": text}) for text in TEXTS).encode(),
    "a.json": lambda: json.dumps([{"text": text} for text in TEXTS], indent=2, ensure_ascii=False).encode(),
    "a.csv": as_csv,
    "a.tar": lambda: archive([(f"{number:05}.txt", text.encode()) for number, text in enumerate(TEXTS)]),
}
CASES = [(name, ending) for name in FILES for ending in PACKERS] + [("a.parquet", ""), ("a.arrow", "")]
READING = Reading(documents="line", chunk_bytes=3000)


@pytest.fixture(params=CASES, ids="".join)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> FoundFile:
    name, ending = request.param
    make = FILES.get(name, as_parquet if name == "a.parquet" else as_arrow)
    return write(tmp_path / (name + ending), PACKERS[ending](make()))


def records(reads: list[ChunkRead]) -> list[Record]:
    return [record for read in numbered(iter(reads)) for record in read.block]


def test_chunks_may_be_read_by_any_thread_in_any_order_and_in_another_process(file: FoundFile) -> None:
    format = format_named(file.format)
    chunks = list(format.chunks(file, READING))
    expected = [record for read in read_file(file, READING) for record in read.block]

    def read(chunk: Chunk) -> ChunkRead:
        return format.read(pickle.loads(pickle.dumps(chunk)), pickle.loads(pickle.dumps(file)), READING)

    with ThreadPoolExecutor(4) as pool:
        backwards = list(pool.map(read, chunks[::-1]))

    assert len(chunks) > 3
    assert [record.text for record in expected] == TEXTS
    assert records(backwards[::-1]) == expected


def test_chunks_follow_one_another_without_gaps(file: FoundFile) -> None:
    chunks = list(format_named(file.format).chunks(file, READING))

    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    assert all(first.stop == second.start for first, second in pairwise(chunks))


def test_chunks_do_not_depend_on_the_blocks_that_a_file_is_read_in(
    file: FoundFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    format = format_named(file.format)
    chunks = [(chunk.start, chunk.stop) for chunk in format.chunks(file, READING)]
    monkeypatch.setattr(source_file, "BLOCK_BYTES", 11)

    assert [(chunk.start, chunk.stop) for chunk in format.chunks(file, READING)] == chunks
