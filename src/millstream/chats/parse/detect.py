"""The format of a row by its fields. A row that fits two formats is an error that names both, never a guess."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from millstream.chats.parse.messages import messages_row
from millstream.chats.parse.prompts import (
    completion_row,
    document_row,
    judged_row,
    preference_row,
    stepwise_row,
    tokens_row,
)
from millstream.chats.parse.row_fields import Options, Row, names_of
from millstream.chats.parse.row_types import ChatRow
from millstream.chats.parse.turns import alpaca_row, sharegpt_row
from millstream.errors import RecordError, SourceError

UNKNOWN = "unknown format"

Parse = Callable[[Row, Options], ChatRow]


class ChatFormat(NamedTuple):
    """A format: the sets of fields that it is known by, and how a row of it is read."""

    known_by: tuple[frozenset[str], ...]
    parse: Parse


def _format(parse: Parse, *known_by: str) -> ChatFormat:
    return ChatFormat(tuple(frozenset(each.split()) for each in known_by), parse)


FORMATS: dict[str, ChatFormat] = {
    "messages": _format(messages_row, "messages"),
    "sharegpt": _format(sharegpt_row, "conversations"),
    "alpaca": _format(alpaca_row, "instruction output"),
    "completion": _format(completion_row, "prompt completion"),
    "text": _format(document_row, "text"),
    "preference": _format(preference_row, "chosen rejected", "prompt chosen rejected"),
    "kto": _format(
        judged_row,
        "prompt completion label",
        "prompt completion kto_tag",
        "messages kto_tag",
        "conversations kto_tag",
        "instruction output kto_tag",
    ),
    "stepwise": _format(stepwise_row, "prompt completions labels"),
    "tokens": _format(tokens_row, "input_ids"),
}


def chat_format(name: str) -> ChatFormat:
    """The format of a name.

    >>> chat_format("chatml")
    Traceback (most recent call last):
    millstream.errors.SourceError: format='chatml' is unknown
      hint: choose one of messages, sharegpt, alpaca, completion, text, preference, kto, stepwise, tokens
    """
    if name not in FORMATS:
        raise SourceError(f"format={name!r} is unknown", hint=f"choose one of {', '.join(FORMATS)}")
    return FORMATS[name]


def detect(row: Row) -> str:
    """The name of the format of a row; fields that are null count as absent.

    A format that is known by more fields is meant rather than one that is known by some of them.

    >>> detect({"prompt": "2+2?", "completion": "4"}), detect({"prompt": "2+2?", "completion": "4", "label": True})
    ('completion', 'kto')
    >>> detect({"messages": [], "text": "x"})
    Traceback (most recent call last):
    millstream.errors.RecordError: ambiguous format: the fields 'messages', 'text' fit messages and text
      hint: pass format="messages" or format="text", or hide fields: columns={"text": None}
    """
    fields = {name for name, value in row.items() if value is not None}
    fitting = [(keys, name) for name, each in FORMATS.items() for keys in each.known_by if keys <= fields]
    names = _unique(name for keys, name in fitting if not any(keys < other for other, _ in fitting))
    if len(names) == 1:
        return names[0]
    if not names:
        raise RecordError(
            UNKNOWN,
            f"no format is known by these fields: {names_of(row)}",
            hint='rename them, e.g. columns={"messages": "dialog"}; known formats: ' + ", ".join(FORMATS),
        )
    choices = " or ".join(f'format="{name}"' for name in names)
    used = _unique(key for keys, name in fitting if name in names for key in sorted(keys))
    raise RecordError(
        "ambiguous format",
        f"the fields {', '.join(map(repr, used))} fit {' and '.join(names)}",
        hint=f'pass {choices}, or hide fields: columns={{"{used[-1]}": None}}',
    )


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
