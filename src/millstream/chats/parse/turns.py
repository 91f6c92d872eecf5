"""Turns that are no messages: ShareGPT in `conversations: [{from, value}]`, Alpaca in a field for each text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.chats.parse.content import Mentioned
from millstream.chats.parse.messages import EMPTY, conversation, message_of, messages_in, unknown_role
from millstream.chats.parse.row_fields import Options, Row, items, mapping, needed, text, wrong
from millstream.chats.parse.row_types import Conversation, Message
from millstream.chats.parse.tools import written_calls
from millstream.errors import RecordError

CALL = "function_call"
NAMES = {"human": "user", "gpt": "assistant", "observation": "tool"}
"""Names of roles that messages do not have."""


def sharegpt_row(row: Row, how: Options) -> Conversation:
    """A row whose conversation is in `conversations`."""
    media: Mentioned = []
    turns = turns_in(needed(row, "conversations"), "conversations", how, media)
    # Datasets of this form often spell their calls in the text of the assistant.
    return conversation(row, with_system(row, turns), how, media, calls_in_text=True)


def turns_in(value: object, where: str, how: Options, media: Mentioned) -> list[Message]:
    """The turns of a list. Some files have messages under this name: these are read as such."""
    found = items(value, where)
    if not found:
        raise RecordError(EMPTY, f"{where} has no turns", hint="leave such rows out")
    if isinstance(found[0], Mapping) and "role" in found[0] and "from" not in found[0]:
        return messages_in(found, where, how, media)
    return [turn_in(each, f"{where}[{place}]", how, media) for place, each in enumerate(found)]


def turn_in(value: object, where: str, how: Options, media: Mentioned) -> Message:
    """One turn."""
    turn = mapping(value, where)
    name, said = needed(turn, "from", where), needed(turn, "value", where)
    if name == CALL:
        fields: dict[str, Any] = {**turn, "tool_calls": None, CALL: None}
        message = message_of("assistant", "", fields, where, how, media)
        calls = written_calls(said, f"{where}.value")
        return Message("assistant", "", message.reasoning, calls, message.name, None, message.weight)
    role = (how.role_of.get(name) or NAMES.get(name)) if isinstance(name, str) else None
    if role is None:
        raise unknown_role(name, where, how)
    return message_of(role, said, turn, where, how, media)


def with_system(row: Row, messages: list[Message]) -> list[Message]:
    """The messages with the system prompt that the row has in a field of its own."""
    system = row.get("system")
    if system is None or not text(system, "system"):
        return messages
    if messages[0].role != "system":
        return [Message("system", system), *messages]
    if messages[0].content != system:
        raise RecordError(
            "two system prompts",
            "the field 'system' and the first message differ",
            hint='keep one of them, e.g. columns={"system": None}',
        )
    return messages


def alpaca_row(row: Row, how: Options) -> Conversation:
    """A row of questions and answers in fields of their own."""
    question = text(needed(row, "instruction"), "instruction")
    more = row.get("input")
    if more is not None and text(more, "input"):
        question = f"{question}\n{more}" if question else more
    if not question:
        raise RecordError(EMPTY, "both 'instruction' and 'input' are empty", hint="leave such rows out")
    answer = text(needed(row, "output"), "output")
    messages = [*_history(row), Message("user", question), Message("assistant", answer)]
    return conversation(row, with_system(row, messages), how, [])


def _history(row: Row) -> list[Message]:
    history = row.get("history")
    messages: list[Message] = []
    for place, pair in enumerate([] if history is None else items(history, "history")):
        where = f"history[{place}]"
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise wrong(where, pair, "a pair: a question and its answer")
        messages.append(Message("user", text(pair[0], f"{where}[0]")))
        messages.append(Message("assistant", text(pair[1], f"{where}[1]")))
    return messages
