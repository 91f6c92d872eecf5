"""Prompts with the answers of other rows: what the KL term of KTO is measured on.

Each prompt gets the answer of the row before it in the order of its epoch, the first that of the last. So who meets
whom depends on the place in the run and on nothing else: not on ranks, batch sizes or where a run was resumed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.batches.batch import NO_LOSS
from millstream.loaders.member import Member
from millstream.order import Phase

Rows = npt.NDArray[Any]


class Place(NamedTuple):
    """Where the rows of a batch lie: the phase, the epoch of the run, and the place of the first row in that."""

    phase: Phase
    epoch: int
    first: int


class Sequences(NamedTuple):
    """Rows of tokens; a label lies on the token that it names."""

    ids: Rows
    labels: Rows
    lengths: npt.NDArray[np.int32]


class Answer(NamedTuple):
    """The tokens of an answer: from the first one that is trained on."""

    ids: Rows
    labels: Rows


class Mismatch:
    """Joins prompts and the answers of the rows before them."""

    def __init__(self, member: Member, name: str, seed: int) -> None:
        self._store, self._pad_id, self._name, self._seed = member.store, member.shape.pad_id, name, seed

    def rows(self, own: Sequences, real: int, place: Place) -> tuple[Sequences, list[int]]:
        """The mismatched rows of a batch of which so many rows are `real`, and the document of each answer."""
        made = Sequences(
            np.full_like(own.ids, self._pad_id), np.full_like(own.labels, NO_LOSS), np.zeros_like(own.lengths)
        )
        if not real:
            return made, [-1] * len(own.ids)
        documents = self._documents(place, real)
        other = self._stored(documents[0])
        for row in range(real):
            ids, labels = own.ids[row], own.labels[row]
            start = int((labels != NO_LOSS).argmax())
            made.lengths[row] = join(ids[:start], other, made.ids[row], made.labels[row])
            other = Answer(ids[start : own.lengths[row]], labels[start : own.lengths[row]])
        return made, documents + [-1] * (len(own.ids) - real)

    def _documents(self, place: Place, count: int) -> list[int]:
        """The documents that come before each of some rows."""
        standing = place.phase.sources[self._name]
        epoch = standing.epoch + place.epoch - place.phase.epoch
        order, _ = place.phase.order(self._name, epoch, self._seed)
        places = (np.arange(place.first, place.first + count, dtype=np.uint64) + order.samples - 1) % order.samples
        out = np.empty_like(places)
        order.at(epoch, places, out)
        return [int(document) for document in out]

    def _stored(self, document: int) -> Answer:
        start, stop = self._store.document_span(document)
        ids, weights = self._store.read(start, stop).astype(np.int64), self._store.weights(start, stop)
        first = 1 + int((weights[1:] > 0).argmax())
        return Answer(ids[first:], np.where(weights > 0, ids, NO_LOSS)[first:])


def join(prompt: Rows, answer: Answer, ids: Rows, labels: Rows) -> int:
    """Write a prompt and an answer into a row; what does not fit is cut as in pairs, the beginning of the prompt first.

    >>> ids, labels = np.zeros(4, int), np.full(4, -100)
    >>> join(np.array([1, 2, 3]), Answer(np.array([8, 9]), np.array([8, 9])), ids, labels)
    4
    >>> ids.tolist(), labels.tolist()
    ([2, 3, 8, 9], [-100, -100, 8, 9])
    """
    kept = min(len(prompt), max(1, len(ids) - len(answer.ids)))
    stop = min(len(ids), kept + len(answer.ids))
    ids[:kept] = prompt[len(prompt) - kept :]
    ids[kept:stop] = answer.ids[: stop - kept]
    labels[kept:stop] = answer.labels[: stop - kept]
    return stop
