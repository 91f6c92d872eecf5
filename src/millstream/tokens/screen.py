"""An engine for all but some characters: a document that holds one of them is left to the reference.

Libraries follow different versions of Unicode. What is a letter, a digit or a mark in a newer version is unassigned
in an older one, and they split such words differently. So a fast engine never sees a character that is younger than
Unicode 14, nor a mark that it puts in another order than the reference does.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from millstream.tokens.flat import Ends, FlatIds, Text, cut_points, join_texts, split_ids
from millstream.tokens.tokenizer import Ids

_LEAST = 0xCD  # the first byte of U+0378, the first character that can be odd
_ROW = 4096
_SHORT = 256  # bytes that the reference encodes in about the time that finding stretches takes
EncodeFlat = Callable[[Text, Ends], FlatIds]


class ScreenedEngine:
    """A fast engine, and the reference for the stretches of documents with an odd character.

    A stretch is the document, or of a longer one, if `may_cut()`, what lies between two places where it may be cut.
    """

    def __init__(
        self,
        name: str,
        fast: EncodeFlat,
        reference: EncodeFlat,
        *,
        may_cut: Callable[[], bool],
        odd: Iterable[str] = (),
    ) -> None:
        self.name = name
        self._fast = fast
        self._reference = reference
        self._may_cut = may_cut
        self._odd = unassigned().copy()
        self._odd[[ord(character) for character in odd]] = True

    def encode_flat(self, text: Text, ends: Ends) -> FlatIds:
        """The ids of all documents end to end, and where each document ends."""
        places = odd_places(text, self._odd)
        if not len(places):
            return self._fast(text, ends)
        documents = np.unique(np.searchsorted(ends, places, side="right"))
        documents = documents[np.diff(ends, prepend=0)[documents] > _SHORT]
        stretches = _stretches(text, ends, places, documents) if len(documents) and self._may_cut() else ends
        ids, stops = self._encode_apart(text, stretches, places)
        stops = np.concatenate([np.zeros(1, np.int64), stops])
        return ids, stops[np.searchsorted(stretches, ends, side="right")]

    def _encode_apart(self, text: Text, ends: Ends, places: NDArray[np.int64]) -> FlatIds:
        slow = np.zeros(len(ends), np.bool_)
        slow[np.searchsorted(ends, places, side="right")] = True
        lengths = np.diff(ends, prepend=0)
        slow_bytes = np.repeat(slow, lengths)
        slow_ids, slow_ends = self._reference(text[slow_bytes], np.cumsum(lengths[slow]))
        fast_ids, fast_ends = self._fast(text[~slow_bytes], np.cumsum(lengths[~slow]))
        counts = np.empty(len(ends), np.int64)
        counts[slow], counts[~slow] = np.diff(slow_ends, prepend=0), np.diff(fast_ends, prepend=0)
        by_reference = np.repeat(slow, counts)
        ids = np.empty(len(by_reference), np.uint32)
        ids[by_reference], ids[~by_reference] = slow_ids, fast_ids
        return ids, np.cumsum(counts)


def _stretches(text: Text, ends: Ends, places: NDArray[np.int64], documents: NDArray[np.int64]) -> Ends:
    """The ends of all documents, and of the stretches around the places in some of them."""
    begins = np.concatenate([np.zeros(1, np.int64), ends])
    found = [ends]
    for document in documents.tolist():
        begin, end = int(begins[document]), int(ends[document])
        cuts = np.concatenate([[begin], begin + cut_points(text[begin:end]), [end]])
        inside = places[np.searchsorted(places, begin) : np.searchsorted(places, end)]
        after = np.searchsorted(cuts, inside, side="right")
        found += [cuts[after - 1], cuts[after]]
    stretches = np.concatenate(found)
    return np.unique(stretches[stretches > 0])


def odd_places(text: Text, odd: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Where the characters begin for which `odd` is true, given by their numbers.

    >>> text, _ = join_texts(["a\\u0378é\\U0001f7ff"])
    >>> odd_places(text, unassigned()).tolist()
    [1, 5]
    """
    leads = _leads(text)
    if not len(leads):
        return leads
    padded = np.concatenate([text[-4:], np.zeros(4, np.uint8)])  # a character at the very end, without reading past it
    codes = np.empty(len(leads), np.int64)
    tail = np.searchsorted(leads, max(len(text) - 4, 0))
    codes[:tail] = _codes(text, leads[:tail])
    codes[tail:] = _codes(padded, leads[tail:] - max(len(text) - 4, 0))
    return leads[odd[codes]]


def misordered_marks(fast: EncodeFlat, reference: Callable[[Sequence[str]], Sequence[Ids]]) -> list[str]:
    """The marks that two engines compose or put in order differently: each beside others and in its own characters."""
    trials = [
        (mark, trial) for mark in _marks() for other in "\u0301\u0323\u0345\u05b0" for trial in _orders(mark, other)
    ]
    trials += [(whole[-1], f"a{whole}b") for whole in _decomposed()]
    texts = [text for _, text in trials]
    found = split_ids(*fast(*join_texts(texts)))
    pairs = zip(trials, reference(texts), found, strict=True)
    return sorted({mark for (mark, _), right, ids in pairs if not np.array_equal(right, ids)})


@cache
def unassigned() -> NDArray[np.bool_]:
    """For every number whether Unicode 14 has no character there.

    >>> bool(unassigned()[0x378]), bool(unassigned()[0x41])
    (True, False)
    """
    table = np.zeros(0x110000, np.bool_)
    for line in files("millstream.tokens").joinpath("unicode14.txt").read_text(encoding="ascii").split():
        first, _, last = line.partition("-")
        table[int(first, 16) : int(last or first, 16) + 1] = True
    table.flags.writeable = False
    return table


def _leads(text: Text) -> NDArray[np.int64]:
    """The places of bytes that can begin an odd character; rows without any, most in plain English, cost little."""
    whole = len(text) // _ROW * _ROW
    grid = text[:whole].reshape(-1, _ROW)
    rows = np.flatnonzero(grid.max(axis=1, initial=0) >= _LEAST)
    row, column = np.divmod(np.flatnonzero(grid[rows] >= _LEAST), _ROW)
    return np.concatenate([rows[row] * _ROW + column, whole + np.flatnonzero(text[whole:] >= _LEAST)])


def _codes(text: Text, leads: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers of the characters that begin at some places."""
    first, second, third, fourth = (text[leads + offset].astype(np.int64) for offset in range(4))
    two = (first & 0x1F) << 6 | second & 0x3F
    three = (first & 0x0F) << 12 | (second & 0x3F) << 6 | third & 0x3F
    four = (first & 0x07) << 18 | (second & 0x3F) << 12 | (third & 0x3F) << 6 | fourth & 0x3F
    return np.where(first < 0xE0, two, np.where(first < 0xF0, three, four))


def _marks() -> list[str]:
    return [chr(code) for code in range(0x300, 0x20000) if unicodedata.combining(chr(code))]


def _orders(mark: str, other: str) -> tuple[str, str]:
    return f"a{mark}{other}", f"a{other}{mark}"


def _decomposed() -> list[str]:
    """Every character that has a canonical decomposition, in that form; of Hangul, which goes by rule, a few."""
    codes = [*range(0xA0, 0xAC10), *range(0xF900, 0xFB50), *range(0x10000, 0x1E000)]
    characters = map(chr, codes)
    return [whole for each in characters if (whole := unicodedata.normalize("NFD", each)) != each]
