"""What rows are about: conversations to be learned, or answers to be compared, judged or checked step by step.

The rows of a store are all of one kind: batches of each have fields of their own.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from millstream.errors import RecipeError, RecordError
from millstream.records.chat import ChatRow, Judged, Preference, Stepwise

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
    """Say that a row does not belong with the others."""
    return RecordError(
        "wrong kind",
        f"this is a {kind_of(row)} row, the others are {kind} rows",
        hint="prepare each kind of rows by itself, or pass format= to say what the rows are",
    )


def media_refused(row: ChatRow) -> RecordError | None:
    """Say that a row refers to what tokens alone would have lost in silence; None if it does not."""
    media = getattr(row, "media", ())
    if not media:
        return None
    return RecordError(
        "pictures, films or sounds",
        f"it refers to {len(media)} of them, the first is {media[0].kind} {str(media[0].reference)[:80]!r}",
        hint='media="keep" delivers references with the batches of conversations, media="ignore" leaves them out',
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
