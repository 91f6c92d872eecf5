"""What flows through this folder: pieces of text that know what they are, and rows of weighted tokens.

    "<|im_start|>assistant\\n"   scaffold, message 1
    "Hello!"                    content,  message 1, given
    "<|im_end|>"                stop,     message 1
    "\\n"                        scaffold, message 1

A template renders a conversation into pieces, which only say where each text comes from; masks.py decides later which
are trained. `Pieces` holds many rows as arrays with their text end to end: a batch is encoded without a step of
Python for each piece. `Supervised` is the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from millstream.tokens import Ends, Ids, Text, join_texts


class Kind(IntEnum):
    """What a piece of a rendered conversation is."""

    scaffold = 0  # supplied by the template: headers, control tokens, newlines, default system prompts, tool schemas
    content = 1  # text of a message
    reasoning = 2  # text of its reasoning, and the tags around it that the model must produce
    tool_call = 3  # a rendered tool call that the model must produce
    stop = 4  # what ends an assistant turn and must be trained


class Piece(NamedTuple):
    """A stretch of a rendered conversation, never empty."""

    text: str
    kind: Kind
    message: int  # index of the message it belongs to; -1: none
    given: bool  # True: text of the data; False: text of the template, in which control strings are control tokens
    role: str  # role of that message; "": none


Rendered: TypeAlias = list[Piece]  # in order; the texts joined are the rendered conversation


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
        return begins_of(self.ends)

    @property
    def row_text_ends(self) -> Ends:
        """Where each row ends in the text."""
        return np.concatenate([np.zeros(1, np.int64), self.ends])[self.row_ends]


@dataclass(frozen=True, slots=True, eq=False)
class Supervised:
    """Tokens, each with the weight of its own loss (not that of the next token) and its message (-1: none).

    `straddlers` are tokens that lie in parts of different weight and got the smaller one; `truncated` says that tokens
    of the row are missing.
    """

    ids: Ids
    weights: NDArray[np.float32]
    messages: NDArray[np.int32]
    straddlers: int = 0
    truncated: bool = False

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def trained(self) -> int:
        """How many tokens are trained. The first cannot be: nothing comes before it."""
        return int(np.count_nonzero(self.weights[1:]))

    def part(self, start: int, stop: int) -> Supervised:
        """The tokens [start, stop) as a row of their own."""
        span = slice(start, stop)
        return replace(self, ids=self.ids[span], weights=self.weights[span], messages=self.messages[span])

    def cut(self, start: int, stop: int) -> Supervised:
        """The tokens [start, stop) as a row that is marked as truncated."""
        return replace(self.part(start, stop), truncated=True)


def begins_of(ends: Ends) -> Ends:
    """Where each part begins, of parts that lie end to end.

    >>> begins_of(np.array([2, 5, 5])).tolist()
    [0, 2, 5]
    """
    return np.concatenate([np.zeros(1, np.int64), ends[:-1]]) if len(ends) else ends
