"""Fill in the middle: a document's middle is moved behind its end, so that a causal model learns to write it."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from millstream.batches import NO_LOSS
from millstream.errors import LoaderError
from millstream.loaders.transforms import PerRow, Row

Ids = npt.NDArray[np.int64]
SENTINELS = 3


def fill_in_the_middle(
    prefix_id: int,
    suffix_id: int,
    middle_id: int,
    *,
    rate: float = 0.5,
    spm_rate: float = 0.5,
    end_id: int | None = None,
    labels: Literal["next", "same"] = "next",
) -> PerRow:
    """Cut documents into prefix, middle and suffix at two random tokens, and put the middle last.

    As prefix-suffix-middle, `<prefix> P <suffix> S <middle> M`, or as suffix-prefix-middle,
    `<prefix> <suffix> S <middle> P M`. Every token is learned. A row keeps its length: the suffix gives up the room
    that the three sentinels take, and a document whose suffix is too short for that stays as it is.

    >>> row = {"input_ids": np.arange(10, 20), "labels": np.append(np.arange(11, 20), -100), "length": np.array([10])}
    >>> moved = fill_in_the_middle(1, 2, 3, rate=1.0, spm_rate=0.0)(row, np.random.default_rng(8))
    >>> moved["input_ids"].tolist()
    [1, 10, 2, 13, 14, 15, 16, 3, 11, 12]
    >>> moved["labels"].tolist()
    [10, 2, 13, 14, 15, 16, 3, 11, 12, -100]

    Args:
        prefix_id: The token in front of the prefix.
        suffix_id: The token in front of the suffix.
        middle_id: The token in front of the middle.
        rate: The share of documents that are cut; the others stay.
        spm_rate: The share of those that become suffix-prefix-middle.
        end_id: The token that ends a document: it stays last, and documents of a row are cut one by one. Without it,
            documents are those that `position_ids` keep apart, else a row is one document.
        labels: What the loader's `labels=` is.
    """
    for name, share in (("rate", rate), ("spm_rate", spm_rate)):
        if not 0 <= share <= 1:
            raise LoaderError(f"{name} must be a share between 0 and 1, not {share!r}", hint="0.5 is a common choice")
    if labels not in ("next", "same"):
        raise LoaderError(f"labels={labels!r} is unknown", hint="use 'next' or 'same', as the loader does")

    def move(row: Row, rng: np.random.Generator) -> Row:
        for start, stop in _segments(row):
            tokens = _sequence(row, start, stop, labels)
            for first, last in _documents(tokens, end_id):
                has_end = int(end_id is not None and tokens[last - 1] == end_id)
                body = tokens[first : last - has_end]
                body[...] = _moved(body, (prefix_id, suffix_id, middle_id), rate, spm_rate, rng)
            _put(row, start, stop, tokens, labels)
        return row

    return PerRow(move, relabels=True)


def _moved(body: Ids, sentinels: tuple[int, int, int], rate: float, spm_rate: float, rng: np.random.Generator) -> Ids:
    """A document in its new order. All dice are thrown, whatever they show."""
    chosen, spm = rng.random() < rate, rng.random() < spm_rate
    first, second = sorted(rng.integers(0, len(body) + 1, 2).tolist())
    head, middle, tail = body[:first], body[first:second], body[second:]
    if not chosen or len(tail) < SENTINELS:
        return body
    tail = tail[:-SENTINELS]
    prefix, suffix, infix = ([sentinel] for sentinel in sentinels)
    parts = (prefix, suffix, tail, infix, head, middle) if spm else (prefix, head, suffix, tail, infix, middle)
    return np.concatenate([np.asarray(part, np.int64) for part in parts])


def _segments(row: Row) -> list[tuple[int, int]]:
    """The stretches of a row that see only themselves."""
    length = int(row["length"][0])
    if length == 0:
        return []
    starts = np.flatnonzero(row["position_ids"][:length] == 0).tolist() if "position_ids" in row else [0]
    return list(pairwise([*starts, length]))


def _sequence(row: Row, start: int, stop: int, labels: str) -> Ids:
    """The tokens of a segment, with the target behind its end where it has one."""
    inputs, targets = row["input_ids"][start:stop].astype(np.int64), row["labels"][start:stop]
    shifted = labels == "next"
    learned, expected = (targets[:-1], inputs[1:]) if shifted else (targets[1:], inputs[1:])
    if not np.array_equal(learned, expected):
        raise LoaderError(
            f"fill_in_the_middle(labels={labels!r}) got a row whose labels are not its tokens, or not all of them",
            hint="pass the labels= of the loader, and rows in which every token is learned",
        )
    return np.append(inputs, targets[-1]) if shifted and targets[-1] != NO_LOSS else inputs


def _documents(tokens: Ids, end_id: int | None) -> list[tuple[int, int]]:
    ends = [] if end_id is None else (np.flatnonzero(tokens == end_id) + 1).tolist()
    bounds = [0, *ends, *([len(tokens)] if not ends or ends[-1] < len(tokens) else [])]
    return list(pairwise(bounds))


def _put(row: Row, start: int, stop: int, tokens: Ids, labels: str) -> None:
    count = stop - start
    row["input_ids"][start:stop] = tokens[:count]
    if labels == "same":
        row["labels"][start + 1 : stop] = tokens[1:]
        if row["labels"][start] != NO_LOSS:
            row["labels"][start] = tokens[0]
    else:
        row["labels"][start:stop] = np.append(tokens[1:], NO_LOSS)[:count]
