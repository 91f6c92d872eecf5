"""Deduplication: global steps give records keys, and a document that shares one with an earlier one is a duplicate.

A document is a duplicate if an earlier document shares a key with it. That depends only on what came before, so it
streams, and does not change when documents are added at the end. Clusters (union-find, as in datatrove) go
further: when C is similar to both A and B, B is dropped for A, which it may not resemble. Here B stays: a dropped
document always has an earlier one that it is similar to.

Keys are hashes, so their leading bits partition them evenly: entries (key, document) are spilled into files by those
bits, in the order of the documents. Each file is then sorted in memory, or first partitioned by the next bits.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from millstream import _core
from millstream.errors import RecipeError
from millstream.records.processor import GlobalStep
from millstream.sources import RecordBlock

_Entries = NDArray[np.uint64]  # rows: the words of a key, then the document
_FAN_OUT_BITS = 8
_WORD_BYTES = 8


@dataclass(frozen=True)
class ExactDedup(GlobalStep):
    """Records with equal texts: the first stays. `folded` compares words only (see `fold`).

    The key is 128 bits wide: with 64, three false duplicates would be expected among 10^10 records.
    """

    name = "exact_dedup"
    key_words = 2

    folded: bool = False

    def keys(self, block: RecordBlock) -> NDArray[np.uint64]:
        """Two hashes of each text."""
        keys = np.zeros((len(block), 2), np.uint64)
        _core.exact_keys(block.text, block.ends, self.folded, keys.reshape(-1))
        return keys


@dataclass(frozen=True)
class MinhashDedup(GlobalStep):
    """Records whose sets of `words`-word runs are similar: the first stays.

    Similarity is Jaccard's, of folded texts. Two records with similarity s share a band, and so are duplicates, with
    probability 1 - (1 - s^rows)^bands. That is 0.77 at 0.75, 0.92 at 0.8, 0.9996 at 0.9 with the defaults, 0.05 at 0.5.
    """

    name = "minhash_dedup"

    words: int = 5
    bands: int = 14
    rows: int = 8
    seed: int = 1

    def __post_init__(self) -> None:
        if min(self.words, self.bands, self.rows) < 1 or self.seed < 0:
            raise RecipeError(
                "minhash_dedup: words, bands and rows start at 1, seed at 0", hint="the usual values are 5, 14, 8 and 1"
            )

    def keys(self, block: RecordBlock) -> NDArray[np.uint64]:
        """One key per band. 64 bits are enough: a collision is rarer than the method's own false positives."""
        keys = np.zeros((len(block), self.bands), np.uint64)
        _core.minhash_keys(block.text, block.ends, self.words, self.bands, self.rows, self.seed, keys.reshape(-1))
        return keys


@dataclass(frozen=True)
class Duplicates:
    """The duplicates in rising order, and for each the earliest document that shares a key with it; mapped files."""

    documents: NDArray[np.uint64]
    originals: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.documents)

    def among(self, first: int, stop: int) -> NDArray[np.bool_]:
        """Which of the documents [first, stop) are duplicates."""
        mask = np.zeros(stop - first, np.bool_)
        low, high = np.searchsorted(self.documents, np.array([first, stop], np.uint64))
        mask[(self.documents[low:high] - np.uint64(first)).astype(np.int64)] = True
        return mask


