"""Document indexes of one shard: which tokens belong to which document.

An index comes from a file and may lie. What is used is checked when it is used; `verify()` checks all of it.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import Protocol

import numpy as np

from millstream.errors import StoreError
from millstream.store.format import Words
from millstream.store.numbers import EverySecond, Numbers

VERIFY = "the index is damaged: `millstream verify` says where; restore it from a copy"


class Index(Protocol):
    """What the reader asks of an index; all numbers count from the start of the shard."""

    def bounds(self, first: int, last: int) -> Words:
        """Give the starts of documents `first` to `last - 1`, and the end of the last."""

    def at(self, token: int) -> int:
        """Find the document that holds a token."""


def checked(path: Path, bounds: Words, tokens: int) -> Words:
    """Refuse bounds that fall or leave the shard."""
    if bounds[-1] > tokens or (bounds[1:] < bounds[:-1]).any():
        raise StoreError(f"{path}: document ends fall or lie beyond the last token", hint=VERIFY)
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
    """Our own index: the end of each document."""

    def __init__(self, ends: Numbers | EverySecond, tokens: int) -> None:
        self._ends, self._tokens = ends, tokens

    def bounds(self, first: int, last: int) -> Words:
        """Give the starts of documents `first` to `last - 1`, and the end of the last."""
        ends = self._ends.read(range(max(first - 1, 0), last))
        bounds = ends if first else np.insert(ends, 0, 0)
        return checked(self._ends.path, bounds, self._tokens)

    def at(self, token: int) -> int:
        """Find the first document that ends behind the token."""
        found = self._ends.first_above(token)
        if found == len(self._ends):
            raise StoreError(f"{self._ends.path}: no document holds token {token}", hint=VERIFY)
        return found


class MegatronIndex:
    """Megatron's index: byte pointers of sequences, and documents as runs of sequences."""

    def __init__(self, path: Path, pointers: Numbers, boundaries: Numbers, *, tokens: int, width: int) -> None:
        self._path, self._pointers, self._boundaries = path, pointers, boundaries
        self._tokens, self._width = tokens, width

    def bounds(self, first: int, last: int) -> Words:
        """Give the starts of documents `first` to `last - 1`, and the end of the last."""
        sequences = self._boundaries.read(range(first, last + 1))
        if (sequences < 0).any() or (sequences > len(self._pointers)).any():
            raise StoreError(f"{self._path}: a document boundary names a sequence that is not there", hint=VERIFY)
        out = np.full(len(sequences), self._tokens, np.uint64)
        inside = sequences < len(self._pointers)
        starts = np.array([self._pointers.at(int(each)) for each in sequences[inside]], np.int64)
        if (starts < 0).any() or (starts % self._width != 0).any():
            raise StoreError(f"{self._path}: a byte pointer is negative or lies inside a token", hint=VERIFY)
        out[inside] = (starts // self._width).astype(np.uint64)
        return checked(self._path, out, self._tokens)

    def at(self, token: int) -> int:
        """Find the first document that ends behind the token, by bisection."""
        documents = range(len(self._boundaries) - 1)
        found = bisect_right(documents, token, key=lambda document: int(self.bounds(document, document + 1)[1]))
        if found == len(documents):
            raise StoreError(f"{self._path}: no document holds token {token}", hint=VERIFY)
        return found
