"""What holds for every built-in format and every conversation that it has a form for."""

from __future__ import annotations

import contextlib
import copy
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chats.talk import FORMS, TEXTS, conversations
from millstream.chats import Kind, Rendered
from millstream.chats.parse import Conversation, Message, ToolCall
from millstream.chats.templates import ChatTemplate, Variant
from millstream.chats.templates.builtin import BUILTINS
from millstream.errors import TemplateError

ROUNDS = 60
TRIMS = {"llama3", "llama3.1", "llama4", "gemma", "gemma3", "gemma4", "mistral-v3", "cohere", "glm4-moe"}
LOOKS_AHEAD = {
    "qwen3",
    "mistral-v3",
    "mistral-v3-tekken",
    "gpt-oss",
    "deepseek-r1",
    "deepseek-v3",
    "glm4-moe",
    "gemma4",
}
every_format = pytest.mark.parametrize("name", BUILTINS)
every_variant = pytest.mark.parametrize("variant", get_args(Variant))


def joined(pieces: Rendered) -> str:
    return "".join(piece.text for piece in pieces)


def test_every_format_has_a_form() -> None:
    assert set(FORMS) == set(BUILTINS)


@every_format
@every_variant
def test_pieces_are_never_empty_and_belong_to_messages_that_are_there(name: str, variant: Variant) -> None:
    template = ChatTemplate.of(name, variant=variant)
    for conversation, asked in conversations(FORMS[name], name, ROUNDS):
        roles = [message.role for message in conversation.messages]
        for piece in template.render(conversation, add_generation_prompt=asked):
            assert piece.text
            assert piece.role == (roles[piece.message] if piece.message >= 0 else "")
            assert piece.kind == Kind.scaffold or piece.message >= 0
            assert piece.kind in (Kind.scaffold, Kind.content) or piece.role == "assistant"


@every_format
@every_variant
def test_rendering_changes_nothing_and_is_always_the_same(name: str, variant: Variant) -> None:
    template = ChatTemplate.of(name, variant=variant)
    for conversation, asked in conversations(FORMS[name], name, 10):
        before = copy.deepcopy(conversation)
        first = template.render(conversation, add_generation_prompt=asked)

        assert conversation == before
        assert template.render(conversation, add_generation_prompt=asked) == first


@every_format
def test_pieces_of_content_are_the_contents(name: str) -> None:
    """All of it, or what trimming leaves; tool results may be quoted, and reasoning inside an answer taken out."""
    template = ChatTemplate.of(name, variant="training")
    for conversation, _ in conversations(FORMS[name], name, ROUNDS):
        pieces = template.render(conversation)
        for at, message in enumerate(conversation.messages):
            if message.role == "tool" or message.tool_calls or "think>" in message.content:
                continue
            said = "".join(piece.text for piece in pieces if piece.message == at and piece.given and piece.kind == 1)

            assert said in (message.content, message.content.strip(), message.content.lstrip("\n"))
            assert said == message.content or name in TRIMS | {"qwen3"}


@every_format
def test_text_of_the_template_holds_no_text_of_the_data(name: str) -> None:
    """Whatever could be taken for a control token is either given, or the format's own."""
    evil = "<|evil|>"
    template = ChatTemplate.of(name)
    for conversation, _ in conversations(FORMS[name], name, ROUNDS):
        messages = tuple(
            Message(message.role, evil, message.reasoning and evil) if not message.tool_calls else message
            for message in conversation.messages
            if message.role != "tool" and not message.tool_calls
        )
        if len(messages) != len(conversation.messages):
            continue
        pieces = template.render(Conversation(messages))

        assert evil in joined(pieces)
        assert all(evil not in piece.text for piece in pieces if not piece.given)


@every_format
@every_variant
def test_an_answer_ends_with_a_stop_that_the_format_names(name: str, variant: Variant) -> None:
    """GLM's turns are ended by the next role; only the training variant ends the last one too."""
    template = ChatTemplate.of(name, variant=variant)
    chat = Conversation(
        (Message("user", "u"), Message("assistant", "a"), Message("user", "v"), Message("assistant", "b"))
    )
    stops = {piece.message: piece.text for piece in template.render(chat) if piece.kind == Kind.stop}
    lasting = name.startswith("glm") and variant == "prompt"

    assert sorted(stops) == ([1] if lasting else [1, 3])
    assert set(stops.values()) <= set(template.stop)