class DuplicateFinder:
    """Takes the keys of documents in their order, and finds those that share a key with an earlier document.

    The finder owns `folder`, and removes what lies in it. Memory stays near `memory_bytes`, whatever the number
    of documents; the folder holds 8 bytes per word of a key and 8 per key and document.

    >>> import tempfile
    >>> finder = DuplicateFinder(Path(tempfile.mkdtemp()) / "keys")
    >>> finder.add(np.array([[1, 2], [3, 4], [5, 2]], np.uint64), first_document=10)
    >>> found = finder.finish()
    >>> found.documents.tolist(), found.originals.tolist()
    ([12], [10])
    """

    def __init__(self, folder: Path | str, *, key_words: int = 1, memory_bytes: int = 256 << 20) -> None:
        self.folder = Path(folder)
        self.key_words = key_words
        row_bytes = _WORD_BYTES * (key_words + 1)
        self._rows = max(256, memory_bytes // (8 * row_bytes))  # sorting holds several copies
        self._held: list[_Entries] = []
        self._held_rows = 0
        self._next = 0
        self._keys_per_document = 1
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def add(self, keys: NDArray[np.uint64], first_document: int) -> None:
        """Take the keys of documents first_document, first_document + 1, …: one row for each."""
        count, columns = keys.shape
        if not columns or columns % self.key_words or first_document < self._next:
            raise RecipeError(
                "keys must be whole, and documents come in their order",
                hint=f"give rows of {self.key_words} columns per key, from document {self._next:,} on",
            )
        self._next = first_document + count
        per_document = columns // self.key_words
        self._keys_per_document = max(self._keys_per_document, per_document)
        step = max(1, self._rows // per_document)
        for begin in range(0, count, step):
            part = keys[begin : begin + step].reshape(-1, self.key_words)
            numbers = np.arange(begin, begin + len(part) // per_document, dtype=np.uint64) + np.uint64(first_document)
            self._held.append(np.column_stack([part, np.repeat(numbers, per_document)]))
            self._held_rows += len(part)
            if self._held_rows >= self._rows:
                self._spill()

    def finish(self) -> Duplicates:
        """The duplicates of all documents; nothing can be added after this."""
        self._spill()
        width = max(1, self._rows // self._keys_per_document)  # documents whose pairs fit into memory together
        for path in sorted(self.folder.glob("keys-*")):
            for pairs in self._pairs(path, 64 - _FAN_OUT_BITS):
                self._partition(pairs, pairs[:, 0] // np.uint64(width), "pairs", 16)
            path.unlink()
        return self._merged()

    def _spill(self) -> None:
        if self._held_rows:
            held = np.concatenate(self._held)
            self._partition(held, held[:, 0] >> np.uint64(64 - _FAN_OUT_BITS), "keys", 3)
        self._held, self._held_rows = [], 0

    def _partition(self, rows: _Entries, parts: NDArray[np.uint64], name: str, digits: int) -> None:
        """Append rows to one file for each part; their order stays."""
        if not len(rows):
            return
        order = np.argsort(parts, kind="stable")
        values, begins = np.unique(parts[order], return_index=True)
        for value, chosen in zip(values.tolist(), np.split(order, begins[1:]), strict=True):
            with (self.folder / f"{name}-{value:0{digits}}").open("ab") as file:
                rows[chosen].tofile(file)

    def _read(self, path: Path, columns: int) -> Iterator[_Entries]:
        with path.open("rb") as file:
            while len(rows := np.fromfile(file, np.uint64, self._rows * columns)):
                yield rows.reshape(-1, columns)

    def _pairs(self, path: Path, shift: int) -> Iterator[_Entries]:
        """(duplicate, original) for every key of a file that several documents have."""
        columns = self.key_words + 1
        size = path.stat().st_size
        if size > self._rows * columns * _WORD_BYTES and shift >= _FAN_OUT_BITS:
            shift -= _FAN_OUT_BITS
            for rows in self._read(path, columns):
                self._partition(rows, (rows[:, 0] >> np.uint64(shift)) & np.uint64(255), path.name, 3)
            children = sorted(self.folder.glob(f"{path.name}-*"))
            for child in children:
                # rows that do not separate hold one key many times: another pass would only copy them
                yield from self._pairs(child, shift if child.stat().st_size < size else 0)
                child.unlink()
            return
        seen = np.zeros((0, columns), np.uint64)
        for rows in self._read(path, columns):
            seen, pairs = _first_of_each(np.concatenate([seen, rows]))
            yield pairs

    def _merged(self) -> Duplicates:
        paths = [self.folder / "documents", self.folder / "originals"]
        with paths[0].open("wb") as documents, paths[1].open("wb") as originals:
            for path in sorted(self.folder.glob("pairs-*")):
                pairs = np.fromfile(path, np.uint64).reshape(-1, 2)
                pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
                first = np.append(True, pairs[1:, 0] != pairs[:-1, 0])
                pairs[first, 0].tofile(documents)
                pairs[first, 1].tofile(originals)
                path.unlink()
        return Duplicates(*(_mapped(path) for path in paths))


def _first_of_each(rows: _Entries) -> tuple[_Entries, _Entries]:
    """Rows in the order of documents -> (the first row of each key, (document, first document) of the others)."""
    keys, documents = rows[:, :-1], rows[:, -1]
    order = np.lexsort(keys.T[::-1])
    keys, documents = keys[order], documents[order]
    is_first = np.append(True, (keys[1:] != keys[:-1]).any(axis=1))
    first = np.flatnonzero(is_first)
    originals = documents[first[np.cumsum(is_first) - 1]]
    later = ~is_first & (documents != originals)  # a document may have the same key twice
    return rows[order[first]], np.column_stack([documents[later], originals[later]])


def _mapped(path: Path) -> NDArray[np.uint64]:
    return np.memmap(path, np.uint64, "r") if path.stat().st_size else np.zeros(0, np.uint64)
