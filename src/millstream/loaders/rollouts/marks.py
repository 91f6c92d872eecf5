"""Tokens that are not equally good: the text in lines, and below each line a mark for every token that is trained on.

⟦The answer is 42.⟧
 △   ·      ·  ▲ ▼
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.stats import Style, Styled, counted, visible

Decode: TypeAlias = Callable[[Sequence[int]], str]
MOST_TOKENS = 8
"""So many tokens are looked at together until they end with a whole letter."""
EDGE_TOKENS = 120
"""What is shown of the beginning and of the end of a long stretch that is not trained on."""
WIDTH = 78
"""Columns of a line: marks only stand below their tokens if no terminal breaks it."""
NEAR = 0.25
"""What is less than this share of the usual size of an advantage is about 0."""
MARKS = "▼▽·△▲"
STYLES: tuple[Style, ...] = ("much worse", "worse", "neutral", "better", "much better")


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A text, whether the policy sampled it, and how good that was."""

    text: str
    is_trained: bool
    advantage: float | None = None
    is_note: bool = False
    """It stands for tokens that are not shown."""


def pieces_of(
    ids: Sequence[int],
    mask: npt.NDArray[np.bool_],
    advantages: npt.NDArray[np.float64] | None,
    decode: Decode,
    *,
    whole: bool,
) -> list[TextPiece]:
    """All tokens; unless the `whole` is asked for, long stretches that are not trained on lose their middle.

    >>> pieces_of([72, 105], np.array([False, True]), None, lambda ids: "".join(map(chr, ids)), whole=True)
    [TextPiece(text='H', is_trained=False, advantage=None, is_note=False), TextPiece(text='i', is_trained=True, \
advantage=None, is_note=False)]
    """
    pieces: list[TextPiece] = []
    for start, stop in pairwise([0, *(np.flatnonzero(np.diff(mask)) + 1).tolist(), len(ids)]):
        left_out = stop - start - 2 * EDGE_TOKENS
        if whole or mask[start] or left_out <= EDGE_TOKENS:
            pieces += _pieces(ids, start, stop, decode, advantages if mask[start] else None, is_trained=mask[start])
            continue
        pieces += _pieces(ids, start, start + EDGE_TOKENS, decode)
        pieces.append(TextPiece(f"⋯ {counted(left_out, 'token')} not shown ⋯", is_trained=False, is_note=True))
        pieces += _pieces(ids, stop - EDGE_TOKENS, stop, decode)
    return pieces


def _pieces(
    ids: Sequence[int],
    start: int,
    stop: int,
    decode: Decode,
    advantages: npt.NDArray[np.float64] | None = None,
    *,
    is_trained: bool = False,
) -> Iterator[TextPiece]:
    for first, last, text in _texts(ids, start, stop, decode):
        advantage = None if advantages is None else float(np.mean(advantages[first:last]))
        yield TextPiece(visible(text, keep="\n\t"), bool(is_trained), advantage)


def ids_as_text(ids: Sequence[int]) -> str:
    """What is shown without a tokenizer.

    >>> ids_as_text([72, 105])
    '72 105 '
    """
    return "".join(f"{each} " for each in ids)


def _texts(ids: Sequence[int], start: int, stop: int, decode: Decode) -> Iterator[tuple[int, int, str]]:
    """What tokens add to the text before them, since tokenizers treat beginnings apart and letters may be split."""
    context, first = max(0, start - 1), start
    for last in range(start + 1, stop + 1):
        before, text = decode(ids[context:first]), decode(ids[context:last])
        added = text[len(before) :] if text.startswith(before) else decode(ids[first:last])
        is_whole = bool(added) and not added.endswith("\N{REPLACEMENT CHARACTER}")
        if is_whole or last == stop or last - first == MOST_TOKENS:
            yield first, last, added
            context, first = first, last


