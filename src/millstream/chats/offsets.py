"""Runs of text -> ids, and the bytes of the text that each token covers.

For byte-level vocabularies the places follow from the sizes of tokens alone. That is believed only of runs whose sizes
add up; for the others the tokenizer's own library is asked, whose places count characters: all tokens of a character
that is several tokens have the place of the whole character.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millstream.chats.pieces import before
from millstream.chats.plain import Plain
from millstream.errors import TokenizerError
from millstream.tokens import Ends, FlatIds, Ids, Text, Tokenizer, encode_flat

Places = NDArray[np.int64]


class Placed(NamedTuple):
    """Tokens, where those of each run end, and the bytes [begin, stop) of the text that each covers."""

    ids: Ids
    ends: Ends
    begins: Places
    stops: Places


def place(plain: Plain, text: Text, ends: Ends, continuing: NDArray[np.bool_], *, coarse: bool = False) -> Placed:
    """Encode runs that lie end to end. `continuing` runs go on inside a text; `coarse` is enough where every run is of
    one weight: a token then covers its whole run.

    >>> from millstream.chats.plain import plain_tokenizer
    >>> from millstream.tokens import BPETokenizer, join_texts
    >>> tokenizer = plain_tokenizer(BPETokenizer.train(["mill mill mill"], vocab_size=260))
    >>> placed = place(tokenizer, *join_texts(["mill é"]), np.zeros(1, bool))
    >>> placed.begins.tolist(), placed.stops.tolist()
    ([0, 4, 5, 6], [4, 5, 6, 7])
    """
    ids, id_ends = _encode(plain, text, ends, continuing)
    counts = np.diff(id_ends, prepend=0)
    if coarse:
        return Placed(ids, id_ends, np.repeat(before(ends), counts), np.repeat(ends, counts))
    if plain.sizes is None:
        unsure = np.arange(len(ends))
        stops = np.zeros(len(ids), np.int64)
        begins = stops.copy()
    else:
        begins, stops, unsure = _by_size(plain, ids, id_ends, text, ends, continuing)
    for run in unsure.tolist():
        first, last = int(id_ends[run] - counts[run]), int(id_ends[run])
        begin = int(ends[run - 1]) if run else 0
        tokenizer = plain.continuing if continuing[run] else plain.opening
        places = _by_library(tokenizer, text[begin : ends[run]], ids[first:last]) + begin
        begins[first:last], stops[first:last] = places[:, 0], places[:, 1]
    return Placed(ids, id_ends, begins, stops)


def place_whole(tokenizer: Tokenizer, text: str) -> tuple[Ids, Places, Places]:
    """The tokens of a whole row by the library itself, which finds control strings in it, and the bytes of each."""
    ids, places = _offsets(tokenizer, text)
    return ids, places[:, 0], places[:, 1]


def _encode(plain: Plain, text: Text, ends: Ends, continuing: NDArray[np.bool_]) -> FlatIds:
    """Encode all runs, in one call where all get the same treatment."""
    if plain.continuing is plain.opening or not continuing.any():
        return encode_flat(plain.opening, text, ends)
    lengths = np.diff(ends, prepend=0)
    inside = np.repeat(continuing, lengths)
    later, later_ends = encode_flat(plain.continuing, text[inside], np.cumsum(lengths[continuing]))
    first, first_ends = encode_flat(plain.opening, text[~inside], np.cumsum(lengths[~continuing]))
    counts = np.empty(len(ends), np.int64)
    counts[continuing], counts[~continuing] = np.diff(later_ends, prepend=0), np.diff(first_ends, prepend=0)
    ids = np.empty(len(later) + len(first), np.uint32)
    of_later = np.repeat(continuing, counts)
    ids[of_later], ids[~of_later] = later, first
    return ids, np.cumsum(counts)


def _by_size(
    plain: Plain, ids: Ids, id_ends: Ends, text: Text, ends: Ends, continuing: NDArray[np.bool_]
) -> tuple[Places, Places, Places]:
    """Where tokens are by their sizes, and the runs for which that cannot be believed."""
    assert plain.sizes is not None
    sizes = plain.sizes[ids]
    stops = np.cumsum(sizes)
    totals = np.diff(np.concatenate([np.zeros(1, np.int64), stops])[id_ends], prepend=0)
    lengths = np.diff(ends, prepend=0)
    if plain.marks_spaces:
        prefixed = ~continuing & (totals == lengths + 1)
        sizes[before(id_ends)[prefixed]] -= 1  # the space in front is not of the text
        totals -= prefixed
        stops = np.cumsum(sizes)
    wrong = totals != lengths
    if wrong.any():
        counts = np.diff(id_ends, prepend=0)
        stops += np.repeat(before(ends) - before(np.cumsum(totals)), counts)
    wrong[altered_runs(plain, text, ends)] = True
    return stops - sizes, stops, np.flatnonzero(wrong)


def altered_runs(plain: Plain, text: Text, ends: Ends) -> list[int]:
    """The runs that a normalizer changes, or that hold the sign for a space: only others keep their bytes."""
    if not (plain.composes or plain.marks_spaces) or not len(text) or int(text.max()) < 0x80:
        return []
    runs = np.unique(np.searchsorted(ends, np.flatnonzero(text >= 0x80), side="right")).tolist()
    texts = [text[(ends[run - 1] if run else 0) : ends[run]].tobytes().decode() for run in runs]
    return [run for run, content in zip(runs, texts, strict=True) if plain.alters(content)]


def _by_library(tokenizer: Tokenizer, text: Text, ids: Ids) -> NDArray[np.int64]:
    found, places = _offsets(tokenizer, text.tobytes().decode())
    if not np.array_equal(found, ids):
        raise TokenizerError(
            f"{tokenizer.name}: its library gives other ids than its engine for {text[:60].tobytes()!r}",
            hint='load the tokenizer with engine="reference"',
        )
    return places


def _offsets(tokenizer: Tokenizer, text: str) -> tuple[Ids, NDArray[np.int64]]:
    """The ids of a text and the bytes that each covers; a token without characters lies at one of the text."""
    if not hasattr(tokenizer, "offsets"):
        raise TokenizerError(
            f"{tokenizer.name} does not say which characters its tokens cover",
            hint='pass boundary="split", which encodes each part on its own, or use a tokenizer.json',
        )
    ids, places = tokenizer.offsets([text])[0]
    if not text.isascii():
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        sizes = 1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000)
        places = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])[places]
    return ids, places
