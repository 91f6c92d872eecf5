"""The fields of a row: how the user names them, and each taken only if it is what it should be.

An error names the place inside the row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from millstream.errors import RecordError, SourceError
from millstream.sources import is_unicode, kind_of, short

Row: TypeAlias = Mapping[str, Any]
WRONG_TYPE = "wrong type"
NOT_UNICODE = "not Unicode"
NOT_JSON = "not JSON"
MISSING = "missing field"
ROLES = ("system", "user", "assistant", "tool", "developer")
FIELDS = frozenset(
    {
        *("messages", "conversations", "system", "tools", "chat_template_kwargs", "images", "videos", "audios"),
        *("instruction", "input", "output", "history"),
        *("text", "prompt", "completion", "chosen", "rejected", "label", "kto_tag", "completions", "labels"),
        *("input_ids", "attention_mask", "loss_mask", "completion_mask", "assistant_masks"),
    }
)
"""The fields of a row that some format reads."""
_OTHER_NAMES = {"function": "tool"}


@dataclass(frozen=True, slots=True)
class Options:
    """How rows are read.

    `columns` names the fields of the row that hold ours: `{"messages": "dialog"}`; None hides one: `{"text": None}`.
    `roles` adds names of roles: `{"bot": "assistant"}`. `inline_think=True` takes `<think>…</think>` at the beginning
    of an assistant's content as its reasoning. `calls_in_text=True` allows tool results after an assistant message
    that spells its calls in its content.

    >>> Options(roles={"bot": "robot"})
    Traceback (most recent call last):
    millstream.errors.SourceError: roles: 'bot' stands for 'robot', which is no role
      hint: choose one of system, user, assistant, tool, developer
    """

    columns: Mapping[str, str | None] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    inline_think: bool = False
    calls_in_text: bool = False
    role_of: Mapping[str, str] = field(init=False, repr=False)
    """Every name of a role -> the role."""

    def __post_init__(self) -> None:
        for name, role in self.roles.items():
            if role not in ROLES:
                raise SourceError(
                    f"roles: {name!r} stands for {role!r}, which is no role", hint=f"choose one of {', '.join(ROLES)}"
                )
        for name in self.columns:
            if name not in FIELDS:
                raise SourceError(
                    f"columns: no format has a field {name!r}",
                    hint=f'columns={{"messages": "dialog"}} reads the field dialog as messages; known: '
                    f"{', '.join(sorted(FIELDS))}",
                )
        object.__setattr__(self, "role_of", {role: role for role in ROLES} | _OTHER_NAMES | dict(self.roles))


def wrong(where: str, value: object, wanted: str) -> RecordError:
    """The error for a value of another type than the format wants.

    >>> print(wrong("messages[0].role", 7, "a string"))
    wrong type: messages[0].role is a JSON number: 7
      hint: it is a string
    """
    kind = f"JSON {kind_of(value)}"
    if kind == "JSON null" and value is not None:
        kind = f"Python {type(value).__name__}"
    return RecordError(WRONG_TYPE, f"{where} is a {kind}: {shown(value)}", hint=f"it is {wanted}")


def shown(value: object) -> str:
    """The beginning of a value as JSON, or of what Python calls it."""
    if isinstance(value, str):
        return short(value)
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = f"{type(value).__name__}(…)"
    return text if len(text) <= 60 else text[:60] + "…"


def names_of(row: Row) -> str:
    """The fields that a row has, as an error says it.

    >>> names_of({"id": 1, "text": "x"}), names_of({})
    ("'id', 'text'", 'no fields')
    """
    return ", ".join(short(str(name)) for name in list(row)[:12]) or "no fields"


def needed(row: Row, name: str, where: str = "") -> Any:
    """A field that must be there and not be null."""
    value = row.get(name)
    if value is None:
        found = f"{where or 'the row'} has no {name!r} (it has {names_of(row)})"
        hint = "pass columns={…} to rename fields, or format= to choose another format"
        raise RecordError(MISSING, found, hint=hint if not where else f"each has {name!r}")
    return value


def text(value: object, where: str) -> str:
    """A string that can be encoded.

    >>> text("é", "text")
    'é'
    """
    if not isinstance(value, str):
        raise wrong(where, value, "a string")
    if not is_unicode(value):
        raise _half_a_pair(where)
    return value


def text_or_none(value: object, where: str) -> str | None:
    """A string that can be encoded, or null."""
    return None if value is None else text(value, where)


def items(value: object, where: str) -> list[Any] | tuple[Any, ...]:
    """An array."""
    if not isinstance(value, list | tuple):
        raise wrong(where, value, "an array")
    return value


def mapping(value: object, where: str) -> Row:
    """An object, whose fields are named by strings."""
    if not isinstance(value, Mapping):
        raise wrong(where, value, "an object")
    return value


def flag(value: object, where: str) -> bool:
    """True or false, or 1 or 0, as tables have it.

    >>> flag(True, "label"), flag(0, "label")
    (True, False)
    """
    if isinstance(value, bool | int | float) and value in (0, 1):
        return bool(value)
    raise wrong(where, value, "true or false")


def from_json(value: str, where: str) -> Any:
    """What a field holds that was written as a JSON string."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RecordError(
            NOT_JSON, f"{where}: {error}; it begins {short(value)}", hint="it is an object, or one written as JSON"
        ) from None


def encodable(value: Any, where: str) -> Any:
    """A value that JSON can hold and a tokenizer can encode: templates write it into the text."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise _half_a_pair(where) from None
    except (TypeError, ValueError) as error:
        raise RecordError(
            NOT_JSON, f"{where}: {error}", hint="it holds strings, finite numbers, arrays and objects only"
        ) from None
    return value


def _half_a_pair(where: str) -> RecordError:
    return RecordError(
        NOT_UNICODE,
        f"{where} holds half of a surrogate pair (\\ud800 to \\udfff alone), which is not a character",
        hint="write the text anew from what it was made of; cutting UTF-16 in the middle does this",
    )
