"""What the originals of the formats made of conversations, pinned: `tests/oracles/make_chat_goldens.py` asked them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from chats.talk import of_row
from millstream.chats.parse import Conversation, Message
from millstream.chats.templates import ChatTemplate
from oracles.chats import TODAY

GOLDEN: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "golden/templates.json").read_text("utf-8")
)
SUVA = Conversation(
    tuple(Message(role, text) for role, text in zip(["system", "user", "assistant", "user"], "SUAV", strict=True))
)


def text_of(template: ChatTemplate, conversation: Conversation, *, asked: bool) -> str:
    return "".join(piece.text for piece in template.render(conversation, add_generation_prompt=asked))


@pytest.mark.parametrize("key", GOLDEN)
def test_a_rendering_is_that_of_the_original(key: str) -> None:
    name, _, settings = key.partition(" ")
    template = ChatTemplate.of(name, date=TODAY, **json.loads(settings))
    for row in GOLDEN[key]:
        text = text_of(template, of_row(row), asked=row["asked"])

        assert row.get("text", text) == text
        assert row.get("digest", "") in ("", hashlib.sha256(text.encode()).hexdigest())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("zephyr", "<|system|>\nS</s>\n<|user|>\nU</s>\n<|assistant|>\nA</s>\n<|user|>\nV</s>\n<|assistant|>\n"),
        ("vicuna", "S USER: U ASSISTANT: A</s>USER: V ASSISTANT:"),
        ("llama2", "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A </s><s>[INST] V [/INST]"),
        ("glm4", "[gMASK]<sop><|system|>\nS<|user|>\nU<|assistant|>\nA<|user|>\nV<|assistant|>"),
        (
            "granite3",
            "<|start_of_role|>system<|end_of_role|>S<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>U<|end_of_text|>\n"
            "<|start_of_role|>assistant<|end_of_role|>A<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>V<|end_of_text|>\n"
            "<|start_of_role|>assistant<|end_of_role|>",
        ),
    ],
)
def test_formats_that_no_jinja_file_holds(name: str, text: str) -> None:
    assert text_of(ChatTemplate.of(name), SUVA, asked=True) == text
