"""Where a huge document may be cut so that its ids stay the same.

Pre-tokenizers end a word before a single space between two visible characters of ASCII, and before a single line end
between two letters or digits; a cut there changes nothing for most tokenizers. For which is tried out, not believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from millstream.errors import TokenizerError
from millstream.tokens.flat import Ends, Text, join_texts
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
    probes = [text for text in probe_texts(tokens) if len(cut_points(join_texts([text])[0]))]
    probes += [f"a {text} b\n{text}\nc {text}" for text in (*probes[:200], *(f"1 {token} z" for token in tokens))]
    parts = [list(pieces(*join_texts([text]), cut=lambda: True, stretch=1)) for text in probes]
    whole = encode(probes)
    cut = iter(encode([piece for each in parts for _, piece in each]))
    return all(
        np.array_equal(ids, np.concatenate([next(cut) for _ in each])) for ids, each in zip(whole, parts, strict=True)
    )


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
