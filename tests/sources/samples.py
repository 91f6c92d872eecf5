"""What the tests of sources share: write a file, read it in some way, and look at what came."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import zstandard

from millstream.parts import BadRecords
from millstream.sources import BadRecord, FoundFile, Reading, Record, discover, raw_record, read_file


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def _zstd_in_frames(data: bytes) -> bytes:
    cut = max(1, len(data) // 5)
    pieces = [data[at : at + cut] for at in range(0, len(data), cut)]
    return b"".join(_zstd(piece) for piece in pieces)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": _zstd,
    ".zstd": _zstd_in_frames,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}
"""How to compress, by ending."""


@dataclass(frozen=True)
class Seen:
    """All that reading one file gave."""

    records: list[Record]
    bad: list[BadRecord]
    skipped: Counter[str]
    repaired: Counter[str]
    rows: int

    @property
    def texts(self) -> list[str]:
        return [record.text for record in self.records]

    @property
    def reasons(self) -> list[str]:
        return [bad.reason for bad in self.bad]


def write(path: Path, data: bytes) -> FoundFile:
    """Write a file and find it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    (file,) = discover(path).files
    return file


def see(file: FoundFile, *, again: bool = True, **settings: Any) -> Seen:
    """Read a file with these settings, and each record `again` by its origin."""
    records: list[Record] = []
    bad: list[BadRecord] = []
    skipped: Counter[str] = Counter()
    repaired: Counter[str] = Counter()
    rows = 0
    reading = Reading(**settings)
    for read in read_file(file, reading):
        records += read.block
        bad += read.bad
        skipped.update(read.skipped)
        repaired.update(read.repaired)
        rows += read.rows
    assert all({type(each.row), type(each.start), type(each.stop)} == {int} for each in bad), "plain values"
    for record in records if again else ():
        assert raw_record(file, reading, record.row, record.start, record.stop), "a record can be had again"
    return Seen(records, bad, skipped, repaired, rows)


def judge(file: FoundFile, **settings: Any) -> None:
    """Read a file under `on_bad="error"`."""
    policy = BadRecords("error")
    for read in read_file(file, Reading(**settings)):
        policy.take(file.name, read.bad)


class Dataset:
    """What a `datasets.Dataset` and an `IterableDataset` show of themselves."""

    column_names = ("id", "text")
    features = None
    builder_name, config_name, split = "wiki", "en", "train"

    def __init__(self, texts: list[str | None]) -> None:
        self.table = pa.table({"id": range(len(texts)), "text": pa.array(texts, pa.string())})

    def with_format(self, kind: str) -> Dataset:
        assert kind == "arrow"
        return self

    def iter(self, batch_size: int) -> Iterator[Any]:
        return iter(self.table.slice(at, 7) for at in range(0, len(self.table), 7))
