"""Small files of every format that a stream reads, and what all pieces of one hold together."""

from __future__ import annotations

import csv
import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from millstream import CharTokenizer
from millstream.parts import Job
from millstream.records import Recipe
from millstream.sources import FoundFile, Reading, RecordFormat, discover, register_format
from millstream.tokens import smallest_dtype
from sources.samples import PACKERS, Dataset

TOKENIZER = CharTokenizer.train(["0123456789 abcdefghijklmnopqrstuvwxyz"])
TEXTS = tuple(f"{number} " + "word " * (number * 7 % 23) for number in range(50))


class Fortunes(RecordFormat):
    """A format of a plugin."""

    name, suffixes = "stream-fortunes", (".fortunes",)

    def records(self, stream: BinaryIO, reading: Reading) -> Iterator[str | bytes]:
        """Texts between lines with a percent sign."""
        held = b""
        while block := stream.read(50):
            *whole, held = (held + block).split(b"%")
            yield from whole
        yield held


register_format(Fortunes)


class SizedDataset(Dataset):
    """A dataset that knows how many rows it has."""

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"text": self.table["text"][row].as_py()}


def _lines(texts: Sequence[str]) -> bytes:
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


def _csv(texts: Sequence[str]) -> bytes:
    table = io.StringIO()
    csv.writer(table).writerows([["text"], *([text] for text in texts)])
    return table.getvalue().encode()


def _tar(texts: Sequence[str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for number, text in enumerate(texts):
            member = tarfile.TarInfo(f"{number:04d}.txt")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


def _arrow(texts: Sequence[str], kind: str) -> bytes:
    table, out = pa.table({"text": list(texts)}), io.BytesIO()
    if kind == "parquet":
        pyarrow.parquet.write_table(table, out, row_group_size=9)
    else:
        new = pyarrow.ipc.new_file if kind == "file" else pyarrow.ipc.new_stream
        with new(out, table.schema) as writer:
            writer.write_table(table, 9)
    return out.getvalue()


def _joined(separator: str) -> Callable[[Sequence[str]], bytes]:
    return lambda texts: separator.join(texts).encode()


KINDS: dict[str, tuple[str, Callable[[Sequence[str]], bytes], dict[str, Any]]] = {
    "lines": ("a.jsonl", _lines, {}),
    "lines behind a byte order mark": ("a.jsonl", lambda texts: b"\xef\xbb\xbf" + _lines(texts), {}),
    "lines in UTF-16": ("a.jsonl", lambda texts: _lines(texts).decode().encode("utf-16"), {}),
    "lines of text": ("a.txt", _joined("\n"), {"documents": "line"}),
    "separated": ("a.txt", _joined("<end>"), {"separator": "<end>"}),
    "separated by what overlaps itself": ("a.txt", _joined("\n\n"), {"separator": "\n\n"}),
    "one text": ("a.txt", _joined(" "), {}),
    "gz": ("a.jsonl.gz", lambda texts: PACKERS[".gz"](_lines(texts)), {}),
    "zst of one frame": ("a.jsonl.zst", lambda texts: PACKERS[".zst"](_lines(texts)), {}),
    "zst of many frames": ("a.jsonl.zst", lambda texts: PACKERS[".zstd"](_lines(texts)), {}),
    "xz": ("a.jsonl.xz", lambda texts: PACKERS[".xz"](_lines(texts)), {}),
    "bz2": ("a.jsonl.bz2", lambda texts: PACKERS[".bz2"](_lines(texts)), {}),
    "csv": ("a.csv", _csv, {}),
    "csv in gz": ("a.csv.gz", lambda texts: PACKERS[".gz"](_csv(texts)), {}),
    "JSON array": ("a.json", lambda texts: json.dumps([{"text": text} for text in texts]).encode(), {}),
    "tar": ("a.tar", _tar, {}),
    "tar.gz": ("a.tar.gz", lambda texts: PACKERS[".gz"](_tar(texts)), {}),
    "parquet": ("a.parquet", lambda texts: _arrow(texts, "parquet"), {}),
    "arrow file": ("a.arrow", lambda texts: _arrow(texts, "file"), {}),
    "arrow stream": ("a.arrows", lambda texts: _arrow(texts, "stream"), {}),
    "plugin": ("a.fortunes", _joined("%"), {}),
}
"""Name, content and reading of a file of texts."""
OBJECTS: dict[str, Callable[[Sequence[str]], Any]] = {
    "rows": lambda texts: [{"text": text} for text in texts],
    "dataset": lambda texts: SizedDataset(list(texts)),
    "endless dataset": lambda texts: Dataset(list(texts)),
}


@cache
def found(kind: str, texts: tuple[str, ...] = TEXTS) -> tuple[FoundFile, dict[str, Any]]:
    """A file, or an object that is read as one, of these texts, and how it is read."""
    if kind in OBJECTS:
        (file,) = discover(OBJECTS[kind](texts)).files
        return file, {}
    name, encoded, how = KINDS[kind]
    path = Path(tempfile.mkdtemp(prefix="millstream-streams-"), name)
    path.write_bytes(encoded(texts))
    (file,) = discover(path).files
    return file, how


def job(reading: Reading, recipe: Any = None) -> Job:
    """How chunks become tokens."""
    return Job(reading, Recipe.of(recipe), TOKENIZER, TOKENIZER.eos_id, smallest_dtype(TOKENIZER))


def sized(sizes: Sequence[tuple[str, int]]) -> list[FoundFile]:
    """Files that have only a name and a size."""
    return [
        FoundFile(Path(name := f"{place:05d}.{kind}"), name, _format(kind), size)
        for place, (kind, size) in enumerate(sizes)
    ]


def _format(kind: str) -> str:
    return {"txt": "text", "tar.gz": "tar"}.get(kind, kind.partition(".")[0])
