"""Where a huge document may be cut so that its ids stay the same.

Pre-tokenizers end a word before a single space between two visible characters of ASCII, and before a single line end
between two letters or digits; a cut there changes nothing for most tokenizers. For which is tried out, not believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from millstream.errors import TokenizerError
from millstream.tokens.flat import Ends, Text, join_ids, join_texts, split_texts
from millstream.tokens.probe import probe_texts
from millstream.tokens.tokenizer import Ids

STRETCH = 1 << 20
"""Documents up to so many bytes are never cut, and longer ones into pieces of about this size."""
LONGEST = 1 << 24
"""More bytes than this without a place to cut are refused: the libraries would need gigabytes."""
_VISIBLE = np.zeros(256, np.bool_)
_VISIBLE[0x21:0x7F] = True
_WORD = np.zeros(256, np.bool_)
_WORD[[*b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"]] = True


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


def pieces(text: Text, ends: Ends, *, cut: Callable[[], bool], stretch: int = STRETCH) -> Iterator[tuple[int, str]]:
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
    """The places to cut of documents that lie end to end: none takes the neighbour of its last byte for its own."""
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
