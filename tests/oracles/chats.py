"""Random conversations, and what the original of each built-in format makes of them.

The originals are the jinja files in the wheels of trl and axolotl, rendered by transformers, and the code of fschat.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from millstream.chats import ChatTemplate
from millstream.chats.template import HistoryReasoning, Variant
from millstream.records.chat.conversation import Conversation, Message, ToolCall

TODAY = date(2026, 3, 9)
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
TOOLS = (
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


@dataclass(frozen=True)
class Original:
    """Where the original of a format is, and which conversations both sides have a form for."""

    name: str
    file: str  # "trl/…" or "axolotl/…"
    system: bool = True
    needs_system: bool = False
    later_system: bool = False
    developer: bool = False
    strict: bool = False  # user and assistant alternate, and a question comes first
    schemas: bool = False
    calls: int = 0
    text_beside_calls: bool = True
    json_arguments: bool = False
    reasoning: bool = False
    variant: Variant = "prompt"
    history: HistoryReasoning | None = None
    tokens: tuple[str, str] = ("<s>", "</s>")
    kwargs: tuple[dict[str, Any], ...] = ({},)
    fits: Callable[[Conversation, bool], bool] = field(default=lambda conversation, asked: True)

    def template(self) -> ChatTemplate:
        bos, eos = self.tokens
        return ChatTemplate.of(
            self.name,
            bos_token=bos,
            eos_token=eos,
            date=TODAY,
            variant=self.variant,
            history_reasoning=self.history,
        )


def _ends_with_user(conversation: Conversation, asked: bool) -> bool:
    return conversation.messages[0].role != "system" or conversation.messages[-1].role == "user"


def _asked_after_user(conversation: Conversation, asked: bool) -> bool:
    return asked == (conversation.messages[-1].role == "user")


THINKING: tuple[dict[str, Any], ...] = ({}, {"enable_thinking": False}, {"enable_thinking": True})
ORIGINALS = (
    Original("chatml", "axolotl/chatml", later_system=True, developer=True),
    Original("qwen2.5", "trl/qwen2_5", later_system=True, schemas=True, calls=3),
    Original("qwen2.5", "trl/qwen2_5_training", later_system=True, schemas=True, calls=3, variant="training"),
    Original("qwen3", "trl/qwen3", later_system=True, schemas=True, calls=3, reasoning=True, kwargs=THINKING),
    Original(
        "qwen3", "trl/qwen3_training", later_system=True, schemas=True, calls=3, reasoning=True, variant="training"
    ),
    Original("falcon-h1", "axolotl/falcon_h1", schemas=True),
    Original("lfm2", "trl/lfm2", later_system=True, developer=True, schemas=True),
    Original("lfm2", "trl/lfm2_training", schemas=True, variant="training"),
    Original("llama3", "trl/llama3", later_system=True, developer=True),
    Original("llama3", "axolotl/llama3", later_system=True),
    Original("llama3", "trl/llama3_training", later_system=True, variant="training"),
    Original(
        "llama3.1",
        "trl/llama3_2",
        schemas=True,
        calls=1,
        text_beside_calls=False,
        kwargs=({}, {"tools_in_user_message": False}, {"date_string": "1 May 2025"}),
    ),
    Original(
        "llama3.1", "trl/llama3_1", schemas=True, calls=1, text_beside_calls=False, kwargs=({"date_string": "x"},)
    ),
    Original("llama4", "axolotl/llama4", schemas=True, calls=3, kwargs=({}, {"tools_in_user_message": False})),
    Original("gemma", "trl/gemma", system=False, strict=True),
    Original("gemma", "trl/gemma_training", system=False, strict=True, variant="training"),
    Original("gemma", "axolotl/gemma", system=False, strict=True),
    Original("gemma3", "trl/gemma3", strict=True),
    Original("gemma3", "trl/gemma3_training", strict=True, variant="training"),
    Original("gemma3", "axolotl/gemma3", strict=True),
    Original("gemma4", "axolotl/gemma4", schemas=True, calls=3, reasoning=True, kwargs=THINKING, developer=True),
    Original("mistral-v1", "axolotl/mistral_v1", strict=True),
    Original(
        "mistral-v3",
        "axolotl/mistral_v2v3",
        strict=True,
        schemas=True,
        calls=3,
        text_beside_calls=False,
        fits=_ends_with_user,
    ),
    Original(
        "mistral-v3-tekken",
        "axolotl/mistral_v3_tekken",
        strict=True,
        schemas=True,
        calls=3,
        text_beside_calls=False,
        fits=_ends_with_user,
    ),
    Original("mistral-v7-tekken", "axolotl/mistral_v7_tekken", needs_system=True),
    Original("phi3", "axolotl/phi_3", strict=True, fits=_asked_after_user),
    Original("phi3", "trl/phi3", later_system=True, tokens=("", "")),
    Original("phi3.5", "trl/phi3_5", later_system=True, tokens=("", "")),
    Original("phi3.5", "trl/phi3_5_training", later_system=True, tokens=("", ""), variant="training"),
    Original("phi3.5", "axolotl/phi_35", later_system=True),
    Original("phi4", "axolotl/phi_4", needs_system=True),
    Original("alpaca", "axolotl/alpaca"),
    Original("deepseek-v3", "axolotl/deepseek_v3", calls=3, json_arguments=True, later_system=True),
    Original("deepseek-r1", "trl/deepseekv3", calls=3, json_arguments=True, later_system=True, text_beside_calls=False),
    Original("deepseek-r1", "trl/deepseekv3_training", calls=3, later_system=True, text_beside_calls=False),
    Original("deepseek-r1", "trl/deepseek_r1_distill"),
    Original("deepseek-r1", "trl/deepseek_r1_distill_training", variant="training"),
    Original("cohere", "trl/cohere", strict=True),
    Original("cohere", "trl/cohere_training", strict=True, variant="training"),
    Original("cohere", "axolotl/cohere", strict=True),
    Original("glm4-moe", "trl/glm4moe", later_system=True, schemas=True, calls=3, reasoning=True, kwargs=THINKING),
    Original(
        "glm4-moe",
        "trl/glm4moe_training",
        later_system=True,
        schemas=True,
        calls=3,
        reasoning=True,
        variant="training",
        history="drop",
        kwargs=THINKING,
    ),
    Original(
        "gpt-oss",
        "trl/gptoss_training",
        schemas=True,
        calls=1,
        text_beside_calls=False,
        reasoning=True,
        developer=True,
        variant="training",
        history="drop",
    ),
    Original("gpt-oss", "trl/gptoss", schemas=True, calls=1, text_beside_calls=False, reasoning=True, developer=True),
)


def source(original: Original) -> str:
    """The text of an original."""
    package, _, name = original.file.partition("/")
    folder = {"trl": "chat_templates", "axolotl": "utils/chat_templates/templates"}[package]
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin, f"run this with `make oracles`, which installs {package}"
    return (Path(spec.origin).parent / folder / f"{name}.jinja").read_text("utf-8")


def rendered(original: Original, conversation: Conversation, *, asked: bool) -> str:
    """What transformers makes of a conversation with the original, on the day TODAY."""
    from transformers.utils import chat_template_utils

    class Today(chat_template_utils.datetime):  # type: ignore[misc]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls(TODAY.year, TODAY.month, TODAY.day)

    before = chat_template_utils.datetime
    chat_template_utils.datetime = Today
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            conversations=[
                [as_fields(message, json_arguments=original.json_arguments) for message in conversation.messages]
            ],
            tools=list(conversation.tools) or None,
            chat_template=source(original),
            add_generation_prompt=asked,
            bos_token=original.tokens[0],
            eos_token=original.tokens[1],
            **conversation.template_kwargs,
        )
    finally:
        chat_template_utils.datetime = before
    return str(texts[0])


def as_fields(message: Message, *, json_arguments: bool) -> dict[str, Any]:
    """A message as a row would hold it."""
    import json

    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        fields["reasoning_content"] = message.reasoning
    if message.tool_calls:
        fields["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": json.dumps(call.arguments, ensure_ascii=False)
                    if json_arguments
                    else dict(call.arguments),
                },
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    return fields


def conversations(original: Original, seed: int, count: int) -> Iterator[tuple[Conversation, bool]]:
    """Conversations that an original has a form for, and whether the prompt for an answer is asked for."""
    chance = random.Random(f"{original.file} {seed}")
    made = 0
    while made < count:
        conversation = _conversation(original, chance)
        asked = chance.random() < 0.5
        if original.fits(conversation, asked):
            made += 1
            yield conversation, asked


def _conversation(original: Original, chance: random.Random) -> Conversation:
    def text() -> str:
        return chance.choice(TEXTS)

    messages: list[Message] = []
    if original.needs_system or (original.system and chance.random() < 0.6):
        role = "developer" if original.developer and chance.random() < 0.3 else "system"
        messages.append(Message(role, text()))
    for _ in range(chance.randint(1, 4)):
        messages.append(Message("user", text()))
        if original.later_system and chance.random() < 0.1:
            messages.append(Message("system", text()))
        while original.calls and chance.random() < 0.4:
            messages += _exchange(original, chance)
        reasoning = text() if original.reasoning and chance.random() < 0.5 else None
        messages.append(Message("assistant", text(), reasoning))
    if chance.random() < 0.4:
        messages.pop()
    tools = tuple(chance.sample(TOOLS, chance.randint(1, 2))) if original.schemas and chance.random() < 0.5 else ()
    return Conversation(tuple(messages), tools, chance.choice(original.kwargs))


def _exchange(original: Original, chance: random.Random) -> list[Message]:
    """Calls of tools, and their results."""
    calls = tuple(
        ToolCall(chance.choice(("weather", "now")), chance.choice(ARGUMENTS), f"call{chance.randint(10000, 99999)}")
        for _ in range(chance.randint(1, original.calls))
    )
    content = chance.choice(TEXTS) if original.text_beside_calls and chance.random() < 0.5 else ""
    reasoning = chance.choice(TEXTS) if original.reasoning and chance.random() < 0.5 else None
    results = [Message("tool", chance.choice(TEXTS), tool_call_id=call.id) for call in calls]
    return [Message("assistant", content, reasoning, calls), *results]
