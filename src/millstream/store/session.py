"""A writer at work on the disk: it fills shards, makes checkpoints, seals.

(tokens, ends) -> files. The order of steps is that of docs/reference/formats.md: data, then the journal that names it;
the rename that makes a version exist comes last.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream import _core
from millstream.errors import StoreError
from millstream.storage import disk, sealed
from millstream.store.column_writers import START_AGAIN, ColumnWriter, PackedWriter, Packing
from millstream.store.frames import BLOCK_BYTES, Frame, Words, index_kind, token_dtype, words_of_an_end, xxh64
from millstream.store.layout import DOCUMENTS, TOKENS, Row, Rows, encode_table, rows_of, total
from millstream.store.manifest import describe
from millstream.store.opening import Opened
from millstream.store.weighted_tokens import WEIGHTED, ids_in
from millstream.store.writer_journal import WriterJournal, WriterPaths, WriterSettings

CHECKPOINT_BYTES = 64 << 20

log = logging.getLogger("millstream.store")


@dataclass
class Start:
    """Where a writer stands when it starts; without a journal it has nothing left to do."""

    journal: WriterJournal | None
    parent: Opened | None
    base: Rows
    sealed: list[Row]
    shard: GrowingShard | None = None
    packing: Packing | None = None


class Session:
    """The shards and the journal of one writer that has work to do."""

    def __init__(self, paths: WriterPaths, settings: WriterSettings, begun: Start, journal: WriterJournal) -> None:
        self._paths, self._settings, self._journal = paths, settings, journal
        self._parent, self._base = begun.parent, begun.base
        self._sealed, self._shard, self.packing = begun.sealed, begun.shard, begun.packing
        self._checkpoint_tokens = CHECKPOINT_BYTES // token_dtype(journal.dtype).itemsize
        self._unsaved = 0  # tokens since the last checkpoint

    def rows(self) -> Rows:
        """Describe everything so far, the open shard as it is."""
        growing: Iterable[Row] = () if self._shard is None else (self._shard.row(),)
        return rows_of([*self._sealed, *growing], after=self._base)

    def write(self, tokens: NDArray[Any], ends: NDArray[np.int64]) -> None:
        """Write documents; a full shard is sealed after the document that filled it."""
        begin = 0
        while len(ends):
            shard = self._open_shard()
            full = self._journal.shard_tokens - shard.tokens
            due = self._checkpoint_tokens - self._unsaved
            taken = int(np.searchsorted(ends, begin + min(full, due))) + 1
            part = ends[:taken]
            stop = int(part[-1])
            shard.extend(tokens[begin:stop], part - begin)
            self._unsaved += stop - begin
            begin, ends = stop, ends[taken:]
            if shard.tokens >= self._journal.shard_tokens:
                self._seal_shard(shard)
            elif self._unsaved >= self._checkpoint_tokens:
                self.save()

    def finish_shard(self) -> None:
        """Seal the open shard, however little it holds."""
        if self._shard is not None:
            self._seal_shard(self._shard)

    def _open_shard(self) -> GrowingShard:
        if self._shard is None:
            number = self._journal.first_file + len(self._sealed)
            self._shard = GrowingShard.begin(self._paths, number, self._journal.dtype, self.packing)
        return self._shard

    def save(self, sealing: str | None = None) -> None:
        """Make a checkpoint: what is in the shards is durable, then the journal says so."""
        row = None if self._shard is None else self._shard.checkpoint()
        tail = "" if self._shard is None else base64.b64encode(self._shard.tail).decode("ascii")
        self._journal = replace(self._journal, open=row, tail=tail, sealing=sealing)
        self._journal.save(self._paths.journal)
        self._unsaved = 0

    def _seal_shard(self, shard: GrowingShard) -> None:
        """Finish the open shard and give its files their names, the tokens last."""
        row = shard.seal()
        self._rename(shard.number, ".idx", ".sum", ".bin")
        self._shard = None
        self._sealed.append(row)
        journal = self._journal
        self._journal = replace(
            journal,
            sealed=len(self._sealed),
            tokens=journal.tokens + row.tokens,
            documents=journal.documents + row.documents,
        )
        self.save()
        log.info("%s: shard %d sealed, %d tokens", self._paths.path, shard.number, row.tokens)

    def _rename(self, number: int, *suffixes: str) -> None:
        for suffix in suffixes:
            disk.rename(self._paths.part(number, suffix), self._paths.final(number, suffix))
        disk.sync_directory(self._paths.directory)

    def seal(self) -> dict[str, Any]:
        """Finish: from the last rename on, the new version is the store. Gives its manifest."""
        manifest = self._seal_file() if self._paths.single else self._seal_version()
        disk.remove(self._paths.journal)
        disk.sync_directory(self._paths.directory)
        return manifest

    def _seal_version(self) -> dict[str, Any]:
        if self._shard is not None:
            self._seal_shard(self._shard)
        if self._parent is not None and not self._sealed:
            return dict(self._parent.manifest)  # nothing was added: the newest version stays the newest
        rows = self.rows()
        manifest = self._describe(rows)
        versions, name = self._paths.path / "versions", manifest["fingerprint"]
        self.save(sealing=name)
        disk.publish(versions / f"{name}.tab", encode_table(rows))
        disk.publish(versions / f"{name}.json", sealed(manifest))
        disk.publish(self._paths.manifest, sealed(manifest))
        log.info("%s: version %s sealed, %d tokens", self._paths.path, name, manifest["tokens"])
        return manifest

    def _seal_file(self) -> dict[str, Any]:
        row = self._open_shard().seal()
        self._shard = None
        self._rename(0, ".idx", ".sum")
        manifest = self._describe(rows_of([row] if row.documents else []))
        disk.publish(self._paths.manifest, sealed(manifest))
        self._rename(0, ".bin")
        log.info("%s: sealed, %d tokens", self._paths.path, row.tokens)
        return manifest

    def _describe(self, rows: Rows) -> dict[str, Any]:
        asked, parent = self._settings, self._parent.manifest if self._parent else None
        return describe(
            self._journal.dtype,
            rows,
            parent=self._journal.parent,
            sources=[*(parent["sources"] if parent else []), *asked.sources],
            tokenizer=asked.tokenizer or (parent and parent["tokenizer"]),
            recipe=asked.recipe if asked.recipe is not None or parent is None else parent["recipe"],
        )

    def release(self) -> None:
        """Give the file descriptors back."""
        if self._shard is not None:
            self._shard.close()
            self._shard = None


def totals(rows: Rows) -> tuple[int, int]:
    """Count documents and tokens of a table."""
    return total(rows, DOCUMENTS), total(rows, TOKENS)


class GrowingShard:
    """Tokens and ends of the open shard."""

    def __init__(self, paths: WriterPaths, number: int, dtype: str, tokens: ColumnWriter, ends: ColumnWriter) -> None:
        self._paths, self.number, self._dtype = paths, number, dtype
        self._tokens, self._ends = tokens, ends
        self._words = words_of_an_end(dtype)
        self.bound = 0

    @classmethod
    def begin(cls, paths: WriterPaths, number: int, dtype: str, packing: Packing | None) -> GrowingShard:
        """Start an empty shard."""
        path, entry = paths.part(number, ".bin"), token_dtype(dtype)
        tokens = ColumnWriter.begin(path, entry) if packing is None else PackedWriter.begin_packed(path, entry, packing)
        ends = ColumnWriter.begin(paths.part(number, ".idx"), np.dtype("<u8"))
        return cls(paths, number, dtype, tokens, ends)

    @classmethod
    def resume(cls, paths: WriterPaths, dtype: str, row: Row, packing: Packing | None, tail: bytes) -> GrowingShard:
        """Resume the shard of the last checkpoint, if it is unchanged."""
        for suffix in (".bin", ".idx"):
            part, final = paths.part(row.file, suffix), paths.final(row.file, suffix)
            if final.exists() and not part.exists():  # killed between two renames
                disk.rename(final, part)
        disk.remove(paths.final(row.file, ".sum"))
        path, entry = paths.part(row.file, ".bin"), token_dtype(dtype)
        tokens = (
            ColumnWriter.resume(path, entry, row.tokens)
            if packing is None
            else PackedWriter.resume_packed(path, entry, packing, row.tokens, tail)
        )
        words = row.documents * words_of_an_end(dtype)
        ends = ColumnWriter.resume(paths.part(row.file, ".idx"), np.dtype("<u8"), words)
        shard = cls(paths, row.file, dtype, tokens, ends)
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
        checks = ColumnWriter.begin(self._paths.part(self.number, ".sum"), np.dtype("<u8"))
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
