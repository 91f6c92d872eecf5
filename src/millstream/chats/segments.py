"""Runs of text and control strings: how they lie in a batch, and their tokens put together again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millstream.chats.control import Found
from millstream.chats.masks import Spans
from millstream.chats.offsets import Placed
from millstream.chats.pieces import Pieces, before
from millstream.tokens import Ends


class Segments(NamedTuple):
    """Text end to end in runs and control strings; segment i ends at byte `ends[i]`."""

    ends: Ends
    control: NDArray[np.bool_]
    opens: NDArray[np.bool_]  # at the beginning of a row or after a control string


def segments(pieces: Pieces, controls: Found, borders: Ends) -> Segments:
    """Cut the text of a batch at control strings, ends of rows and borders."""
    row_ends = pieces.row_text_ends
    begins, stops = controls[:, 0], controls[:, 1]
    if len(borders) and len(begins):  # a border inside a control string does not cut it
        holder = np.searchsorted(begins, borders, side="right") - 1
        borders = borders[(holder < 0) | (borders >= stops[np.maximum(holder, 0)])]
    ends = np.sort(np.concatenate([begins, stops, row_ends, borders]), kind="stable")  # four sorted runs: a merge
    ends = ends[np.diff(ends, prepend=0) > 0]
    firsts = before(ends)
    control = np.zeros(len(ends), np.bool_)
    control[np.searchsorted(firsts, begins)] = True
    opens = np.zeros(len(ends), np.bool_)
    starts = np.concatenate([before(row_ends), stops])
    opens[np.searchsorted(firsts, starts[starts < (ends[-1] if len(ends) else 0)])] = True
    return Segments(ends, control, opens)


def borders(spans: Spans) -> Ends:
    """Where parts of different weight meet, or text for the model and text by it."""
    changes = (np.diff(spans.weights) != 0) | (np.diff(spans.produced) != 0)
    found: Ends = spans.ends[:-1][changes]
    return found


def with_controls(placed: Placed, run_ends: Ends, segments: Segments, controls: Found, row_ends: Ends) -> Placed:
    """Put control tokens between the tokens of runs, and count all places in the whole text."""
    runs = ~segments.control
    run_counts = np.diff(placed.ends, prepend=0)
    counts = np.ones(len(segments.ends), np.int64)
    counts[runs] = run_counts
    ends = np.cumsum(counts)
    at = ends[segments.control] - 1
    of_run = np.ones(int(ends[-1]) if len(ends) else 0, np.bool_)
    of_run[at] = False
    shift = np.repeat(before(segments.ends)[runs] - before(run_ends), run_counts)
    ids = np.empty(len(of_run), np.uint32)
    begins, stops = np.empty(len(of_run), np.int64), np.empty(len(of_run), np.int64)
    ids[of_run], begins[of_run], stops[of_run] = placed.ids, placed.begins + shift, placed.stops + shift
    begins[at], stops[at], ids[at] = controls.T
    rows = np.concatenate([np.zeros(1, np.int64), ends])[np.searchsorted(segments.ends, row_ends, side="right")]
    return Placed(ids, rows, begins, stops)


def overlap(tokens: Placed, spans: Spans) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.bool_]]:
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
