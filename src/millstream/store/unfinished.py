"""A store that is still being made: what its writer has sealed so far, for a reader that follows it."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from millstream.store.compressed_blocks import BLOCK_TOKENS
from millstream.store.frames import FRAME_BYTES
from millstream.store.layout import Layout, rows_of
from millstream.store.manifest import describe
from millstream.store.opening import Opened
from millstream.store.origins import Origin, Origins, named
from millstream.store.reader import TokenStore
from millstream.store.writer_journal import WriterPaths, load_journal, sealed_rows

ORIGINS = ".origins"
"""Beside the store: the origins of its documents, while they come to be."""
COUNTS = ".counts.json"
"""Beside the store: what its manifest will say of rows that were left out, as far as that is known."""


class UnfinishedOrigins(Origins):
    """Document -> source file, of a store whose documents name their files and whose origins have no frame yet.

    Their file is held open: it is moved into the store when that is finished, and then with it.
    """

    def __init__(self, path: Path, sources: Sequence[str]) -> None:
        super().__init__({})
        self._sources = sources
        self._fd = -1
        for place in (path.with_name(f"{ORIGINS}.part"), *(path / "versions").glob("*.org")):
            with contextlib.suppress(OSError):
                self._fd = os.open(place, os.O_RDONLY)
                weakref.finalize(self, os.close, self._fd)
                return

    def file_of(self, document: int) -> str | None:
        """Name the source file of a document, or None where it is not written yet."""
        origin = self.origin_of(document)
        return None if origin is None else origin.file

    def origin_of(self, document: int) -> Origin | None:
        """Give the record that a document was made from, or None where it is not written yet."""
        if self._fd < 0:
            return None
        found = os.pread(self._fd, 24, FRAME_BYTES + 24 * document)
        return named(struct.unpack("<3q", found), self._sources) if len(found) == 24 else None


def stamp_of(path: Path) -> tuple[int, ...] | None:
    """What is another whenever the writer of a store has sealed something; None: it has not begun.

    >>> import tempfile
    >>> stamp_of(Path(tempfile.mkdtemp(), "corpus")) is None
    True
    """
    try:
        found = WriterPaths(path, single=False).journal.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def open_unfinished(path: Path, sources: Sequence[str] = (), known: TokenStore | None = None) -> TokenStore | None:
    """Open the shards of a directory store that are whole, while its writer still works; None: there are none yet.

    `sources` are the files that it is made from, by their numbers. `known` is what was opened before, which is given
    again if nothing was sealed since.

    >>> import tempfile
    >>> from millstream.store.writer import TokenStoreWriter
    >>> path = Path(tempfile.mkdtemp(), "corpus")
    >>> with TokenStoreWriter(path) as writer:
    ...     writer.append([10, 11, 12])
    ...     before = open_unfinished(path)
    ...     writer.finish_shard()
    ...     writer.append([20, 21])
    ...     store = open_unfinished(path)
    >>> before, store[:].tolist()
    (None, [10, 11, 12])
    """
    paths = WriterPaths(path, single=False)
    journal = load_journal(paths.journal)
    if journal is None or not journal.sealed:
        return None
    if known is not None and (len(known.layout.table), known.documents) == (journal.sealed, journal.documents):
        return known
    rows = rows_of(sealed_rows(paths, journal))
    packed = BLOCK_TOKENS if journal.compress else 0
    layout = Layout(str(path), "", journal.dtype, 64, rows, "ends", block_tokens=packed)
    origins = UnfinishedOrigins(path, sources)
    manifest = describe(journal.dtype, rows, recipe=_counts(path.with_name(COUNTS)))
    return TokenStore.of(path, Opened("unfinished", layout, manifest, origins))


def _counts(path: Path) -> Any:
    """What was counted so far, or None; it is checked where it is used, as what a manifest says."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
