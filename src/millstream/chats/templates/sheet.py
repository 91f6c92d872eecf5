"""The sheet that a built-in format writes on: what it may read, and the kinds of pieces that it may put down."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, TypeAlias

from millstream.chats import Kind, Piece, Rendered
from millstream.chats.parse import Message
from millstream.errors import TemplateError

THINK, END_THINK = "<think>", "</think>"
_SCAFFOLD, _CONTENT, _STOP = Kind.scaffold, Kind.content, Kind.stop
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(slots=True)
class Sheet:
    """One conversation on its way to pieces. `put` and its short forms leave out empty texts."""

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]]
    kwargs: Mapping[str, Any]
    bos: str
    eos: str
    date: date | None
    training: bool  # the variant whose rendering of a turn does not depend on the turns after it
    keep: bool  # reasoning of earlier turns stays
    add_prompt: bool  # end with the prompt for the next answer
    pieces: Rendered = field(default_factory=list)

    def put(self, text: str, at: int = -1, kind: Kind = Kind.scaffold, *, given: bool = False) -> None:
        """Write a text that belongs to message `at`."""
        if text:
            self.pieces.append(Piece(text, kind, at, given, self.messages[at].role if at >= 0 else ""))

    def say(self, text: str, at: int) -> None:
        """Write what message `at` says."""
        if text:
            self.pieces.append(Piece(text, Kind.content, at, True, self.messages[at].role))

    def end(self, text: str, at: int) -> None:
        """Write what ends the turn: an assistant learns it."""
        role = self.messages[at].role
        self.pieces.append(Piece(text, Kind.stop if role == "assistant" else Kind.scaffold, at, False, role))

    def think(self, opening: str, text: str, closing: str, at: int) -> None:
        """Write reasoning between its tags; an empty one is one piece that is not given."""
        if text:
            self.put(opening, at, Kind.reasoning)
            self.put(text, at, Kind.reasoning, given=True)
            self.put(closing, at, Kind.reasoning)
        else:
            self.put(opening + closing, at, Kind.reasoning)

    def call(self, at: int, *parts: str) -> None:
        """Write a tool call: texts of the format and of the data in turns, the format's first."""
        for place, part in enumerate(parts):
            self.put(part, at, Kind.tool_call, given=place % 2 == 1)

    def turn(self, head: str, text: str, end: str, tail: str, at: int) -> None:
        """Write a whole turn without tool calls. The hot one: a piece is made in one step, as its class would."""
        role = self.messages[at].role
        add, new = self.pieces.append, tuple.__new__
        add(new(Piece, (head, _SCAFFOLD, at, False, role)))
        if text:
            add(new(Piece, (text, _CONTENT, at, True, role)))
        if role != "assistant":
            add(new(Piece, (end + tail, _SCAFFOLD, at, False, role)))
            return
        add(new(Piece, (end, _STOP, at, False, role)))
        if tail:
            add(new(Piece, (tail, _SCAFFOLD, at, False, role)))

    def system_first(self) -> bool:
        """Whether the conversation opens with a system message."""
        return bool(self.messages) and self.messages[0].role == "system"

    def option(self, name: str, otherwise: str) -> None:
        """Write what the row says to its template under a name, or else what the format says itself."""
        said = self.kwargs.get(name, otherwise)
        if not isinstance(said, str):
            raise TemplateError(f"{name} is {said!r}", hint=f"{name} is a text: change chat_template_kwargs of the row")
        self.put(said, given=name in self.kwargs)

    def refuse(self, what: str, at: int, hint: str) -> TemplateError:
        """Say what this format cannot write, and of which message."""
        return TemplateError(f"message {at}: {what}", hint=hint)

    def alternate(self, first: int) -> None:
        """Check that user and assistant alternate from message `first` on, tool calls and results aside."""
        user = True
        for at, message in enumerate(self.messages[first:], first):
            if message.role == "tool" or message.tool_calls:
                continue
            if (message.role == "user") != user:
                wanted = "user" if user else "assistant"
                raise self.refuse(
                    f"the role is {message.role!r}, where this format needs {wanted!r}",
                    at,
                    "user and assistant must alternate: join neighbours of one role, or choose another format",
                )
            user = not user


Slots: TypeAlias = Callable[[Sheet], None]


def as_json(value: Any, indent: int | None = None) -> str:
    """Write JSON as chat templates do: every letter as it is, the keys in their order.

    >>> as_json({"name": "Zürich", "n": [1, 2]})
    '{"name": "Zürich", "n": [1, 2]}'
    """
    return json.dumps(value, ensure_ascii=False, indent=indent)


def inline_reasoning(message: Message) -> tuple[str, str]:
    """Split a message into reasoning and answer, where the reasoning may stand in the content between think tags.

    >>> inline_reasoning(Message("assistant", "<think>\\nhm\\n</think>\\n\\nyes"))
    ('hm', 'yes')
    """
    content = message.content
    if message.reasoning is not None:
        return message.reasoning, content
    if END_THINK not in content:
        return "", content
    parts = content.split(END_THINK)
    return parts[0].rstrip("\n").split(THINK)[-1].lstrip("\n"), parts[-1].lstrip("\n")


def day_month_year(day: date) -> str:
    """Write a date as "26 Jul 2024", whatever the locale.

    >>> day_month_year(date(2024, 7, 26))
    '26 Jul 2024'
    """
    return f"{day.day:02d} {_MONTHS[day.month - 1]} {day.year}"
