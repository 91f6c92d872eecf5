"""Texts as people read them: figures in words, and parts with styles, which only add colour."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias


def count(number: float) -> str:
    """A count that can be read at a glance.

    >>> count(950), count(12_345), count(4_160_081), count(2.5e9)
    ('950', '12,345', '4.16 M', '2.50 G')
    """
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(number) >= size:
            return f"{number / size:.2f} {letter}"
    return f"{number:,.0f}"


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "file"), counted(1200, "file")
    ('1 file', '1,200 files')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(number: float) -> str:
    """A number of bytes.

    >>> size(999), size(12_600_805), size(3.2e9)
    ('999 B', '12.6 MB', '3.2 GB')
    """
    for unit, letter in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(number) >= unit:
            return f"{number / unit:.1f} {letter}"
    return f"{number:.0f} B"


def duration(seconds: float) -> str:
    """A time span.

    >>> duration(0.0004), duration(0.5), duration(12.3), duration(200), duration(7300)
    ('0.4 ms', '500 ms', '12.3 s', '3 min 20 s', '2 h 1 min')
    """
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"


def share(part: float, whole: float) -> str:
    """A part of a whole; something is never shown as nothing, nor almost all as all.

    >>> share(1, 3), share(0, 3), share(1, 10**6), share(999_999, 10**6), share(3, 3)
    ('33.3 %', '0 %', '<0.1 %', '>99.9 %', '100 %')
    """
    if part <= 0 or whole <= 0:
        return "0 %"
    if part >= whole:
        return "100 %"
    percent = 100 * part / whole
    return "<0.1 %" if percent < 0.1 else ">99.9 %" if percent > 99.9 else f"{percent:.1f} %"


def bit_span(bits: int) -> str:
    """The whole numbers that have so many bits: a bin of a histogram in steps of powers of two.

    >>> [bit_span(bits) for bits in (0, 1, 2, 11)]
    ['0', '1', '2-3', '1,024-2,047']
    """
    low, high = (1 << bits) >> 1, (1 << bits) - 1
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


def visible(text: str, keep: str = "") -> str:
    """A text whose every letter can be seen: control characters and changes of direction become dots.

    >>> visible("a\\x1b[2Jb\\u202ec\\n"), visible("a\\n", keep="\\n")
    ('a·[2Jb·c·', 'a\\n')
    """
    return "".join(letter if letter.isprintable() or letter in keep else "·" for letter in text)


Style: TypeAlias = Literal[
    "heading",
    "note",
    "plain",
    "trained",
    "much better",
    "better",
    "neutral",
    "worse",
    "much worse",
    "error",
    "warning",
]


class Styled(NamedTuple):
    """A part of a text."""

    text: str
    style: Style


class Shown(str):
    """A text that knows the style of its parts; notebooks display it as it is printed.

    >>> Shown([Styled("row 0\\n", "heading"), Styled("⟦4⟧", "trained")])
    row 0
    ⟦4⟧
    """

    parts: tuple[Styled, ...]

    def __new__(cls, parts: Iterable[Styled]) -> Shown:
        """Join the parts."""
        kept = tuple(parts)
        text = super().__new__(cls, "".join(part.text for part in kept))
        text.parts = kept
        return text

    def __repr__(self) -> str:
        return str(self)