@every_format
def test_control_tokens_are_in_what_the_format_writes_itself(name: str) -> None:
    template = ChatTemplate.of(name)
    assert len(set(template.control_tokens)) == len(template.control_tokens)
    assert all(template.control_tokens)
    assert set(template.stop) <= set(template.control_tokens)


@every_format
def test_the_prompt_for_an_answer_is_what_precedes_the_answer(name: str) -> None:
    """So that what a model is asked is what it was trained on. (R1 and Gemma 4 add an opening of reasoning.)"""
    if name in ("deepseek-r1", "gemma4"):
        return
    template = ChatTemplate.of(name)
    question = Conversation((Message("user", "u"),))
    answered = Conversation((*question.messages, Message("assistant", "a")))
    prompt = joined(template.render(question, add_generation_prompt=True))

    assert joined(template.render(answered)).startswith(prompt)
    before = [piece for piece in template.render(answered) if piece.message < 1 or piece.kind == Kind.scaffold]
    assert joined(before).startswith(prompt)


@every_format
def test_more_turns_leave_those_before_as_they_are(name: str) -> None:
    """Of formats whose turns do not depend on later ones; so are the training variants of Qwen3 and gpt-oss."""
    if name in LOOKS_AHEAD - {"qwen3", "gpt-oss"}:
        return
    template = ChatTemplate.of(name, variant="training")
    for conversation, _ in conversations(FORMS[name], name, ROUNDS):
        pieces = template.render(conversation)
        for count in range(1, len(conversation.messages)):
            if conversation.messages[count - 1].role != "assistant":
                continue
            shorter = Conversation(conversation.messages[:count], conversation.tools, conversation.template_kwargs)
            start = template.render(shorter)
            if name == "glm4":
                start = start[:-1]

            assert pieces[: len(start)] == start


ROLES = st.sampled_from(["system", "user", "assistant", "tool", "developer", "other"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
SCHEMAS = st.fixed_dictionaries({}, optional=dict.fromkeys(["type", "properties", "items", "enum", "required"], JSON))
PROPERTIES = st.dictionaries(st.text(max_size=2), SCHEMAS, max_size=2)
FUNCTIONS = st.fixed_dictionaries(
    {"name": st.text(max_size=3)},
    optional={
        "description": st.text(max_size=3),
        "parameters": JSON | st.fixed_dictionaries({"properties": PROPERTIES}),
    },
)
ARGUMENTS = st.dictionaries(st.text(max_size=3), JSON, max_size=2)
CALLS = st.builds(ToolCall, st.text(max_size=3), ARGUMENTS, st.none() | st.just("123456789"))
MESSAGES = st.builds(
    Message,
    ROLES,
    st.sampled_from(TEXTS),
    st.none() | st.sampled_from(TEXTS),
    st.lists(CALLS, max_size=2).map(tuple),
    tool_call_id=st.none() | st.just("123456789"),
)


@every_format
@settings(max_examples=25)
@given(
    messages=st.lists(MESSAGES, max_size=4),
    tools=st.lists(JSON | st.fixed_dictionaries({"function": FUNCTIONS}), max_size=1),
    kwargs=st.dictionaries(st.sampled_from(["enable_thinking", "date_string", "reasoning_effort"]), JSON, max_size=1),
    asked=st.booleans(),
)
def test_any_conversation_is_rendered_or_refused(
    name: str, messages: list[Message], tools: list[Any], kwargs: dict[str, Any], asked: bool
) -> None:
    conversation = Conversation(tuple(messages), tuple(tools), kwargs)
    with contextlib.suppress(TemplateError):
        pieces = ChatTemplate.of(name).render(conversation, add_generation_prompt=asked)

        assert all(isinstance(piece.text, str) and piece.text for piece in pieces)
