"""Texts end to end -> ids end to end: the shape in which whole blocks of documents are encoded.

`text` is valid UTF-8 and document i is `text[ends[i - 1] : ends[i]]`; ids and their ends lie in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from millstream.errors import TokenizerError
from millstream.sources import joined
from millstream.tokens.tokenizer import Ids, Tokenizer

Text = NDArray[np.uint8]
Ends = NDArray[np.int64]
FlatIds = tuple[Ids, Ends]


@runtime_checkable
class FlatTokenizer(Protocol):
    """What a tokenizer may have besides: blocks of documents without a Python object for each."""

    def encode_flat(self, text: Text, ends: Ends) -> FlatIds:
        """The ids of all documents end to end, and where each document ends. Called from several threads at once."""
        ...


def encode_flat(tokenizer: Tokenizer, text: Text, ends: Ends) -> FlatIds:
    """Encode a block of documents with any tokenizer, by its `encode_flat` if it has one.

    >>> from millstream.tokens.char import CharTokenizer
    >>> ids, ends = encode_flat(CharTokenizer("aé"), *join_texts(["aé", "", "é"]))
    >>> ids.tolist(), ends.tolist()
    ([0, 1, 1], [2, 2, 3])
    """
    if isinstance(tokenizer, FlatTokenizer):
        return tokenizer.encode_flat(text, ends)
    return join_ids(tokenizer.encode_batch(split_texts(text, ends)))


def unfit_documents(tokenizer: Tokenizer, text: Text, ends: Ends) -> Iterator[tuple[int, TokenizerError]]:
    """Which documents of a block cannot be encoded, and why: for when `encode_flat` refused it.

    >>> from millstream.tokens.char import CharTokenizer
    >>> [document for document, _ in unfit_documents(CharTokenizer("ab"), *join_texts(["a", "c", "b"]))]
    [1]
    """
    for document, content in enumerate(split_texts(text, ends)):
        try:
            tokenizer.encode(content)
        except TokenizerError as error:
            yield document, error


def join_texts(texts: Sequence[str]) -> tuple[Text, Ends]:
    """Lay texts end to end as UTF-8.

    >>> join_texts(["a", "é"])[1].tolist()
    [1, 3]
    """
    try:
        return joined([text.encode() for text in texts])
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"{error.object[error.start]!r} at place {error.start} is not a character",
            hint="half of a surrogate pair cannot be encoded: take it out of the text",
        ) from None


def split_texts(text: Text, ends: Ends) -> list[str]:
    """The documents as strings.

    >>> split_texts(*join_texts(["a", "", "é"]))
    ['a', '', 'é']
    """
    content = text.tobytes()
    return [content[begin:end].decode() for begin, end in _spans(ends)]


def join_ids(arrays: Sequence[Ids]) -> FlatIds:
    """Lay ids end to end."""
    ends: Ends = np.cumsum([len(array) for array in arrays], dtype=np.int64)
    return np.concatenate([np.empty(0, np.uint32), *arrays], dtype=np.uint32, casting="unsafe"), ends


def split_ids(ids: Ids, ends: Ends) -> list[Ids]:
    """The ids of each document, as views."""
    return [ids[begin:end] for begin, end in _spans(ends)]


def _spans(ends: Ends) -> Iterator[tuple[int, int]]:
    stops = ends.tolist()
    return zip([0, *stops[:-1]], stops, strict=False)
