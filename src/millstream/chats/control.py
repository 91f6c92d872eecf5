"""Control strings in rendered conversations: where a template's "<|im_end|>" is one token, and a user's is not.

A control string counts only in text that the template supplies, so that no text of a message can end it. Control
strings are found as the `tokenizers` library finds added tokens: the longest at the leftmost place, raw ones before
normalised ones, with their flags for words and spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from millstream.chats.pieces import Pieces
from millstream.tokens import ControlToken

Found: TypeAlias = NDArray[np.int64]
"""One line for each control string: the byte where it begins, the byte where it stops, its id."""
Match: TypeAlias = tuple[int, int, int]
"""The same in characters of a text."""
_NOTHING: Found = np.empty((0, 3), np.int64)
_SPACES = "".join(map(chr, (*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B))))
_SPACES += "\u2028\u2029\u202f\u205f\u3000"  # those of Unicode: Python's isspace has four more
_WORD = re.compile(r"\w")
_REMEMBERED = 4096


class ControlStrings:
    """Finds control strings in a batch of rendered rows."""

    def __init__(self, controls: Iterable[ControlToken]) -> None:
        self._controls = {control.text: control for control in controls}
        raw = [control.text for control in self._controls.values() if not control.normalized]
        normalized = [control.text for control in self._controls.values() if control.normalized]
        self._passes = [_any_of(texts) for texts in (raw, normalized) if texts]
        self.contextual = any(each.single_word or each.lstrip or each.rstrip for each in self._controls.values())
        """Whether what is around a control string decides if it is one."""
        self._known: dict[str, Found] = {}

    def __contains__(self, text: object) -> bool:
        return text in self._controls

    def find(self, pieces: Pieces, *, trust_content: bool) -> Found:
        """Every control string of the batch, in order; in texts of the data only with `trust_content`."""
        stretches = _stretches(pieces, trust_content=trust_content)
        if self.contextual:
            return np.concatenate([_NOTHING, *self._by_row(pieces, stretches)])
        found = [self._alone(_text(pieces, first, last)) for first, last in stretches]
        lines = np.concatenate([_NOTHING, *found])
        bases = pieces.begins[np.array([first for first, _ in stretches], np.int64)]
        lines[:, :2] += np.repeat(bases, [len(each) for each in found])[:, None]
        return lines

    def _alone(self, text: str) -> Found:
        """The control strings of a text whose surroundings do not matter. Templates repeat theirs, so it is kept."""
        found = self._known.get(text)
        if found is None:
            found = _lines(text, self._matches(text, 0, len(text), 0))
            if len(self._known) < _REMEMBERED and len(text) < _REMEMBERED:
                self._known[text] = found
        return found

    def _by_row(self, pieces: Pieces, stretches: list[tuple[int, int]]) -> Iterator[Found]:
        """The control strings of each row, found with the whole row around them."""
        for row, group in groupby(stretches, key=lambda stretch: int(pieces.rows[stretch[0]])):
            begin, end = int(pieces.row_ends[row - 1]) if row else 0, int(pieces.row_ends[row])
            text = _text(pieces, begin, end)
            places = np.cumsum([0, *(len(piece.text) for piece in pieces.all[begin:end])]).tolist()
            matches: list[Match] = []
            for first, last in group:
                least = matches[-1][1] if matches else 0
                matches += self._matches(text, max(places[first - begin], least), places[last - begin], least)
            lines = _lines(text, matches)
            lines[:, :2] += pieces.begins[begin]
            yield lines

    def _matches(self, text: str, start: int, stop: int, least: int) -> list[Match]:
        """What is found in `text[start:stop]`; what is around it decides about words and spaces, from `least` on."""
        found: list[Match] = []
        for pattern in self._passes:
            holes = _holes(found, start, stop, least)
            found = sorted([*found, *(match for hole in holes for match in self._in_hole(pattern, text, *hole))])
        return found

    def _in_hole(self, pattern: re.Pattern[str], text: str, start: int, stop: int, least: int) -> Iterator[Match]:
        for match in pattern.finditer(text, start, stop):
            control = self._controls[match[0]]
            begin, end = match.span()
            if control.single_word and (_WORD.match(text[begin - 1 : begin]) or _WORD.match(text, end)):
                continue
            if control.lstrip:
                begin = least + len(text[least:begin].rstrip(_SPACES))
            if control.rstrip:
                end = len(text) - len(text[end:].lstrip(_SPACES))
            yield begin, end, control.id
            least = end


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """A pattern that finds the longest of the texts."""
    return re.compile("|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True)))


def _stretches(pieces: Pieces, *, trust_content: bool) -> list[tuple[int, int]]:
    """The pieces [first, last) of each longest stretch of a row in which control strings count."""
    if not len(pieces.all):
        return []
    given = np.zeros(len(pieces.all), np.bool_) if trust_content else pieces.given
    new = np.flatnonzero((np.diff(pieces.rows) != 0) | (np.diff(given) != 0)) + 1
    firsts, lasts = np.concatenate([[0], new]), np.concatenate([new, [len(given)]])
    counts = ~given[firsts]
    return list(zip(firsts[counts].tolist(), lasts[counts].tolist(), strict=True))


def _text(pieces: Pieces, first: int, last: int) -> str:
    return pieces.all[first].text if last == first + 1 else "".join(piece.text for piece in pieces.all[first:last])


def _holes(found: list[Match], start: int, stop: int, least: int) -> list[tuple[int, int, int]]:
    """What is left of [start, stop) between matches, and how far to the left each part may take spaces."""
    begins = [start, *(end for _, end, _ in found)]
    ends = [*(begin for begin, _, _ in found), stop]
    leasts = [least, *begins[1:]]
    return [hole for hole in zip(begins, ends, leasts, strict=True) if hole[0] < hole[1]]


def _lines(text: str, matches: list[Match]) -> Found:
    if not text.isascii():
        matches = [(len(text[:begin].encode()), len(text[:end].encode()), id) for begin, end, id in matches]
    return np.array(matches, np.int64).reshape(-1, 3)
