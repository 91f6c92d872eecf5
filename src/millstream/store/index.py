"""Document indexes of one shard: which tokens belong to which document.

An index comes from a file and may lie. What is used is checked when it is used; `verify()` checks all of it.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from millstream.errors import StoreError
from millstream.store.format import Words


class Index(Protocol):
    """What the reader asks of an index; all numbers count from the start of the shard."""

    def bounds(self, first: int, last: int) -> Words:
        """Give the starts of documents `first` to `last - 1`, and the end of the last."""

    def at(self, token: int) -> int:
        """Find the document that holds a token."""


def checked(path: Path, bounds: Words, tokens: int) -> Words:
    """Refuse bounds that fall or leave the shard."""
    if bounds[-1] > tokens or (bounds[1:] < bounds[:-1]).any():
        raise StoreError(f"{path}: document ends fall or lie beyond the last token", hint="run verify()")
    return bounds


class OneDocument:
    """No index: the whole file is document 0.

    >>> OneDocument(7).bounds(0, 1).tolist()
    [0, 7]
    """

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def bounds(self, first: int, last: int) -> Words:
        """Give 0 and the number of tokens."""
        return np.array([0, self._tokens], np.uint64)

    def at(self, token: int) -> int:
        """Find document 0."""
        return 0


class Ends:
    """Our own index: the end of each document.

    >>> ends = Ends(Path("00000.idx"), np.array([3, 3, 8], np.uint64), tokens=8)
    >>> ends.bounds(1, 3).tolist(), ends.at(2), ends.at(3)
    ([3, 3, 8], 0, 2)
    """

    def __init__(self, path: Path, ends: Words, tokens: int) -> None:
        self._path, self._ends, self._tokens = path, ends, tokens

    def bounds(self, first: int, last: int) -> Words:
        """Give the starts of documents `first` to `last - 1`, and the end of the last."""
        bounds = np.empty(last - first + 1, np.uint64)
        bounds[0] = self._ends[first - 1] if first else 0
        bounds[1:] = self._ends[first:last]
        return checked(self._path, bounds, self._tokens)

    def at(self, token: int) -> int:
        """Find the first document that ends behind the token."""
        # A Python int would make numpy copy the whole index into another dtype.
        found = int(np.searchsorted(self._ends, np.uint64(token), side="right"))
        if found == len(self._ends):
            raise StoreError(f"{self._path}: no document holds token {token}", hint="run verify()")
        return found


class MegatronIndex:
    """Megatron's index: byte pointers of sequences, and documents as runs of sequences."""

    def __init__(
        self, path: Path, pointers: NDArray[Any], boundaries: NDArray[Any], *, tokens: int, width: int
    ) -> None:
        self._path, self._pointers, self._boundaries = path, pointers, boundaries
        self._tokens, self._width = tokens, width

    def bounds(self, first: int, last: int) -> Words:
        """Give the starts of documents `first` to `last - 1`, and the end of the last."""
        sequences = self._boundaries[first : last + 1].astype(np.int64)
        if (sequences < 0).any() or (sequences > len(self._pointers)).any():
            raise StoreError(f"{self._path}: a document boundary names a sequence that is not there")
        out = np.full(len(sequences), self._tokens, np.uint64)
        inside = sequences < len(self._pointers)
        starts = self._pointers[sequences[inside]].astype(np.int64)
        if (starts < 0).any() or (starts % self._width != 0).any():
            raise StoreError(f"{self._path}: a byte pointer is negative or lies inside a token")
        out[inside] = (starts // self._width).astype(np.uint64)
        return checked(self._path, out, self._tokens)

    def at(self, token: int) -> int:
        """Find the first document that ends behind the token, by bisection: the arrays are not aligned."""
        documents = range(len(self._boundaries) - 1)
        found = bisect_right(documents, token, key=lambda document: int(self.bounds(document, document + 1)[1]))
        if found == len(documents):
            raise StoreError(f"{self._path}: no document holds token {token}", hint="run verify()")
        return found
