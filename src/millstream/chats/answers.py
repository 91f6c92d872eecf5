"""What rows are about, and how answers become documents of a weighted store.

The rows of a store are all of one kind, since batches of each kind have fields of their own.

* Conversations are learned: one document for each row.
* A preference is two neighbouring documents, the prompt with the better and with the worse answer.
* A judged answer is one document. Its first token is never a target, so its weight is free: 1 says good, 0 bad.
* Of steps, the last token of each weighs `RIGHT` or `WRONG`, and nothing else weighs anything.

Prompt and answer are encoded apart, so the prompt has the same ids whatever follows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias, get_args

import numpy as np

from millstream.chats.encode import NOTHING_TO_TRAIN, TOO_LONG, TRUNCATED, Encoded, Encoder
from millstream.chats.parse import (
    ChatRow,
    Conversation,
    Document,
    Judged,
    Preference,
    Side,
    Stepwise,
    wholes_of,
)
from millstream.chats.pieces import Kind, Piece, Rendered, Supervised
from millstream.chats.truncate import Limit, Pair, PairLimit, fit_pair
from millstream.errors import RecipeError, RecordError

RIGHT, WRONG = 1.0, 0.01
STEP_END = "\n"
"""What ends a step; the label of the step lies on its last token."""
RowKind: TypeAlias = Literal["chat", "preference", "kto", "stepwise"]
_KINDS: dict[type, RowKind] = {Preference: "preference", Judged: "kto", Stepwise: "stepwise"}
_TRUNCATIONS = {
    "preference": ("error", "drop", "keep_end"),
    "kto": ("error", "drop", "keep_end"),
    "stepwise": ("error", "drop", "keep_start", "keep_end"),
}


def documents_of(kind: RowKind | None) -> int:
    """How many documents of a store a row becomes, which stay together.

    >>> documents_of("preference"), documents_of("kto")
    (2, 1)
    """
    return 2 if kind == "preference" else 1


def kind_of(row: ChatRow) -> RowKind:
    """The kind of a row.

    >>> kind_of(Stepwise("2+2?", ("4",), (True,)))
    'stepwise'
    """
    return _KINDS.get(type(row), "chat")


def kind_of_format(format: str | None) -> RowKind:
    """The kind of the rows of a format.

    >>> kind_of_format("kto"), kind_of_format("alpaca")
    ('kto', 'chat')
    """
    return next((kind for kind in get_args(RowKind) if kind == format), "chat")


def wrong_kind(row: ChatRow, kind: RowKind) -> RecordError:
    """The error for a row of another kind than the others."""
    return RecordError(
        "wrong kind",
        f"this is a {kind_of(row)} row, the others are {kind} rows",
        hint="prepare each kind of rows by itself, or pass format= to say what the rows are",
    )


def check_kind(kind: RowKind, train: str, truncation: str, max_length: int | None) -> None:
    """Refuse what is about conversations where rows are answers.

    >>> check_kind("kto", "assistant", "split", 2048)
    Traceback (most recent call last):
    millstream.errors.RecipeError: truncation='split' is not for kto rows
      hint: use one of error, drop, keep_end
    """
    if kind == "chat":
        return
    if train not in ("assistant", "completion"):
        raise RecipeError(
            f"train={train!r} is about conversations, and these are {kind} rows", hint="leave it out: answers are whole"
        )
    if truncation not in _TRUNCATIONS[kind]:
        hint = f"use one of {', '.join(_TRUNCATIONS[kind])}"
        raise RecipeError(f"truncation={truncation!r} is not for {kind} rows", hint=hint)
    if max_length == 1:
        raise RecipeError("max_length=1 has no room for a prompt and an answer", hint="ask for two tokens or more")


def encode_kind(rows: Sequence[ChatRow], kind: RowKind, encoder: Encoder, limit: Limit) -> Encoded:
    """Encode rows that should be of one kind; a row of another kind has a fault."""
    right = [at for at, row in enumerate(rows) if kind_of(row) == kind]
    encode = {"chat": encoder.encode, "stepwise": _Steps(encoder).encode}.get(kind, _Answers(encoder).encode)
    if len(right) == len(rows):
        return encode(rows, limit)
    made = encode([rows[at] for at in right], limit)
    encoded = Encoded([[] for _ in rows])
    for place, at in enumerate(right):
        encoded.rows[at] = made.rows[place]
    encoded.reasons = {right[place]: reason for place, reason in made.reasons.items()}
    encoded.changes = {right[place]: changes for place, changes in made.changes.items()}
    others = {at: wrong_kind(row, kind) for at, row in enumerate(rows) if kind_of(row) != kind}
    encoded.faults = others | {right[place]: fault for place, fault in made.faults.items()}
    return encoded


class _Texts:
    """Texts of some rows, encoded all at once; a fault in one of them is a fault of its row."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self.policy = encoder, replace(encoder.policy, train="completion")

    def encode(self, rows: Sequence[ChatRow], limit: Limit) -> Encoded:
        encoded = Encoded([[] for _ in rows])
        texts: list[tuple[ChatRow, Rendered]] = []
        owners: list[int] = []
        for at, row in enumerate(rows):
            with encoded.catching_faults(at):
                found = self.texts(row)
                texts += found
                owners += [at] * len(found)
        apart, rendered = Encoded([]), {at: text for at, (_, text) in enumerate(texts)}
        made = self.encoder._each([row for row, _ in texts], rendered, self.policy, apart)
        for place, fault in apart.faults.items():
            encoded.faults.setdefault(owners[place], fault)
        parts: dict[int, list[Supervised]] = {}
        for place, owner in enumerate(owners):
            if owner not in encoded.faults:
                parts.setdefault(owner, []).append(made[place])
        for at, mine in parts.items():
            with encoded.catching_faults(at):
                encoded.rows[at] = self.joined(at, rows[at], mine, limit, encoded)
        return encoded

    def texts(self, row: ChatRow) -> list[tuple[ChatRow, Rendered]]:
        """What is encoded for a row, each with the row that says how."""
        raise NotImplementedError

    def joined(
        self, at: int, row: ChatRow, parts: list[Supervised], limit: Limit, encoded: Encoded
    ) -> list[Supervised]:
        """The documents of a row."""
        raise NotImplementedError


