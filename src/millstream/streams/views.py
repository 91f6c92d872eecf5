"""Some windows of a stream as a store: which unit each of its documents lies in, and the record that it came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from millstream.store import DOCUMENTS, FIRST_DOCUMENT, Origin, Origins, Rows, TokenStore, named, open_body
from millstream.streams.stored_parts import Kept, Stamp


@dataclass(frozen=True)
class View:
    """Some windows as a store, the unit of each of its shards, and the parts as they were."""

    store: TokenStore
    units: list[int]
    kept: Kept
    stamps: dict[int, Stamp]

    @property
    def is_lost(self) -> bool:
        """Whether a part is gone, or was and was made again: it was dropped, perhaps by another process."""
        return any(self.kept.is_lost(unit, stamp) for unit, stamp in self.stamps.items())

    def place_of(self, document: int) -> tuple[int, int]:
        """The unit of a document of the store, and its place in that."""
        firsts = self.store.layout.table[:, FIRST_DOCUMENT]
        shard = int(np.searchsorted(firsts, document, side="right")) - 1
        return self.units[shard], document - int(firsts[shard])

    def document_at(self, unit: int, place: int) -> int | None:
        """The document of the store that lies at a place of a unit."""
        table = self.store.layout.table
        if unit not in self.units or place >= int(table[self.units.index(unit), DOCUMENTS]):
            return None
        return int(table[self.units.index(unit), FIRST_DOCUMENT]) + place


class WindowOrigins(Origins):
    """Document -> the record that it was made from, of a store of windows."""

    def __init__(self, paths: list[str], table: Rows, files: list[str]) -> None:
        super().__init__({})
        self._paths, self._firsts = paths, np.ascontiguousarray(table[:, FIRST_DOCUMENT])
        self._files = files

    def file_of(self, document: int) -> str | None:
        """Name the source file of a document."""
        origin = self.origin_of(document)
        return None if origin is None else origin.file

    def origin_of(self, document: int) -> Origin | None:
        """Give the record that a document was made from."""
        shard = int(np.searchsorted(self._firsts, document, side="right")) - 1
        if not self._paths[shard]:
            return None
        _, words = open_body(Path(self._paths[shard]), "O")
        local = document - int(self._firsts[shard])
        found = words.read(range(3 * local, 3 * local + 3)).astype(np.int64)
        return named(found.tolist(), self._files)
