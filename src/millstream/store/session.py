"""A writer's work on the disk: fill shards, make checkpoints, seal.

(tokens, ends) -> files. The order of steps is that of docs/reference/formats.md: data, then the journal that names it;
the rename that makes a version exist comes last.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream.storage import disk, sealed
from millstream.store.format import token_dtype
from millstream.store.growing import GrowingShard, Places
from millstream.store.journal import Journal
from millstream.store.manifest import describe
from millstream.store.settings import Settings
from millstream.store.start import Start
from millstream.store.table import DOCUMENTS, TOKENS, Row, Rows, encode_table, rows_of, total

CHECKPOINT_BYTES = 64 << 20

log = logging.getLogger("millstream.store")


class Session:
    """The shards and the journal of one writer that has work to do."""

    def __init__(self, places: Places, settings: Settings, begun: Start, journal: Journal) -> None:
        self._places, self._settings, self._journal = places, settings, journal
        self._parent, self._base = begun.parent, begun.base
        self._sealed, self._shard, self.packing = begun.sealed, begun.shard, begun.packing
        self._checkpoint_tokens = CHECKPOINT_BYTES // token_dtype(journal.dtype).itemsize
        self._unsaved = 0  # tokens since the last checkpoint

    def rows(self) -> Rows:
        """Describe everything so far, the open shard as it is."""
        growing: Iterable[Row] = () if self._shard is None else (self._shard.row(),)
        return rows_of([*self._sealed, *growing], after=self._base)

    def write(self, tokens: NDArray[Any], ends: NDArray[np.int64]) -> None:
        """Write documents; a full shard is sealed behind the document that filled it."""
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
            self._shard = GrowingShard.begin(self._places, number, self._journal.dtype, self.packing)
        return self._shard

    def save(self, sealing: str | None = None) -> None:
        """Make a checkpoint: what is in the shards is durable, then the journal says so."""
        row = None if self._shard is None else self._shard.checkpoint()
        tail = "" if self._shard is None else base64.b64encode(self._shard.tail).decode("ascii")
        self._journal = replace(self._journal, open=row, tail=tail, sealing=sealing)
        self._journal.save(self._places.journal)
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
        log.info("%s: shard %d sealed, %d tokens", self._places.path, shard.number, row.tokens)

    def _rename(self, number: int, *suffixes: str) -> None:
        for suffix in suffixes:
            disk.rename(self._places.part(number, suffix), self._places.final(number, suffix))
        disk.sync_directory(self._places.directory)

    def seal(self) -> dict[str, Any]:
        """Finish: from the last rename on, the new version is the store. Gives its manifest."""
        manifest = self._seal_file() if self._places.single else self._seal_version()
        disk.remove(self._places.journal)
        disk.sync_directory(self._places.directory)
        return manifest

    def _seal_version(self) -> dict[str, Any]:
        if self._shard is not None:
            self._seal_shard(self._shard)
        if self._parent is not None and not self._sealed:
            return dict(self._parent.manifest)  # nothing was added: the newest version stays the newest
        rows = self.rows()
        manifest = self._describe(rows)
        versions, name = self._places.path / "versions", manifest["fingerprint"]
        self.save(sealing=name)
        disk.publish(versions / f"{name}.tab", encode_table(rows))
        disk.publish(versions / f"{name}.json", sealed(manifest))
        disk.publish(self._places.manifest, sealed(manifest))
        log.info("%s: version %s sealed, %d tokens", self._places.path, name, manifest["tokens"])
        return manifest

    def _seal_file(self) -> dict[str, Any]:
        row = self._open_shard().seal()
        self._shard = None
        self._rename(0, ".idx", ".sum")
        manifest = self._describe(rows_of([row] if row.documents else []))
        disk.publish(self._places.manifest, sealed(manifest))
        self._rename(0, ".bin")
        log.info("%s: sealed, %d tokens", self._places.path, row.tokens)
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
