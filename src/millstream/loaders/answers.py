"""Rows of answers: what the engine filled -> the fields that preference, KTO and process reward training take.

A store marks answers by weights (chats/answers.py). The marks are taken out of the engine's memory, in place, before
the rows are delivered.

The KL term of KTO is measured on prompts with the answers of other rows. The rows of an epoch exchange their answers
two by two, in its order; a last one that is left over gets the answer of the row before it. So the pairs depend on the
place in the run and on nothing else: not on ranks, batch sizes or where a run was resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from millstream.batches import NO_LOSS, Batch
from millstream.errors import LoaderError
from millstream.loaders.lost_data import longest_chat
from millstream.loaders.rows import Answers, RowShape, RowSource
from millstream.order import Phase
from millstream.store import TokenStore

Rows = npt.NDArray[Any]


class BatchPlace(NamedTuple):
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


class KtoPairs:
    """Joins prompts and the answers of their neighbours. `members` is the run's one source, as far as it is made."""

    def __init__(self, members: Mapping[str, RowSource]) -> None:
        self._members = members

    def rows(self, own: Sequences, real: int, place: BatchPlace) -> Mismatched:
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


def _neighbours(name: str, member: RowSource, place: BatchPlace, rows: int) -> tuple[list[int], list[int]]:
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


def answers_of(kind: str | None) -> Answers | None:
    """The kind of rows that are answers.

    >>> answers_of("kto"), answers_of("chat"), answers_of(None)
    ('kto', None, None)
    """
    return next((each for each in get_args(Answers) if each == kind), None)


def check_length(store: TokenStore, answers: Answers | None, length: int) -> None:
    """Refuse rows that are too short for the answers of a store: they were shortened once, with care."""
    longest = longest_chat(store)
    if answers is not None and (longest is None or longest > length):
        raise LoaderError(
            f"{store.path}: its {answers} rows have up to {longest or 'any number of'} tokens, and "
            f"max_length={length} would cut answers off",
            hint=f"pass max_length={longest} or more" if longest else "prepare the rows with a max_length",
        )


def check_choices(answers: Answers, shape: RowShape, *, loss: str, labels: str | None) -> None:
    """Refuse what is only for conversations.

    >>> check_choices("kto", RowShape(64, "packed"), loss="token", labels=None)
    Traceback (most recent call last):
    millstream.errors.LoaderError: kto rows cannot be packed
      hint: leave out packing=True: each answer has a row of its own
    """
    if shape.documents == "packed":
        raise LoaderError(
            f"{answers} rows cannot be packed", hint="leave out packing=True: each answer has a row of its own"
        )
    if shape.by_length:
        raise LoaderError(
            f"{answers} rows cannot be grouped by length: some of them belong together",
            hint="leave out group_by_length and max_tokens",
        )
    if answers == "kto" and shape.pad_multiple:
        raise LoaderError(
            "kto rows cannot be padded to the longest of their batch: prompts get the answers of other rows, too",
            hint="leave out pad_to: rows have max_length",
        )
    if loss != "token":
        raise LoaderError(
            f"loss={loss!r} is for conversations: what {answers} losses are a mean of is the trainer's",
            hint="leave it out",
        )
    if answers == "stepwise" and labels == "next":
        raise LoaderError(
            "labels='next' is not for stepwise rows: the label of a step lies on its own last token",
            hint="leave it out",
        )


@dataclass
class Taken:
    """What rows of answers have besides tokens."""

    facts: dict[str, Any] = field(default_factory=dict)
    kl: Mismatched | None = None


class AnswerRows:
    """Takes the marks out of filled rows. This runs for every batch: keep it lean."""

    def __init__(self, answers: Answers, labels: str, members: Mapping[str, RowSource]) -> None:
        self._answers = answers
        self._shift = int(labels == "next" and answers != "stepwise")
        self._mismatch = KtoPairs(members) if answers == "kto" else None

    def take(self, native: Batch, place: BatchPlace) -> Taken:
        """Change the labels of a filled batch to what they mean, and say what else is known of its rows."""
        taken = Taken({"answers": self._answers, "label_shift": self._shift})
        if self._answers == "preference":
            taken.facts["pairs"] = native.facts[2] // 2
        elif self._mismatch is None:
            name_steps(native.column(1), native.weights)
        else:
            ids, labels = native.inputs_and_labels
            taken.facts["label"] = (labels[:, 0] != NO_LOSS).tolist()
            labels[:, 0] = NO_LOSS
            taken.kl = self._mismatch.rows(Sequences(ids, labels, native.lengths), native.facts[2], place)
            taken.facts["kl_document"] = taken.kl.documents
            if self._shift:
                for column in (labels, taken.kl.rows.labels):
                    shift(column, NO_LOSS)
                if native.weights is not None:
                    shift(native.weights, 0)
        return taken


def name_steps(labels: Rows, weights: Rows | None) -> None:
    """Write 1 over the label of each right step and 0 over that of each wrong one.

    >>> import numpy as np
    >>> labels = np.array([[-100, 7, 9]])
    >>> name_steps(labels, np.array([[0, 1, 0.01]]))
    >>> labels.tolist()
    [[-100, 1, 0]]
    """
    steps = labels != NO_LOSS
    labels[steps] = 1 if weights is None else weights[steps] == 1


def shift(column: Rows, nothing: int) -> None:
    """Move what is said of each token to the place before it, which predicts it."""
    column[:, :-1] = column[:, 1:]
    column[:, -1] = nothing
