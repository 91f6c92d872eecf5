"""Prompts with the answers of other rows: what the KL term of KTO is measured on.

The rows of an epoch exchange their answers two by two, in its order; where the last one is left over it gets the answer
of the row before it. So who meets whom depends on the place in the run and on nothing else: not on ranks, batch sizes
or where a run was resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.batches import NO_LOSS
from millstream.errors import LoaderError
from millstream.loaders.member import Member
from millstream.order import Phase
from millstream.store import TokenStore

Rows = npt.NDArray[Any]


class Place(NamedTuple):
    """Where the rows of a batch lie: the phase, the epoch of the run, and the place of the first row in that."""

    phase: Phase
    epoch: int
    first: int
    seed: int


class Sequences(NamedTuple):
    """Rows of tokens; a label lies on the token that it names."""

    ids: Rows
    labels: Rows
    lengths: npt.NDArray[np.int32]


class Mismatched(NamedTuple):
    """The mismatched rows of a batch."""

    rows: Sequences
    documents: list[int]
    """Of their answers; -1 for filler."""
    cuts: list[int]
    """Tokens that did not fit into each."""


class Answer(NamedTuple):
    """The tokens of an answer: from the first one that is trained on."""

    ids: Rows
    labels: Rows


class Mismatch:
    """Joins prompts and the answers of their neighbours. `members` is the run's one source, as far as it is made."""

    def __init__(self, members: Mapping[str, Member]) -> None:
        self._members = members

    def rows(self, own: Sequences, real: int, place: Place) -> Mismatched:
        """The mismatched rows of a batch of which so many rows are `real`."""
        ((name, member),) = self._members.items()
        made = Sequences(
            np.full_like(own.ids, member.shape.pad_id), np.full_like(own.labels, NO_LOSS), np.zeros_like(own.lengths)
        )
        starts = (own.labels != NO_LOSS).argmax(axis=1).tolist()
        others, documents = _neighbours(name, member, place, real)
        cuts = [0] * len(own.ids)
        for row, (other, document) in enumerate(zip(others, documents, strict=True)):
            if 0 <= other < real:
                stop = own.lengths[other]
                answer = Answer(own.ids[other, starts[other] : stop], own.labels[other, starts[other] : stop])
            else:
                answer = _stored(member.store, document)
            prompt = own.ids[row, : starts[row]]
            made.lengths[row], cuts[row] = join(prompt, answer, made.ids[row], made.labels[row])
        return Mismatched(made, documents + [-1] * (len(own.ids) - real), cuts)


def _neighbours(name: str, member: Member, place: Place, rows: int) -> tuple[list[int], list[int]]:
    """Where the neighbour of each row stands, counted from the first row, and its document.

    No answer is empty, so a sample has the number of its document.
    """
    standing, windows = place.phase.sources[name], member.windows
    epoch = standing.epoch + place.epoch - place.phase.epoch
    order, _ = place.phase.order(name, epoch, place.seed, {} if windows is None else {name: windows})
    if order.samples < 2:
        raise LoaderError(
            f"{member.store.path}: its only answer cannot be taken for that to another prompt, as the KL term of KTO "
            "needs",
            hint="KTO needs two rows or more",
        )
    places = np.arange(place.first, place.first + rows, dtype=np.uint64) ^ np.uint64(1)
    places[places >= order.samples] = order.samples - 2
    documents = np.empty_like(places)
    order.at(epoch, places, documents)
    return (places.astype(np.int64) - place.first).tolist(), documents.tolist()


def _stored(store: TokenStore, document: int) -> Answer:
    start, stop = store.document_span(document)
    ids, weights = store.read(start, stop).astype(np.int64), store.weights(start, stop)
    first = 1 + int((weights[1:] > 0).argmax())
    return Answer(ids[first:], np.where(weights > 0, ids, NO_LOSS)[first:])


def join(prompt: Rows, answer: Answer, ids: Rows, labels: Rows) -> tuple[int, int]:
    """Write a prompt and an answer into a row; what does not fit is cut as in pairs, the beginning of the prompt first.

    Gives the tokens of the row, and how many were cut.

    >>> ids, labels = np.zeros(4, int), np.full(4, -100)
    >>> join(np.array([1, 2, 3]), Answer(np.array([8, 9]), np.array([8, 9])), ids, labels)
    (4, 1)
    >>> ids.tolist(), labels.tolist()
    ([2, 3, 8, 9], [-100, -100, 8, 9])
    """
    kept = min(len(prompt), max(1, len(ids) - len(answer.ids)))
    stop = min(len(ids), kept + len(answer.ids))
    ids[:kept] = prompt[len(prompt) - kept :]
    ids[kept:stop] = answer.ids[: stop - kept]
    labels[kept:stop] = answer.labels[: stop - kept]
    return stop, len(prompt) + len(answer.ids) - stop
