"""Where the documents of a store came from: source file, row and byte range, as they were when it was made.

The manifest says how many documents each source file gave; the `.org` file beside it holds the row and the bytes of
each document (docs/reference/formats.md). Both are read, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream.errors import StoreError
from millstream.storage import COPY_AGAIN, disk
from millstream.store.column_writers import ColumnWriter
from millstream.store.frames import Frame, open_body, xxh64

_WORD = np.dtype("<u8")
_ROW_BITS = 40


@dataclass(frozen=True, slots=True)
class Origin:
    """One record of a source file: its row, counted from 0, and its bytes [start, stop), or None where it has none."""

    file: str
    row: int
    start: int | None
    stop: int | None


def numbered(origins: NDArray[np.int64], file: int, rows_before: int) -> NDArray[np.int64]:
    """Origins that name their file themselves, for stores whose documents do not lie in the order of the files.

    >>> numbered(np.array([[7, 0, 5]]), file=2, rows_before=10).tolist() == [[2 << 40 | 17, 0, 5]]
    True
    """
    shift: NDArray[np.int64] = np.array([rows_before + (file << _ROW_BITS), 0, 0])
    return origins + shift


def named(words: Sequence[int], sources: Sequence[str]) -> Origin | None:
    """Read an origin that names its file itself; None where there is no such file.

    >>> named((1 << 40 | 17, 0, 5), ["a.txt", "b.txt"])
    Origin(file='b.txt', row=17, start=0, stop=5)
    """
    number, row = divmod(words[0], 1 << _ROW_BITS)
    return _origin(sources[number], row, words[1], words[2]) if 0 <= number < len(sources) else None


def _origin(file: str, row: int, start: int, stop: int) -> Origin:
    return Origin(file, row, start if start >= 0 else None, stop if stop >= 0 else None)


def origins_path(store: Path, fingerprint: str) -> Path:
    """Where the origins of a version lie.

    >>> origins_path(Path("data.bin"), "ab").as_posix(), origins_path(Path("corpus"), "ab").as_posix()
    ('data.org', 'corpus/versions/ab.org')
    """
    return store.with_suffix(".org") if store.suffix == ".bin" else store / "versions" / f"{fingerprint}.org"


class OriginsWriter:
    """Writes a `.org` file: one (row, start, stop) per document, in their order.

    >>> import tempfile
    >>> writer = OriginsWriter(Path(tempfile.mkdtemp(), "data.org"))
    >>> writer.extend(np.array([[0, 0, 5], [1, 6, 9]]))
    >>> writer.seal()
    >>> read_origin(writer.path, 1)
    (1, 6, 9)
    """

    def __init__(self, path: Path, *, documents: int = 0) -> None:
        """Begin a file, or continue after the first `documents` of one that `checkpoint` made durable."""
        self.path = path
        disk.make_directory(path.parent)
        part = path.with_name(path.name + ".part")
        self._column = ColumnWriter.resume(part, _WORD, 3 * documents) if documents else ColumnWriter.begin(part, _WORD)

    def checkpoint(self) -> None:
        """Make what was added durable."""
        self._column.flush()
        disk.sync(self._column.fd)

    def close(self) -> None:
        """Give the file descriptor back."""
        self._column.close()

    def extend(self, origins: NDArray[np.int64]) -> None:
        """Add the origins of some documents."""
        self._column.extend(np.ascontiguousarray(origins, np.int64).reshape(-1).view(_WORD))

    def seal(self, path: Path | None = None) -> None:
        """Finish the file and give it its name."""
        count, rest = divmod(self._column.count, 3)
        assert not rest
        self._column.seal(Frame("O", count, bound=0, tag=xxh64(self._column.hashes())))
        self._column.close()
        self.path = self.path if path is None else path
        disk.rename(self._column.path, self.path)
        disk.sync_directory(self.path.parent)


def read_origin(path: Path, document: int) -> tuple[int, int, int]:
    """Read the (row, start, stop) of one document."""
    frame, words = open_body(path, "O")
    if not 0 <= document < frame.count:
        raise StoreError(f"{path}: has no document {document}; it has {frame.count}", hint="documents count from 0")
    row, start, stop = words.read(range(3 * document, 3 * document + 3)).view(np.int64).tolist()
    return row, start, stop


class Origins:
    """Document -> source file, for stores whose manifest says how many documents each source gave.

    >>> sources = [{"path": "a.txt"}, {"path": "b.txt"}, {"path": "c.txt"}]
    >>> origins = Origins({"sources": sources, "documents": 5, "recipe": {"documents_per_source": [2, 0, 3]}})
    >>> origins.file_of(1), origins.file_of(2), Origins({"documents": 5}).file_of(1)
    ('a.txt', 'c.txt', None)
    """

    def __init__(self, manifest: Mapping[str, Any], path: Path | None = None) -> None:
        self._paths = [str(source["path"]) for source in manifest.get("sources") or ()]
        recipe = manifest.get("recipe")
        counts = recipe.get("documents_per_source") if isinstance(recipe, Mapping) else None
        self._ends = np.cumsum(_checked(counts), dtype=np.int64)
        self._path = path
        self._mixed = isinstance(recipe, Mapping) and bool(recipe.get("mixing"))
        self.known = len(self._ends) == len(self._paths) > 0 and int(self._ends[-1]) == manifest.get("documents")

    def file_of(self, document: int) -> str | None:
        """Name the source file of a document, or None where the manifest does not say."""
        if not self.known or not 0 <= document < int(self._ends[-1]):
            return None
        if self._mixed:
            origin = self.origin_of(document)
            return None if origin is None else origin.file
        return self._paths[int(np.searchsorted(self._ends, document, side="right"))]

    def origin_of(self, document: int) -> Origin | None:
        """Give the record that a document was made from, or None where the store does not say."""
        if not self.known or self._path is None or not self._path.exists():
            return None
        words = read_origin(self._path, document)
        if self._mixed:
            origin = named(words, self._paths)
            if origin is None:
                raise StoreError(f"{self._path}: document {document} is of a file that is not listed", hint=COPY_AGAIN)
            return origin
        file = self.file_of(document)
        return None if file is None else _origin(file, *words)


def _checked(counts: object) -> list[int]:
    if not isinstance(counts, list) or not all(type(count) is int and 0 <= count < 1 << 40 for count in counts):
        return []
    return counts