class _Answers(_Texts):
    """Preferences and judged answers: a prompt, and the prompt with each answer."""

    def texts(self, row: ChatRow) -> list[tuple[ChatRow, Rendered]]:
        assert isinstance(row, Preference | Judged)
        answers = (row.completion,) if isinstance(row, Judged) else (row.chosen, row.rejected)
        _check_sides(row, answers)
        whole = list(wholes_of(row).values())
        rendered = [self.encoder._render(each) for each in whole]
        prompt = rendered[0][: _prompt_pieces(whole[0], rendered[0])]
        return [(whole[0], prompt), *zip(whole, rendered, strict=True)]

    def joined(
        self, at: int, row: ChatRow, parts: list[Supervised], limit: Limit, encoded: Encoded
    ) -> list[Supervised]:
        prompt, *wholes = parts
        size = len(prompt)
        if not all(np.array_equal(whole.ids[:size], prompt.ids) for whole in wholes):
            raise RecordError(
                "prompt changes",
                "the prompt is rendered or encoded differently with its answers",
                hint="use the training variant of the template; a prompt may not end inside a word of the answer",
            )
        answers = [whole.part(size, len(whole)) for whole in wholes]
        pair = Pair(prompt, answers[0], answers[-1])
        fitting = _fitted(pair, limit)
        if fitting is None:
            encoded.reasons[at] = TOO_LONG
            return []
        encoded.change(at, TRUNCATED, fitting is not pair)
        made = [_concatenated([fitting.prompt, answer]) for answer in fitting[1 : 1 + len(wholes)]]
        if not all(each.trained for each in made) and limit.untrained != "keep":
            if limit.untrained == "drop":
                encoded.reasons[at] = NOTHING_TO_TRAIN
                return []
            raise RecordError(NOTHING_TO_TRAIN, "an answer has no token that carries loss", hint='untrained="drop"')
        if isinstance(row, Judged):
            made[0].weights[0] = RIGHT if row.label else 0
        return made


class _Steps(_Texts):
    """Steps: prompt and steps are encoded each by itself."""

    def texts(self, row: ChatRow) -> list[tuple[ChatRow, Rendered]]:
        assert isinstance(row, Stepwise)
        if not row.prompt:
            raise _no_prompt()
        texts = [row.prompt, *(part for step in row.completions for part in (step, STEP_END))]
        return [(Document(text), [Piece(text, Kind.content, 1, True, "assistant")] if text else []) for text in texts]

    def joined(
        self, at: int, row: ChatRow, parts: list[Supervised], limit: Limit, encoded: Encoded
    ) -> list[Supervised]:
        assert isinstance(row, Stepwise)
        made = _concatenated(parts)
        made.weights[:] = 0
        ends = np.cumsum([len(part) for part in parts])[2::2]
        made.weights[ends - 1] = np.where(row.labels, RIGHT, WRONG)
        return self.encoder._fit(at, row, made, limit, self.policy, encoded)


def _check_sides(row: Preference | Judged, answers: Sequence[Side]) -> None:
    if len({isinstance(side, str) for side in (row.prompt, *answers)}) > 1:
        raise RecordError("mixed sides", "one side is a string, another messages", hint="write all sides alike")
    if row.prompt == "":
        raise _no_prompt()


def _prompt_pieces(row: ChatRow, rendered: Rendered) -> int:
    """How many pieces come before the answer: the prompt, and what the template writes ahead of an answer."""
    first = row.prompt_messages if isinstance(row, Conversation) else 1
    for at, piece in enumerate(rendered):
        if piece.message >= (first or 0) and piece.kind != Kind.scaffold:
            if not at:
                raise _no_prompt()
            return at
    raise RecordError("empty answer", "the template writes nothing for the answer", hint="leave such rows out")


def _no_prompt() -> RecordError:
    return RecordError("no prompt", "the prompt is empty", hint="leave such rows out, or begin the prompt with a token")


def _fitted(pair: Pair, limit: Limit) -> Pair | None:
    """The pair under the limit, None if it is left out. A token of the prompt stays: it predicts the answer's first."""
    longest = len(pair.prompt) + max(len(pair.chosen), len(pair.rejected))
    if limit.max_length is None or longest <= limit.max_length:
        return pair
    if limit.truncation == "error":
        raise RecordError(
            TOO_LONG,
            f"{longest} tokens, where {limit.max_length} are allowed",
            hint='pass truncation="keep_end" to shorten the prompt first, or "drop"',
        )
    return fit_pair(pair, PairLimit(limit.max_length, min_prompt=1)) if limit.truncation == "keep_end" else None


def _concatenated(parts: Sequence[Supervised]) -> Supervised:
    """Rows end to end, in memory of their own."""
    return Supervised(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.messages for part in parts]),
        truncated=any(part.truncated for part in parts),
    )
