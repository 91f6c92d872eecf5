"""ShareGPT: `conversations: [{from, value}]`, with `system` and `tools` beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.chats.parse.conversation import Conversation, Message
from millstream.chats.parse.fields import Row, items, mapping, needed, text
from millstream.chats.parse.media import Mentioned
from millstream.chats.parse.messages import EMPTY, conversation, message_of, messages_in, unknown_role
from millstream.chats.parse.options import Options
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
