"""Rows of answers: what the engine filled -> the fields that preference, KTO and process reward training take.

A store marks answers by weights (chats/answers.py). The marks are taken out of the engine's memory, in place, before
anybody sees the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from millstream.batches import NO_LOSS, Batch
from millstream.errors import LoaderError
from millstream.loaders.made_by import longest_chat
from millstream.loaders.member import Answers, Member, RowShape
from millstream.loaders.mismatch import Mismatch, Mismatched, Place, Rows, Sequences
from millstream.store import TokenStore


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

    def __init__(self, answers: Answers, labels: str, members: Mapping[str, Member]) -> None:
        self._answers = answers
        self._shift = int(labels == "next" and answers != "stepwise")
        self._mismatch = Mismatch(members) if answers == "kto" else None

    def take(self, native: Batch, place: Place) -> Taken:
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
