"""Lists of messages, as OpenAI writes them: `messages: [{role, content, …}]`.

Reasoning is a field of one of three names, or the text in <think> tags before the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.chats.parse.content import COLUMNS, Mentioned, in_order, joined_parts, media_of, stretches_of, weight_of
from millstream.chats.parse.row_fields import (
    Options,
    Row,
    encodable,
    from_json,
    items,
    mapping,
    names_of,
    needed,
    shown,
    text,
    text_or_none,
    wrong,
)
from millstream.chats.parse.row_types import Conversation, Media, Message, Stretch
from millstream.chats.parse.tools import calls_of, check_results, tools_of
from millstream.errors import RecordError
from millstream.sources import is_unicode

EMPTY = "empty conversation"
NO_ASSISTANT = "no assistant turn"
UNKNOWN_ROLE = "unknown role"
BESIDES = frozenset({"tools", "chat_template_kwargs", *COLUMNS.values()})
_REASONING = ("reasoning_content", "reasoning", "thinking")
_OPEN, _CLOSE = "<think>", "</think>"
_SPEAKERS = ("user", "assistant")
_MAY_LACK_CONTENT = ("tool_calls", "function_call", *_REASONING)


def messages_row(row: Row, how: Options) -> Conversation:
    """A row whose conversation is in `messages`."""
    media: Mentioned = []
    messages = messages_in(needed(row, "messages"), "messages", how, media)
    return conversation(row, messages, how, media)


def messages_in(value: object, where: str, how: Options, media: Mentioned) -> list[Message]:
    """The messages of a list; media that their parts name are added to `media`."""
    found = items(value, where)
    if not found:
        raise RecordError(EMPTY, f"{where} has no messages", hint="leave such rows out")
    role_of, plain = how.role_of, not how.inline_think
    messages = []
    for place, each in enumerate(found):
        # Nearly every message has these two fields and nothing else: the fast path, without texts of errors.
        if plain and type(each) is dict and len(each) == 2:
            role, content = each.get("role"), each.get("content")
            if type(role) is str and type(content) is str and role in role_of and is_unicode(content):
                messages.append(Message(role_of[role], content))
                continue
        messages.append(message_in(each, f"{where}[{place}]", how, media))
    return messages


def message_in(value: object, where: str, how: Options, media: Mentioned) -> Message:
    """One message."""
    message = mapping(value, where)
    name = needed(message, "role", where)
    if not isinstance(name, str) or name not in how.role_of:
        raise unknown_role(name, where, how)
    if "content" not in message and all(message.get(each) is None for each in _MAY_LACK_CONTENT):
        raise RecordError(
            "missing field", f"{where} has no 'content' (it has {names_of(message)})", hint="it may be empty"
        )
    return message_of(how.role_of[name], message.get("content"), message, where, how, media)


def message_of(role: str, content: Any, fields: Row, where: str, how: Options, media: Mentioned) -> Message:
    """A message of this role and content; `fields` hold what else is said about it."""
    if len(fields) == 2 and type(content) is str and not how.inline_think:
        return Message(role, text(content, f"{where}.content"))
    stretches: list[Stretch] = []
    is_null = content is None
    if is_null:
        content = ""
    elif isinstance(content, list | tuple):
        content, stretches = joined_parts(content, f"{where}.content", media)
    elif isinstance(content, str):
        content = text(content, f"{where}.content")
    else:
        raise wrong(f"{where}.content", content, "a string, null or an array of parts")
    all_stretches = in_order([*stretches, *stretches_of(fields, content, where)], where)
    reasoning = _reasoning_of(fields, where)
    if how.inline_think and role == "assistant" and reasoning is None:
        reasoning, content, all_stretches = _split_think(content, all_stretches, where)
    calls = calls_of(fields, where)
    if calls and role != "assistant":
        raise RecordError("misplaced call", f"{where} is by {role} and calls a tool", hint="only the assistant does")
    if is_null and role in _SPEAKERS and not (calls or reasoning):
        raise RecordError(
            "null content", f"{where}.content is null", hint='leave the row out, or write "" if nothing is meant'
        )
    return Message(
        role,
        content,
        reasoning,
        calls,
        text_or_none(fields.get("name"), f"{where}.name"),
        text_or_none(fields.get("tool_call_id"), f"{where}.tool_call_id"),
        weight_of(fields, where),
        all_stretches,
    )


def unknown_role(name: object, where: str, how: Options) -> RecordError:
    """The error for an unknown role."""
    return RecordError(
        UNKNOWN_ROLE,
        f"{where} is by {shown(name)}",
        hint=f"known roles: {', '.join(how.role_of)}; pass roles={{…}} to add names",
    )


def conversation(
    row: Row,
    messages: Sequence[Message],
    how: Options,
    media: Mentioned,
    *,
    prompt_messages: int | None = None,
    calls_in_text: bool = False,
) -> Conversation:
    """Messages of which some are to be learned, with all that the row says besides."""
    check_answer(messages, "the conversation")
    check_results(messages, calls_in_text=calls_in_text or how.calls_in_text)
    if BESIDES.isdisjoint(row) and not media:
        return Conversation(tuple(messages), prompt_messages=prompt_messages)
    tools, kwargs, all_media = besides(row, messages, media)
    return Conversation(tuple(messages), tools, kwargs, all_media, prompt_messages)


def check_answer(messages: Sequence[Message], what: str) -> None:
    """Refuse messages without one of the assistant."""
    if "assistant" not in [each.role for each in messages]:
        found = f"{what} has messages by {', '.join(dict.fromkeys(each.role for each in messages))} only"
        raise RecordError(NO_ASSISTANT, found, hint="there is nothing to learn from such a row: leave it out")


def besides(row: Row, messages: Sequence[Message], media: Mentioned) -> tuple[tuple[Row, ...], Row, tuple[Media, ...]]:
    """Tools, arguments of the template, and media of a row."""
    kwargs = row.get("chat_template_kwargs")
    if kwargs is None or kwargs == "":
        kwargs = {}
    else:
        where = "chat_template_kwargs"
        kwargs = dict(encodable(mapping(from_json(kwargs, where) if isinstance(kwargs, str) else kwargs, where), where))
    return tools_of(row), kwargs, media_of(row, messages, media)


def _reasoning_of(message: Row, where: str) -> str | None:
    """The reasoning in a field of its own.

    >>> _reasoning_of({"role": "assistant", "thinking": "hm"}, "")
    'hm'
    """
    found = {name: text(message[name], f"{where}.{name}") for name in _REASONING if message.get(name) is not None}
    if len(set(found.values())) > 1:
        raise RecordError(
            "reasoning twice", f"{where} has {' and '.join(found)}, which differ", hint="keep one of these fields"
        )
    return next(iter(found.values()), None)


def _split_think(content: str, stretches: Sequence[Stretch], where: str) -> tuple[str | None, str, tuple[Stretch, ...]]:
    """Reasoning, answer, and the stretches of the answer. Newlines around both belong to the tags.

    >>> _split_think("<think>\\nhm\\n</think>\\n\\nYes.", [], "")
    ('hm', 'Yes.', ())
    >>> _split_think("Yes.", [], "")
    (None, 'Yes.', ())
    """
    if not content.lstrip().startswith(_OPEN):
        return None, content, tuple(stretches)
    begin, end = content.find(_OPEN) + len(_OPEN), content.find(_CLOSE)
    if end < 0:
        raise RecordError(
            "open <think>",
            f"{where} begins with <think>, which is never closed",
            hint="the answer was cut: leave it out",
        )
    answer = content[end + len(_CLOSE) :].lstrip("\n")
    cut = len(content) - len(answer)
    if any(each.start < cut for each in stretches):
        raise RecordError(
            "flags in <think>",
            f"{where}: a stretch with a weight of its own begins in the reasoning",
            hint="put the reasoning into reasoning_content, or pass inline_think=False",
        )
    kept = tuple(Stretch(each.start - cut, each.stop - cut, each.weight) for each in stretches)
    return content[begin:end].strip("\n"), answer, kept
