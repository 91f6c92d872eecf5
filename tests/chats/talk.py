"""Random conversations, of the kinds that a format has a form for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from millstream.records.chat import Conversation, Message, ToolCall

TEXTS = (
    *(
        "Hello",
        " two  words ",
        "\n\nlines\n",
        "",
        "🙂",
        "👩‍👩‍👧 日本",
        "<|im_end|>",
        '"quoted" {x} % \\',
        "\tTab",
        "a</think>b",
    ),
    *("<think>\nwhy\n</think>\n\nso", "<tool_response>\nx\n</tool_response>", "ﬁ ſ İ", "end/nothink", "x" * 40),
)
TOOLS: tuple[dict[str, Any], ...] = (
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Say the weather of a <|place|>.",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "A town"},
                    "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
                    "days": {"type": "array", "items": {"type": "integer"}, "nullable": True},
                    "stations": {
                        "type": "array",
                        "items": {"type": "object", "properties": {"id": {"type": "number"}}, "required": ["id"]},
                    },
                    "where": {
                        "type": "object",
                        "description": "on the globe",
                        "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
                        "required": ["lat"],
                    },
                    "either": {
                        "oneOf": [{"type": "string", "description": "one"}, {"type": "boolean", "default": True}]
                    },
                    "many": {"type": ["string", "null"]},
                    "free": {"type": "object", "additionalProperties": False},
                    "exact": {"type": "boolean", "default": False},
                },
                "required": ["place"],
            },
            "return": {"type": "string"},
        },
    },
    {"type": "function", "function": {"name": "now", "description": "The time, é\n"}},
)
ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"place": "Zürich", "days": [1, 2]},
    {},
    {"x": 1.5, "b": True, "n": None, "inner": {"Z": ["a"], "a": "<|im_end|>"}},
)


THINKING: tuple[dict[str, Any], ...] = ({}, {"enable_thinking": False}, {"enable_thinking": True})


@dataclass(frozen=True)
class Form:
    """Which conversations a format has a form for."""

    system: bool = True
    needs_system: bool = False
    later_system: bool = False
    developer: bool = False
    schemas: bool = False
    calls: int = 0  # at most so many in a turn
    text_beside_calls: bool = True
    reasoning: bool = False
    kwargs: tuple[dict[str, Any], ...] = ({},)


PLAIN = Form()
FREE = Form(later_system=True, developer=True)
FORMS = {
    "chatml": FREE,
    "qwen2.5": Form(later_system=True, schemas=True, calls=3),
    "qwen3": Form(later_system=True, schemas=True, calls=3, reasoning=True, kwargs=THINKING),
    "falcon-h1": Form(schemas=True),
    "lfm2": Form(later_system=True, developer=True, schemas=True),
    "llama2": PLAIN,
    "llama3": FREE,
    "llama3.1": Form(
        schemas=True,
        calls=1,
        text_beside_calls=False,
        kwargs=({}, {"tools_in_user_message": False}, {"date_string": "1 May 2025"}),
    ),
    "llama4": Form(schemas=True, calls=3, kwargs=({}, {"tools_in_user_message": False})),
    "gemma": Form(system=False),
    "gemma3": PLAIN,
    "gemma4": Form(schemas=True, calls=3, reasoning=True, kwargs=THINKING, developer=True),
    "mistral-v1": PLAIN,
    "mistral-v3": Form(schemas=True, calls=3, text_beside_calls=False),
    "mistral-v3-tekken": Form(schemas=True, calls=3, text_beside_calls=False),
    "mistral-v7-tekken": PLAIN,
    "phi3": Form(later_system=True),
    "phi3.5": Form(later_system=True),
    "phi4": PLAIN,
    "zephyr": Form(later_system=True),
    "vicuna": PLAIN,
    "alpaca": PLAIN,
    "deepseek-v3": Form(calls=3, later_system=True, reasoning=True),
    "deepseek-r1": Form(calls=3, later_system=True, text_beside_calls=False, reasoning=True),
    "cohere": PLAIN,
    "glm4": Form(later_system=True),
    "glm4-moe": Form(later_system=True, schemas=True, calls=3, reasoning=True, kwargs=THINKING),
    "gpt-oss": Form(schemas=True, calls=1, text_beside_calls=False, reasoning=True, developer=True),
    "granite3": Form(later_system=True, developer=True, schemas=True),
}


def as_row(conversation: Conversation) -> dict[str, Any]:
    """A conversation as JSON; its tools by name."""
    row: dict[str, Any] = {"messages": [_filled(asdict(message)) for message in conversation.messages]}
    if conversation.tools:
        row["tools"] = [tool["function"]["name"] for tool in conversation.tools]
    if conversation.template_kwargs:
        row["template_kwargs"] = conversation.template_kwargs
    return row


def of_row(row: dict[str, Any]) -> Conversation:
    """The conversation that `as_row` wrote."""
    messages = (
        Message(**{**fields, "tool_calls": tuple(ToolCall(**call) for call in fields.get("tool_calls", ()))})
        for fields in row["messages"]
    )
    tools = tuple(tool for name in row.get("tools", ()) for tool in TOOLS if tool["function"]["name"] == name)
    return Conversation(tuple(messages), tools, row.get("template_kwargs", {}))


def _filled(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value or value == ""}


def conversations(form: Form, seed: object, count: int) -> Iterator[tuple[Conversation, bool]]:
    """Conversations that a format has a form for, and whether the prompt for an answer is asked for."""
    chance = random.Random(str(seed))
    for _ in range(count):
        yield _conversation(form, chance), chance.random() < 0.5


def everything(form: Form) -> Iterator[Conversation]:
    """Every text as a question and as an answer; and, where there is reasoning, as reasoning."""
    pairs = [(Message("user", text), Message("assistant", text)) for text in TEXTS]
    opening = (Message("system", " S\n"),) if form.needs_system else ()
    yield Conversation((*opening, *(message for pair in pairs for message in pair), Message("user", " end\n")))
    if form.reasoning:
        for text in TEXTS[:4]:
            yield Conversation((Message("user", "u"), Message("assistant", "\n a", text)))


def _conversation(form: Form, chance: random.Random) -> Conversation:
    def text() -> str:
        return chance.choice(TEXTS)

    messages: list[Message] = []
    if form.needs_system or (form.system and chance.random() < 0.6):
        role = "developer" if form.developer and chance.random() < 0.3 else "system"
        messages.append(Message(role, text()))
    for _ in range(chance.randint(1, 4)):
        messages.append(Message("user", text()))
        if form.later_system and chance.random() < 0.1:
            messages.append(Message("system", text()))
        while form.calls and chance.random() < 0.4:
            messages += _exchange(form, chance)
        reasoning = text() if form.reasoning and chance.random() < 0.5 else None
        messages.append(Message("assistant", text(), reasoning))
    if chance.random() < 0.4:
        messages.pop()
    tools = tuple(chance.sample(TOOLS, chance.randint(1, 2))) if form.schemas and chance.random() < 0.5 else ()
    return Conversation(tuple(messages), tools, chance.choice(form.kwargs))


def _exchange(form: Form, chance: random.Random) -> list[Message]:
    """Calls of tools, and their results."""
    calls = tuple(
        ToolCall(chance.choice(("weather", "now")), chance.choice(ARGUMENTS), f"call{chance.randint(10000, 99999)}")
        for _ in range(chance.randint(1, form.calls))
    )
    content = chance.choice(TEXTS) if form.text_beside_calls and chance.random() < 0.5 else ""
    reasoning = chance.choice(TEXTS) if form.reasoning and chance.random() < 0.5 else None
    results = [Message("tool", chance.choice(TEXTS), tool_call_id=call.id) for call in calls]
    return [Message("assistant", content, reasoning, calls), *results]
