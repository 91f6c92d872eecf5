"""The pieces of many rendered conversations as arrays, and their text end to end: the shape in which whole batches are
encoded without a step of Python for each piece."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millstream.chats.rendered import Piece, Rendered
from millstream.tokens import Ends, Text, join_texts


class Pieces(NamedTuple):
    """All pieces of all rows, in order. `text` is their UTF-8; piece i is `text[ends[i - 1] : ends[i]]`."""

    all: list[Piece]
    text: Text
    ends: Ends
    rows: NDArray[np.int64]  # the row that each piece belongs to
    row_ends: Ends  # where each row ends, counted in pieces
    kinds: NDArray[np.int8]
    messages: NDArray[np.int32]
    given: NDArray[np.bool_]
    assistant: NDArray[np.bool_]

    @classmethod
    def of(cls, rendered: Sequence[Rendered]) -> Pieces:
        """Lay rows end to end.

        >>> from millstream.chats.rendered import Kind
        >>> row = [Piece("<s>", Kind.scaffold, -1, False, ""), Piece("é", Kind.content, 0, True, "user")]
        >>> pieces = Pieces.of([row, [], row])
        >>> pieces.ends.tolist(), pieces.rows.tolist(), pieces.row_ends.tolist()
        ([3, 5, 8, 10], [0, 0, 2, 2], [2, 2, 4])
        """
        pieces = list(chain.from_iterable(rendered))
        counts = np.fromiter(map(len, rendered), np.int64, len(rendered))
        texts, kinds, messages, given, roles = zip(*pieces, strict=True) if pieces else ((), (), (), (), ())
        text, ends = join_texts(texts)
        return cls(
            all=pieces,
            text=text,
            ends=ends,
            rows=np.repeat(np.arange(len(rendered)), counts),
            row_ends=np.cumsum(counts),
            kinds=np.fromiter(kinds, np.int8, len(pieces)),
            messages=np.fromiter(messages, np.int32, len(pieces)),
            given=np.fromiter(given, np.bool_, len(pieces)),
            assistant=np.fromiter(map("assistant".__eq__, roles), np.bool_, len(pieces)),
        )

    @property
    def begins(self) -> Ends:
        """Where each piece begins in the text."""
        return before(self.ends)

    @property
    def row_text_ends(self) -> Ends:
        """Where each row ends in the text."""
        return np.concatenate([np.zeros(1, np.int64), self.ends])[self.row_ends]


def before(ends: Ends) -> Ends:
    """Where each part begins, of parts that lie end to end.

    >>> before(np.array([2, 5, 5])).tolist()
    [0, 2, 5]
    """
    return np.concatenate([np.zeros(1, np.int64), ends[:-1]]) if len(ends) else ends
