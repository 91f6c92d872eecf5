"""What the originals of the built-in formats make of conversations.

The originals are the jinja files in the wheels of trl and axolotl, rendered by transformers.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from chats.talk import FORMS, Form, conversations
from millstream.chats.parse import Conversation, Message
from millstream.chats.templates import ChatTemplate, HistoryReasoning, Variant

TODAY = date(2026, 3, 9)


@dataclass(frozen=True)
class Original:
    """Where the original of a format is, and which conversations both sides have a form for."""

    name: str
    file: str  # "trl/…" or "axolotl/…"
    less: dict[str, Any] = field(default_factory=dict)  # what the original has no form for
    variant: Variant = "prompt"
    history: HistoryReasoning | None = None
    tokens: tuple[str, str] = ("<s>", "</s>")
    json_arguments: bool = False
    fits: Callable[[Conversation, bool], bool] = field(default=lambda conversation, asked: True)

    @property
    def form(self) -> Form:
        return replace(FORMS[self.name], **self.less)

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

    def conversations(self, seed: int, count: int) -> Iterator[tuple[Conversation, bool]]:
        for conversation, asked in conversations(self.form, f"{self.file} {seed}", count):
            if self.fits(conversation, asked):
                yield conversation, asked


def _question_last(conversation: Conversation, asked: bool) -> bool:
    """The jinja templates of Mistral forget the system message when an answer comes last."""
    return conversation.messages[0].role != "system" or conversation.messages[-1].role == "user"


def _asked_after_question(conversation: Conversation, asked: bool) -> bool:
    """The template of Phi-3 prompts for an answer after every question, and never else."""
    return asked == (conversation.messages[-1].role == "user")


NO_REASONING = {"reasoning": False}
ORIGINALS = (
    Original("chatml", "axolotl/chatml"),
    Original("qwen2.5", "trl/qwen2_5"),
    Original("qwen2.5", "trl/qwen2_5_training", variant="training"),
    Original("qwen3", "trl/qwen3"),
    Original("qwen3", "trl/qwen3_training", variant="training"),
    Original("falcon-h1", "axolotl/falcon_h1"),
    Original("lfm2", "trl/lfm2"),
    Original("lfm2", "trl/lfm2_training", variant="training"),
    Original("llama3", "trl/llama3"),
    Original("llama3", "axolotl/llama3"),
    Original("llama3", "trl/llama3_training", variant="training"),
    Original("llama3.1", "trl/llama3_2"),
    Original("llama3.1", "trl/llama3_1", {"kwargs": ({"date_string": "1 May 2025"},)}),
    Original("llama4", "axolotl/llama4"),
    Original("gemma", "trl/gemma"),
    Original("gemma", "trl/gemma_training", variant="training"),
    Original("gemma", "axolotl/gemma"),
    Original("gemma3", "trl/gemma3"),
    Original("gemma3", "trl/gemma3_training", variant="training"),
    Original("gemma3", "axolotl/gemma3"),
    Original("gemma4", "axolotl/gemma4"),
    Original("mistral-v1", "axolotl/mistral_v1"),
    Original("mistral-v3", "axolotl/mistral_v2v3", fits=_question_last),
    Original("mistral-v3-tekken", "axolotl/mistral_v3_tekken", fits=_question_last),
    Original("mistral-v7-tekken", "axolotl/mistral_v7_tekken", {"needs_system": True}),
    Original("phi3", "axolotl/phi_3", {"later_system": False}, fits=_asked_after_question),
    Original("phi3", "trl/phi3", tokens=("", "")),
    Original("phi3.5", "trl/phi3_5", tokens=("", "")),
    Original("phi3.5", "trl/phi3_5_training", tokens=("", ""), variant="training"),
    Original("phi3.5", "axolotl/phi_35"),
    Original("phi4", "axolotl/phi_4", {"needs_system": True}),
    Original("alpaca", "axolotl/alpaca"),
    Original("deepseek-v3", "axolotl/deepseek_v3", NO_REASONING, json_arguments=True),
    Original("deepseek-r1", "trl/deepseekv3", NO_REASONING, json_arguments=True),
    Original("deepseek-r1", "trl/deepseekv3_training", NO_REASONING),
    Original("deepseek-r1", "trl/deepseek_r1_distill", {"calls": 0, "later_system": False, **NO_REASONING}),
    Original(
        "deepseek-r1",
        "trl/deepseek_r1_distill_training",
        {"calls": 0, "later_system": False, **NO_REASONING},
        variant="training",
    ),
    Original("cohere", "trl/cohere"),
    Original("cohere", "trl/cohere_training", variant="training"),
    Original("cohere", "axolotl/cohere"),
    Original("glm4-moe", "trl/glm4moe"),
    Original("glm4-moe", "trl/glm4moe_training", variant="training", history="drop"),
    Original("gpt-oss", "trl/gptoss"),
    Original("gpt-oss", "trl/gptoss_training", variant="training", history="drop"),
)


def source(original: Original) -> str:
    """The text of an original."""
    package, _, name = original.file.partition("/")
    folder = {"trl": "chat_templates", "axolotl": "utils/chat_templates/templates"}[package]
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin, f"run this with `make oracles`, which installs {package}"
    return (Path(spec.origin).parent / folder / f"{name}.jinja").read_text("utf-8")


def rendered(original: Original, conversation: Conversation, *, asked: bool) -> tuple[str, list[tuple[int, int]]]:
    """What transformers makes of a conversation with the original, on the day TODAY; and its generation blocks."""
    from transformers.utils import chat_template_utils

    class Today(chat_template_utils.datetime):  # type: ignore[misc]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls(TODAY.year, TODAY.month, TODAY.day)

    text = source(original)
    before = chat_template_utils.datetime
    chat_template_utils.datetime = Today
    try:
        texts, blocks = chat_template_utils.render_jinja_template(
            conversations=[
                [as_fields(message, json_arguments=original.json_arguments) for message in conversation.messages]
            ],
            tools=list(conversation.tools) or None,
            chat_template=text,
            add_generation_prompt=asked,
            return_assistant_tokens_mask="{%- generation" in text or "{% generation" in text,
            bos_token=original.tokens[0],
            eos_token=original.tokens[1],
            **conversation.template_kwargs,
        )
    finally:
        chat_template_utils.datetime = before
    return str(texts[0]), blocks[0] if blocks else []


def as_fields(message: Message, *, json_arguments: bool) -> dict[str, Any]:
    """A message as a row would hold it."""
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
