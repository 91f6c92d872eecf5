"""A jinja template -> pieces: the texts of the data are known by their spans, the rest is the template's.

Where the template has `generation` blocks, they say what the assistant writes. Where it has none, an answer reaches
from the end of the generation prompt to the end of its turn. Both are learned from a small conversation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date as Date  # noqa: N812 - `date` is the name of the argument
from functools import lru_cache
from typing import Any

from millstream.chats import Kind, Rendered
from millstream.chats.parse import Conversation, Message, ToolCall
from millstream.chats.templates.jinja_pieces import (
    MARK_IT,
    KnownSpan,
    TurnFormat,
    by_blocks,
    by_turn_format,
    pieces_between,
)
from millstream.chats.templates.sandbox import Sandbox
from millstream.chats.templates.traced import GENERATION, LOST, EndlessTemplate, Mark, spans_of, trace
from millstream.errors import TemplateError

_TOKEN = re.compile(r"<[|｜][^<>|｜\s]+[|｜]>")
_PROBE = (Message("user", "Hello there."), Message("assistant", "Good morning."))


class JinjaTemplate:
    """A compiled template with its settings."""

    def __init__(self, source: str, *, bos: str, eos: str, date: Date | None, training: bool) -> None:
        self._made_of = (source, bos, eos, date, training)
        self._render, self._marked = _compiled(source, date)
        self._tokens = {"bos_token": bos, "eos_token": eos}
        self._turn_format: TurnFormat | None = None
        if training and not self._marked:
            raise TemplateError('variant="training" with a jinja template that marks no answers', hint=MARK_IT)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, self._made_of

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """The tokens of both ends of a text, and what looks like a token in the template's own text."""
        own = "".join(piece.text for piece in self._probe() if not piece.given)
        return tuple(dict.fromkeys(filter(None, (*self._tokens.values(), *_TOKEN.findall(own)))))

    @property
    def stop(self) -> tuple[str, ...]:
        """The end of an answer in a small conversation."""
        ends = (piece.text.strip() for piece in self._probe() if piece.kind == Kind.stop)
        return tuple(dict.fromkeys(filter(None, ends)))

    def render(self, conversation: Conversation, *, add_generation_prompt: bool) -> Rendered:
        """Turn a conversation into pieces."""
        traced = self._text(conversation, add_generation_prompt=add_generation_prompt)
        text, spans = str.__str__(traced), sorted(spans_of(traced), key=lambda span: (span.start, span.stop))
        if any(span.mark == LOST for span in spans):
            raise TemplateError(
                "the template formats or repeats a text of the conversation, so that its parts cannot be told apart",
                hint="write it with + or ~ in the template",
            )
        roles = [message.role for message in conversation.messages]
        data = [
            KnownSpan(start, stop, mark.kind, mark.message, True) for start, stop, mark in spans if mark != GENERATION
        ]
        if "assistant" not in roles:
            return pieces_between(text, data, roles)
        turns = self._learned()
        if self._marked:
            blocks = [span for span in spans if span.mark == GENERATION]
            return pieces_between(text, by_blocks(text, data, blocks, roles, turns), roles, turns)

        def tail(count: int, with_prompt: bool) -> str:  # noqa: FBT001 - as it is called
            return self._tail(conversation, count, with_prompt=with_prompt)

        return pieces_between(text, by_turn_format(text, data, roles, turns, tail), roles, turns)

    def _text(self, conversation: Conversation, *, add_generation_prompt: bool) -> str:
        tools = trace(conversation.tools, Mark(-1, Kind.scaffold))
        return self._render(
            {
                **self._tokens,
                "documents": None,
                **trace(conversation.template_kwargs, Mark(-1, Kind.scaffold)),
                "messages": [_fields(message, at) for at, message in enumerate(conversation.messages)],
                "tools": tools or None,
                "add_generation_prompt": add_generation_prompt,
            }
        )

    def _probe(self) -> Rendered:
        try:
            return self.render(Conversation(_PROBE), add_generation_prompt=False)
        except EndlessTemplate:  # each further conversation would take as long
            raise
        except TemplateError:
            return []

    def _learned(self) -> TurnFormat:
        """What this template writes round an answer, learned once."""
        if self._turn_format is None:
            try:
                bare = self._tail(Conversation(_PROBE), 1, with_prompt=False)
                between = self._tail(Conversation(_PROBE), 1, with_prompt=True)
                end = self._tail(Conversation(_PROBE), 2, with_prompt=False)
            except TemplateError as error:
                if self._marked:
                    return TurnFormat("", "", ())
                raise TemplateError(
                    f"where an answer ends cannot be learned, as a small conversation fails: {error.message}",
                    hint=MARK_IT,
                ) from error
            ends = dict.fromkeys(filter(None, (end, end.removesuffix(self._tokens["eos_token"]))))
            self._turn_format = TurnFormat(between, between.removeprefix(bare), tuple(ends))
        return self._turn_format

    def _tail(self, conversation: Conversation, count: int, *, with_prompt: bool) -> str:
        """What follows the last text of the first so many messages."""
        shorter = replace(conversation, messages=conversation.messages[:count])
        text = self._text(shorter, add_generation_prompt=with_prompt)
        last = max((span.stop for span in spans_of(text) if span.mark != GENERATION), default=0)
        return str.__getitem__(text, slice(last, None))


@lru_cache(maxsize=64)
def _compiled(source: str, date: Date | None) -> tuple[Callable[[dict[str, Any]], str], bool]:
    """A template as a function of its variables, and whether it marks what the assistant writes."""
    sandbox = Sandbox(date)
    return sandbox.compiled(source), sandbox.has_generation(source)


def _again(source: str, bos: str, eos: str, date: Date | None, training: bool) -> JinjaTemplate:  # noqa: FBT001
    return JinjaTemplate(source, bos=bos, eos=eos, date=date, training=training)


def _fields(message: Message, at: int) -> dict[str, Any]:
    """A message as templates know it."""
    fields: dict[str, Any] = {"role": message.role, "content": trace(message.content, Mark(at, Kind.content))}
    if message.reasoning is not None:
        reasoning = trace(message.reasoning, Mark(at, Kind.reasoning))
        fields |= {"thinking": reasoning, "reasoning_content": reasoning}
    if message.tool_calls:
        fields["tool_calls"] = [_call(call, Mark(at, Kind.tool_call)) for call in message.tool_calls]
    for name, value in (("name", message.name), ("tool_call_id", message.tool_call_id)):
        if value is not None:
            fields[name] = trace(value, Mark(at, Kind.scaffold))
    return fields


def _call(call: ToolCall, mark: Mark) -> dict[str, Any]:
    function = {"name": trace(call.name, mark), "arguments": trace(call.arguments, mark)}
    fields = {"type": "function", "function": function}
    return fields if call.id is None else {"id": trace(call.id, mark), **fields}
