"""Texts end to end -> ids end to end: the shape in which blocks of documents are encoded, and huge ones are cut.

`text` is valid UTF-8 and document i is `text[ends[i - 1] : ends[i]]`; ids and their ends lie in the same way.

Pre-tokenizers end a word before a single space between two visible characters of ASCII. They also end one before a
single line end between two letters or digits. A cut there changes no id for most tokenizers: `survives_cuts` tests it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from millstream.errors import TokenizerError
from millstream.sources import joined
from millstream.tokens.probe import probe_texts
from millstream.tokens.tokenizer import Ids, Tokenizer

Text = NDArray[np.uint8]
Ends = NDArray[np.int64]
FlatIds = tuple[Ids, Ends]
STRETCH = 1 << 20
"""Documents up to so many bytes are never cut, and longer ones into pieces of about this size."""
LONGEST = 1 << 24
"""More bytes than this without a place to cut are refused: the libraries would need gigabytes."""
_VISIBLE = np.zeros(256, np.bool_)
_VISIBLE[0x21:0x7F] = True
_WORD = np.zeros(256, np.bool_)
_WORD[[*b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"]] = True


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


def cut_points(text: Text) -> NDArray[np.int64]:
    """Every place before a single space between visible characters, or a single line end between letters or digits.

    >>> text, _ = join_texts(["a b,  c\\nd. é f\\n!"])
    >>> cut_points(text).tolist()
    [1, 7]
    """
    if len(text) < 3:
        return np.empty(0, np.int64)
    before, middle, after = text[:-2], text[1:-1], text[2:]
    fits = (middle == 0x20) & _VISIBLE[before] & _VISIBLE[after] | (middle == 0x0A) & _WORD[before] & _WORD[after]
    return np.flatnonzero(fits) + 1


def cut_documents(
    text: Text, ends: Ends, *, cut: Callable[[], bool], stretch: int = STRETCH
) -> Iterator[tuple[int, str]]:
    """The documents as strings with their numbers, long ones in several pieces if `cut()` says they may be."""
    begin = 0
    for document, end in enumerate(ends.tolist()):
        content = text[begin:end]
        begin = end
        places = _places(content, stretch) if len(content) > stretch and cut() else []
        for start, stop in zip([0, *places], [*places, len(content)], strict=True):
            if stop - start > LONGEST:
                raise TokenizerError(
                    f"a document has {stop - start:,} bytes without a place where it may be cut",
                    hint=f"at most {LONGEST:,} are encoded in one piece; split or drop such documents first",
                )
            yield document, content[start:stop].tobytes().decode()


def survives_cuts(encode: Callable[[Sequence[str]], Sequence[Ids]], tokens: Sequence[str]) -> bool:
    """Whether cuts leave the ids as they are, tried at every place of the probe texts."""
    texts = probe_texts(tokens)
    text, ends = join_texts(texts)
    probes = [texts[at] for at in np.unique(np.searchsorted(ends, _inside(text, ends), side="right")).tolist()]
    probes += [f"a {text} b\n{text}\nc {text}" for text in (*probes[:200], *(f"1 {token} z" for token in tokens))]
    text, ends = join_texts(probes)
    stops = np.union1d(ends, _inside(text, ends))
    ids, id_ends = join_ids(encode(probes))
    cut_ids, cut_ends = join_ids(encode(split_texts(text, stops)))
    return np.array_equal(ids, cut_ids) and np.array_equal(id_ends, cut_ends[np.searchsorted(stops, ends)])


def _inside(text: Text, ends: Ends) -> NDArray[np.int64]:
    """The places to cut of documents that lie end to end: a document's last byte has no neighbour."""
    found = cut_points(text)
    return found[~np.isin(found, [ends - 1, ends])]


def _places(content: Text, stretch: int) -> list[int]:
    """The cuts that leave pieces of at least `stretch` bytes, found a window at a time."""
    places, start = [], 0
    while len(content) - start > stretch:
        at = start + stretch
        found = None
        while found is None and at < len(content):
            window = cut_points(content[at - 1 : at + stretch + 1])
            found = at - 1 + int(window[0]) if len(window) else None
            at += stretch
        if found is None:
            break
        places.append(found)
        start = found
    return places
