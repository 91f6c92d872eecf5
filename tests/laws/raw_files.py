"""Small raw files of every shape, written once for all processes: what streams read, and the documents in them."""

from __future__ import annotations

import csv
import gzip
import hashlib
import importlib
import io
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from loaders.conversations import small
from millstream import CharTokenizer
from millstream.sources import decoding
from millstream.storage import compress
from millstream.streams import part_maker

TOKENIZER = CharTokenizer.train(["0123456789 abcdefghijklmnopqrstuvwxyz\n"])
EOS = TOKENIZER.eos_id
BAD = '{"txt": 1}'
KINDS = ("jsonl", "jsonl.gz", "jsonl.zst", "csv", "txt", "parquet")
Files = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class RawFiles:
    """A folder of files (format, words of each document). Every document begins with its own number."""

    files: Files
    lines: bool = True
    """Whether each line of a text file is a document; else all of it is one."""
    bad: int = 0
    """Lines that are no record, among those of the last file."""

    @property
    def reading(self) -> dict[str, Any]:
        """How they are read."""
        return {"documents": "line" if self.lines else "file"}

    @cached_property
    def texts(self) -> dict[str, list[str]]:
        """The documents of each file."""
        number, found = 0, {}
        for place, (kind, words) in enumerate(self.files):
            texts = [f"{number + at}" + " word" * count for at, count in enumerate(words)]
            number += len(texts)
            whole = kind == "txt" and not self.lines
            found[f"{place:02d}.{kind}"] = ["\n".join(texts)] if whole else texts
        return found

    @cached_property
    def documents(self) -> list[tuple[int, ...]]:
        """The tokens of all documents, in the order of the files."""
        return [tuple(tokens_of(text)) for texts in self.texts.values() for text in texts]

    @cached_property
    def path(self) -> Path:
        """The folder: the same one in all processes of a run of tests."""
        name = hashlib.blake2b(repr((self.files, self.lines, self.bad)).encode(), digest_size=8).hexdigest()
        folder = Path(tempfile.gettempdir(), f"millstream-raw-files-{name}")
        if not folder.exists():
            beside = Path(tempfile.mkdtemp(prefix="millstream-raw-"))
            *_, last = self.texts
            for file, texts in self.texts.items():
                (beside / file).write_bytes(_encoded(file.partition(".")[2], texts, self.bad if file == last else 0))
            with suppress(OSError):  # another process was faster
                beside.rename(folder)
        return folder


@contextmanager
def small_steps() -> Iterator[pytest.MonkeyPatch]:
    """Let what is read from its front be read in small blocks, so that small files have many units; and look often."""
    with small() as patch:
        patch.setattr(decoding, "_LEAST_BLOCK", 16)
        patch.setattr(part_maker, "_LOOK_S", 0.002)
        yield patch


def tokens_of(text: str) -> list[int]:
    """The tokens of a document."""
    return [*TOKENIZER.encode(text), EOS]


def _encoded(kind: str, texts: Sequence[str], bad: int) -> bytes:
    if kind == "txt":
        return "\n".join(texts).encode()
    if kind == "csv":
        table = io.StringIO()
        csv.writer(table).writerows([["text"], *([text] for text in texts)])
        return table.getvalue().encode()
    if kind == "parquet":
        pyarrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
        written = io.BytesIO()
        parquet.write_table(pyarrow.table({"text": list(texts)}), written, row_group_size=3)
        return written.getvalue()
    lines = [json.dumps({"text": text}) for text in texts]
    for number in range(bad):
        lines.insert(number * len(lines) // bad, BAD)
    encoded = [(line + "\n").encode() for line in lines]
    if kind == "jsonl.zst":  # some lines a frame
        return b"".join(compress(b"".join(encoded[at : at + 4])) for at in range(0, len(encoded), 4))
    return gzip.compress(b"".join(encoded), mtime=0) if kind == "jsonl.gz" else b"".join(encoded)


kinds = st.sampled_from(KINDS)
words = st.integers(0, 6)
EDGES = ("jsonl", (6, 6))
"""So that there is a row, whatever else there is."""
any_files = st.lists(st.tuples(kinds, st.lists(words, min_size=1, max_size=12).map(tuple)), min_size=1, max_size=6)
small_files = st.lists(st.tuples(kinds, st.tuples(words)), min_size=10, max_size=30)
uneven_files = st.tuples(
    st.tuples(kinds, st.lists(words, min_size=60, max_size=90).map(tuple)), st.tuples(kinds, st.tuples(words))
)
corpora = st.builds(
    lambda files, lines: RawFiles((*files, EDGES), lines),
    st.one_of(any_files, small_files, uneven_files),
    st.booleans(),
)
cuts = st.sampled_from([40, 100, 400, None])
