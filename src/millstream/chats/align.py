"""Runs of text -> tokens, the bytes that each covers, and the weights of those bytes.

A batch is cut into runs of text and control strings. In byte-level vocabularies the place of a token follows from the
sizes of the tokens before it. This holds only for runs whose sizes add up; for the others the tokenizer's own library
is asked. Its places count characters: all tokens of one character have the place of the whole character.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millstream.chats.control import Found
from millstream.chats.masks import Spans
from millstream.chats.pieces import Pieces, begins_of
from millstream.errors import TokenizerError
from millstream.tokens import Ends, FlatIds, Ids, PlainVocabulary, Text, Tokenizer, encode_flat

Places = NDArray[np.int64]


class PlacedTokens(NamedTuple):
    """Tokens, where those of each run end, and the bytes [begin, stop) of the text that each covers."""

    ids: Ids
    ends: Ends
    begins: Places
    stops: Places


class Segments(NamedTuple):
    """Text end to end in runs and control strings; segment i ends at byte `ends[i]`."""

    ends: Ends
    control: NDArray[np.bool_]
    opens: NDArray[np.bool_]  # at the beginning of a row or after a control string


def place_tokens(
    plain: PlainVocabulary, text: Text, ends: Ends, continuing: NDArray[np.bool_], *, coarse: bool = False
) -> PlacedTokens:
    """Encode runs that lie end to end. `continuing` runs lie inside a text; `coarse` is enough where every run is of
    one weight: a token then covers its whole run.

    >>> from millstream.tokens import BPETokenizer, join_texts, plain_tokenizer
    >>> tokenizer = plain_tokenizer(BPETokenizer.train(["mill mill mill"], vocab_size=260))
    >>> placed = place_tokens(tokenizer, *join_texts(["mill é"]), np.zeros(1, bool))
    >>> placed.begins.tolist(), placed.stops.tolist()
    ([0, 4, 5, 6], [4, 5, 6, 7])
    """
    ids, id_ends = _encode(plain, text, ends, continuing)
    counts = np.diff(id_ends, prepend=0)
    if coarse:
        return PlacedTokens(ids, id_ends, np.repeat(begins_of(ends), counts), np.repeat(ends, counts))
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
    return PlacedTokens(ids, id_ends, begins, stops)


def place_whole_row(tokenizer: Tokenizer, text: str) -> tuple[Ids, Places, Places]:
    """The tokens of a whole row by the library itself, which finds control strings in it, and the bytes of each."""
    ids, places = _offsets(tokenizer, text)
    return ids, places[:, 0], places[:, 1]


def altered_runs(plain: PlainVocabulary, text: Text, ends: Ends) -> list[int]:
    """The runs that a normalizer changes, or that hold the sign for a space: only others keep their bytes."""
    if not (plain.composes or plain.marks_spaces) or not len(text) or int(text.max()) < 0x80:
        return []
    runs = np.unique(np.searchsorted(ends, np.flatnonzero(text >= 0x80), side="right")).tolist()
    texts = [text[(ends[run - 1] if run else 0) : ends[run]].tobytes().decode() for run in runs]
    return [run for run, content in zip(runs, texts, strict=True) if plain.alters(content)]


def segments(pieces: Pieces, controls: Found, borders: Ends) -> Segments:
    """Cut the text of a batch at control strings, ends of rows and borders."""
    row_ends = pieces.row_text_ends
    begins, stops = controls[:, 0], controls[:, 1]
    if len(borders) and len(begins):  # a border inside a control string does not cut it
        holder = np.searchsorted(begins, borders, side="right") - 1
        borders = borders[(holder < 0) | (borders >= stops[np.maximum(holder, 0)])]
    ends = np.sort(np.concatenate([begins, stops, row_ends, borders]), kind="stable")  # four sorted runs: a merge
    ends = ends[np.diff(ends, prepend=0) > 0]
    firsts = begins_of(ends)
    control = np.zeros(len(ends), np.bool_)
    control[np.searchsorted(firsts, begins)] = True
    opens = np.zeros(len(ends), np.bool_)
    starts = np.concatenate([begins_of(row_ends), stops])
    opens[np.searchsorted(firsts, starts[starts < (ends[-1] if len(ends) else 0)])] = True
    return Segments(ends, control, opens)


def borders(spans: Spans) -> Ends:
    """Where parts of different weight meet, or text for the model and text by it."""
    changes = (np.diff(spans.weights) != 0) | (np.diff(spans.produced) != 0)
    found: Ends = spans.ends[:-1][changes]
    return found


def with_controls(
    placed: PlacedTokens, run_ends: Ends, segments: Segments, controls: Found, row_ends: Ends
) -> PlacedTokens:
    """Put control tokens between the tokens of runs, and count all places in the whole text."""
    runs = ~segments.control
    run_counts = np.diff(placed.ends, prepend=0)
    counts = np.ones(len(segments.ends), np.int64)
    counts[runs] = run_counts
    ends = np.cumsum(counts)
    at = ends[segments.control] - 1
    of_run = np.ones(int(ends[-1]) if len(ends) else 0, np.bool_)
    of_run[at] = False
    shift = np.repeat(begins_of(segments.ends)[runs] - begins_of(run_ends), run_counts)
    ids = np.empty(len(of_run), np.uint32)
    begins, stops = np.empty(len(of_run), np.int64), np.empty(len(of_run), np.int64)
    ids[of_run], begins[of_run], stops[of_run] = placed.ids, placed.begins + shift, placed.stops + shift
    begins[at], stops[at], ids[at] = controls.T
    rows = np.concatenate([np.zeros(1, np.int64), ends])[np.searchsorted(segments.ends, row_ends, side="right")]
    return PlacedTokens(ids, rows, begins, stops)


def overlap(tokens: PlacedTokens, spans: Spans) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.bool_]]:
    """The weight and the message of each token, and whether it lies in parts of different weight."""
    of_byte = np.repeat(np.arange(len(spans.ends), dtype=np.int32), np.diff(spans.ends, prepend=0))
    first = of_byte[np.minimum(tokens.begins, len(of_byte) - 1)]
    last = of_byte[np.maximum(tokens.stops, tokens.begins + 1) - 1]
    weights, other = spans.weights[first], spans.weights[last]
    straddles = weights != other
    weights = np.minimum(weights, other)
    for token in np.flatnonzero(last - first > 1).tolist():
        within = spans.weights[first[token] : last[token] + 1]
        weights[token] = within.min()
        straddles[token] = within.min() != within.max()
    return weights, spans.messages[first], straddles


def _encode(plain: PlainVocabulary, text: Text, ends: Ends, continuing: NDArray[np.bool_]) -> FlatIds:
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
    plain: PlainVocabulary, ids: Ids, id_ends: Ends, text: Text, ends: Ends, continuing: NDArray[np.bool_]
) -> tuple[Places, Places, Places]:
    """Where tokens are by their sizes, and the runs for which that cannot be believed."""
    assert plain.sizes is not None
    sizes = plain.sizes[ids]
    stops = np.cumsum(sizes)
    totals = np.diff(np.concatenate([np.zeros(1, np.int64), stops])[id_ends], prepend=0)
    lengths = np.diff(ends, prepend=0)
    if plain.marks_spaces:
        prefixed = ~continuing & (totals == lengths + 1)
        sizes[begins_of(id_ends)[prefixed]] -= 1  # the space in front is not of the text
        totals -= prefixed
        stops = np.cumsum(sizes)
    wrong = totals != lengths
    if wrong.any():
        counts = np.diff(id_ends, prepend=0)
        stops += np.repeat(begins_of(ends) - begins_of(np.cumsum(totals)), counts)
    wrong[altered_runs(plain, text, ends)] = True
    return stops - sizes, stops, np.flatnonzero(wrong)


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
