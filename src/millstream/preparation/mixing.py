"""Documents in a keyed order, group by group, so that a trainer can follow the writer.

A store of conversations is read window by window in its first epoch, while it is written. So its documents are mixed
before they are written: those of a few parts at first, so that training starts at once, then of more and more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millstream.order import SampleOrder
from millstream.preparation.part import Part
from millstream.store import numbered

MOST_PARTS = 16
_AT_ONCE = 1 << 13


@dataclass(frozen=True)
class Mixing:
    """How documents are mixed: part of what a store is made from."""

    seed: int | None
    """None: documents stay in the order of the files."""
    unit: int = 1
    """Neighbouring documents that stay together: those of a pair."""

    @staticmethod
    def ends_group(parts: int) -> bool:
        """Whether a group ends after so many parts: after 1, 2, 4, … and then after every 16.

        >>> [parts for parts in range(80) if Mixing.ends_group(parts)]
        [1, 2, 4, 8, 16, 32, 48, 64]
        """
        return parts > 0 and (parts % MOST_PARTS == 0 or (parts < MOST_PARTS and parts & (parts - 1) == 0))


@dataclass(frozen=True, slots=True)
class WaitingPart:
    """A part that waits for its group."""

    part: Part
    file: int
    rows_before: int


@dataclass(frozen=True, slots=True)
class MixedDocuments:
    """Some documents of several parts, mixed: tokens end to end, and where each came from."""

    tokens: NDArray[np.uint32]
    ends: NDArray[np.int64]
    origins: NDArray[np.int64]


def mixed(held: list[WaitingPart], mixing: Mixing, number: int) -> Iterator[MixedDocuments]:
    """Mix the documents of some parts; which order that is follows from the seed and the number of the group.

    The documents come some thousand at a time, so that nothing of the size of the group is made beside the parts.
    """
    lengths = np.concatenate([np.diff(each.part.ends, prepend=0) for each in held])
    origins = np.concatenate([numbered(each.part.origins, each.file, each.rows_before) for each in held])
    parts = np.repeat(np.arange(len(held)), [len(each.part.ends) for each in held])
    stops = np.concatenate([each.part.ends for each in held])
    order = _order(len(lengths), mixing, number)
    for begin in range(0, len(order), _AT_ONCE):
        some = order[begin : begin + _AT_ONCE]
        places = (parts[some], stops[some] - lengths[some], stops[some])
        pieces = [held[part].part.tokens[a:b] for part, a, b in zip(*(p.tolist() for p in places), strict=True)]
        yield MixedDocuments(np.concatenate(pieces), np.cumsum(lengths[some]), origins[some])


def _order(documents: int, mixing: Mixing, number: int) -> NDArray[np.int64]:
    """Which document comes when; those of a unit stay together."""
    seed, unit = mixing.seed, mixing.unit
    if seed is None or not documents:
        return np.arange(documents)
    units = documents // unit
    order = SampleOrder(units, seed=seed, name="\0mixing").at(np.arange(units), epoch=number).astype(np.int64)
    return np.repeat(order * unit, unit) + np.tile(np.arange(unit), units)