def marked(pieces: Sequence[TextPiece], usual: float) -> Iterator[Styled]:
    """The text with its marks, under a line that explains them; `usual` is the usual size of an advantage."""
    advantages = [piece.advantage for piece in pieces if piece.advantage is not None]
    spread = f"{min(advantages):+.3g} to {max(advantages):+.3g}"
    legend = f"▲ ▼ beyond ±{usual:.2g}  △ ▽ beyond ±{NEAR * usual:.2g}  · about 0"
    yield Styled(f"advantages from {spread}:  {legend}\n", "note")
    page, was_trained = _Page(), False
    for piece, following in zip_longest(pieces, pieces[1:]):
        if piece.is_note:
            page.note(piece.text)
        elif piece.advantage is None:
            page.write(piece.text, "plain")
        else:
            begins, ends = not was_trained, following is None or not following.is_trained
            level = _level(piece.advantage, usual)
            page.write("⟦" if begins else "", STYLES[level])
            page.write(_closed(piece.text) if ends else _unbroken(piece.text), STYLES[level], MARKS[level])
        was_trained = piece.is_trained
        yield from page.lines()
    page.end_line()
    yield from page.lines()


def _unbroken(text: str) -> str:
    """A text whose ends of lines can have a mark, too."""
    return text.replace("\n", "↵\n")


def _closed(text: str) -> str:
    """The last text of a stretch.

    >>> _closed("run."), _closed("run.\\n")
    ('run.⟧', 'run.↵⟧\\n')
    """
    return f"{_unbroken(text[:-1])}↵⟧\n" if text.endswith("\n") else f"{_unbroken(text)}⟧"


def _level(advantage: float, usual: float) -> int:
    """Which of the marks an advantage has.

    >>> [MARKS[_level(advantage, 1.0)] for advantage in (-1.5, -0.5, 0.0, 0.5, 1.5)]
    ['▼', '▽', '·', '△', '▲']
    """
    size = 2 if abs(advantage) >= usual else 1 if abs(advantage) >= NEAR * usual else 0
    return 2 + int(np.sign(advantage)) * size


class _Page:
    """Lines of at most so many columns, each followed by its marks."""

    def __init__(self) -> None:
        self._done: list[Styled] = []
        self._line: list[Styled] = []
        self._marks: list[tuple[int, Styled]] = []
        self._column = 0

    def lines(self) -> list[Styled]:
        """The lines that came to their end."""
        done, self._done = self._done, []
        return done

    def write(self, text: str, style: Style, mark: str = "") -> None:
        """Append a text; a mark stands below its first letter."""
        first, *others = text.replace("\t", "    ").split("\n")
        if self._column and self._column + columns(first) > WIDTH:
            self.end_line()
        if mark:
            indent = len(first) - len(first.lstrip()) if first.strip() else 0
            self._marks.append((self._column + indent, Styled(mark, style)))
        self._add(first, style)
        for line in others:
            self._break()
            self._add(line, style)

    def note(self, text: str) -> None:
        """A line of its own."""
        self.end_line()
        self._done.append(Styled(f"{text}\n", "note"))

    def end_line(self) -> None:
        """Begin a new line, unless nothing stands in this one."""
        if self._line:
            self._break()

    def _break(self) -> None:
        self._done += [*self._line, Styled("\n", "plain")]
        column = 0
        for place, mark in self._marks:
            self._done += [Styled(" " * (place - column), "plain"), mark]
            column = place + 1
        self._done += [Styled("\n", "plain")] if self._marks else []
        self._line, self._marks, self._column = [], [], 0

    def _add(self, text: str, style: Style) -> None:
        self._line += [Styled(text, style)] if text else []
        self._column += columns(text)


def columns(text: str) -> int:
    """How many columns of a terminal a text takes.

    >>> columns("mill"), columns("水車"), columns("e\\u0301")
    (4, 4, 1)
    """
    return sum(_columns_of(letter) for letter in text)


def _columns_of(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
