"""The shard a writer is at: tokens and document ends that grow together, then become files of their own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream import _core
from millstream.errors import StoreError
from millstream.storage import disk
from millstream.store.column import START_AGAIN, Column
from millstream.store.format import (
    BLOCK_BYTES,
    Frame,
    Words,
    index_kind,
    shard_name,
    token_dtype,
    words_of_an_end,
    xxh64,
)
from millstream.store.packing import PackedColumn, Packing
from millstream.store.table import Row
from millstream.store.weights import WEIGHTED, ids_in


@dataclass(frozen=True)
class Places:
    """Where a writer puts things: a directory of numbered shards, or one file and its companions."""

    path: Path
    single: bool

    @property
    def directory(self) -> Path:
        """The directory that holds every name."""
        return self.path.parent if self.single else self.path

    @property
    def journal(self) -> Path:
        """The file that says how far the writer came."""
        return self.path.with_suffix(".writing.json") if self.single else self.path / "writing.json"

    @property
    def lock(self) -> Path:
        """The file that the writer holds with flock."""
        return self.path.with_suffix(".writer.lock") if self.single else self.path / "writer.lock"

    @property
    def manifest(self) -> Path:
        """The file that describes the newest version."""
        return self.path.with_suffix(".json") if self.single else self.path / "manifest.json"

    def final(self, number: int, suffix: str) -> Path:
        """Name a shard's finished file."""
        return self.path.with_suffix(suffix) if self.single else self.path / (shard_name(number) + suffix)

    def part(self, number: int, suffix: str) -> Path:
        """Name a shard's unfinished file."""
        whole = self.final(number, suffix)
        return whole.with_name(whole.name + ".part")

    def clear(self, number: int) -> None:
        """Remove what is left of a shard that no checkpoint speaks of."""
        for suffix in (".bin", ".idx", ".sum"):
            disk.remove(self.part(number, suffix))
            disk.remove(self.final(number, suffix))


class GrowingShard:
    """Tokens and ends of the open shard."""

    def __init__(self, places: Places, number: int, dtype: str, tokens: Column, ends: Column) -> None:
        self._places, self.number, self._dtype = places, number, dtype
        self._tokens, self._ends = tokens, ends
        self._words = words_of_an_end(dtype)
        self.bound = 0

    @classmethod
    def begin(cls, places: Places, number: int, dtype: str, packing: Packing | None) -> GrowingShard:
        """Start an empty shard."""
        path, entry = places.part(number, ".bin"), token_dtype(dtype)
        tokens = Column.begin(path, entry) if packing is None else PackedColumn.begin_packed(path, entry, packing)
        ends = Column.begin(places.part(number, ".idx"), np.dtype("<u8"))
        return cls(places, number, dtype, tokens, ends)

    @classmethod
    def resume(cls, places: Places, dtype: str, row: Row, packing: Packing | None, tail: bytes) -> GrowingShard:
        """Go on with the shard of the last checkpoint, if it still is what it was."""
        for suffix in (".bin", ".idx"):
            part, final = places.part(row.file, suffix), places.final(row.file, suffix)
            if final.exists() and not part.exists():  # killed between two renames
                disk.rename(final, part)
        disk.remove(places.final(row.file, ".sum"))
        path, entry = places.part(row.file, ".bin"), token_dtype(dtype)
        tokens = (
            Column.resume(path, entry, row.tokens)
            if packing is None
            else PackedColumn.resume_packed(path, entry, packing, row.tokens, tail)
        )
        words = row.documents * words_of_an_end(dtype)
        ends = Column.resume(places.part(row.file, ".idx"), np.dtype("<u8"), words)
        shard = cls(places, row.file, dtype, tokens, ends)
        shard.bound = row.bound
        if shard.row() != row:
            shard.close()
            raise StoreError(f"{tokens.path}: is not what it was at the last checkpoint", hint=START_AGAIN)
        return shard

    @property
    def tokens(self) -> int:
        """Tokens so far."""
        return self._tokens.count

    @property
    def tail(self) -> bytes:
        """What the next checkpoint does not find in the files."""
        return self._tokens.tail

    def extend(self, tokens: NDArray[Any], ends: NDArray[np.int64]) -> None:
        """Add documents: their tokens, and their ends counted from the first of these tokens."""
        self._ends.extend(self._end_words(tokens, ends))
        if len(tokens):
            ids = ids_in(tokens, self._dtype)
            self.bound = max(self.bound, int(ids.max()) + 1)
        self._tokens.extend(tokens)

    def _end_words(self, tokens: NDArray[Any], ends: NDArray[np.int64]) -> Words:
        """What the index says of documents: where they end and, if tokens have weights, what they weigh."""
        words = np.empty((len(ends), self._words), np.uint64)
        words[:, 0] = ends + self.tokens
        if self._dtype == WEIGHTED:
            weights = np.empty(len(ends), np.uint64)
            _core.weigh_documents(np.ascontiguousarray(tokens), ends, weights)
            words[:, 1] = weights
        return words.reshape(-1)

    def sums(self) -> Words:
        """List the checksums of every block so far."""
        return np.concatenate([self._tokens.hashes(), self._ends.hashes()])

    def row(self) -> Row:
        """Describe the shard as it would be if it ended here."""
        return Row(self.tokens, self._ends.count // self._words, xxh64(self.sums()), self.bound, self.number)

    def checkpoint(self) -> Row:
        """Make everything so far durable, and describe it."""
        for column in (self._tokens, self._ends):
            column.flush()
            disk.sync(column.fd)
        return self.row()

    def seal(self) -> Row:
        """Make the three files whole and durable, still under their `.part` names."""
        row, sums = self.row(), self.sums()
        self._tokens.seal(Frame("T", row.tokens, row.bound, row.tag, row.documents, self._dtype))
        self._ends.seal(Frame(index_kind(self._dtype), row.documents, row.tokens, row.tag))
        checks = Column.begin(self._places.part(self.number, ".sum"), np.dtype("<u8"))
        try:
            checks.extend(sums)
            checks.seal(Frame("C", len(sums), BLOCK_BYTES, row.tag))
        finally:
            checks.close()
        self.close()
        return row

    def close(self) -> None:
        """Give the file descriptors back."""
        self._tokens.close()
        self._ends.close()
