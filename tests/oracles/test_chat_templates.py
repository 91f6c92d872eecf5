"""The built-in formats are the originals, to the letter; and a jinja template is followed to the letter."""

from __future__ import annotations

import pytest

from chats.talk import FORMS, conversations
from millstream.chats import Kind, Rendered
from millstream.chats.parse import Conversation
from millstream.chats.templates import ChatTemplate
from millstream.errors import TemplateError
from oracles.asked import asked as asked_for
from oracles.chats import ORIGINALS, TODAY, Original, rendered, source

fastchat = asked_for("fastchat.conversation")
ROUNDS = 100
UNTOLD = {"axolotl/gemma4", "trl/gptoss"}  # their turns end in several ways, which only a built-in format can tell
PROMPTED = [original for original in ORIGINALS if "training" not in original.file and original.file not in UNTOLD]
MARKED = [original for original in ORIGINALS if "training" in original.file]


def joined(pieces: Rendered) -> str:
    return "".join(piece.text for piece in pieces)


def answers(pieces: Rendered) -> str:
    """For each character whether it is of an answer."""
    return "".join(
        ("#" if piece.role == "assistant" and piece.kind != Kind.scaffold else ".") * len(piece.text)
        for piece in pieces
    )


def jinja(original: Original) -> ChatTemplate:
    bos, eos = original.tokens
    return ChatTemplate.of(source(original), bos_token=bos, eos_token=eos, date=TODAY)


@pytest.mark.oracle
@pytest.mark.parametrize("original", ORIGINALS, ids=lambda original: original.file)
def test_a_built_in_format_is_the_original(original: Original) -> None:
    template = original.template()
    for conversation, asked in original.conversations(0, ROUNDS):
        text, _ = rendered(original, conversation, asked=asked)

        assert joined(template.render(conversation, add_generation_prompt=asked)) == text


@pytest.mark.oracle
@pytest.mark.parametrize("original", ORIGINALS, ids=lambda original: original.file)
def test_a_jinja_template_gives_what_transformers_gives_or_says_why_not(original: Original) -> None:
    template, told = jinja(original), 0
    for conversation, asked in original.conversations(1, ROUNDS):
        if original.json_arguments and any(message.tool_calls for message in conversation.messages):
            continue
        try:
            pieces = template.render(conversation, add_generation_prompt=asked)
        except TemplateError:
            assert original.file in UNTOLD
            continue
        told += 1

        assert joined(pieces) == rendered(original, conversation, asked=asked)[0]
    assert told > 10


@pytest.mark.oracle
@pytest.mark.parametrize("original", PROMPTED, ids=lambda original: original.file)
def test_the_answers_that_are_found_in_a_jinja_template_are_those_of_the_built_in_format(original: Original) -> None:
    """GLM aside: its turns have no end of their own, so only the built-in format knows it, and empty answers."""
    if original.name == "glm4-moe":
        return
    template, built_in = jinja(original), original.template()
    for conversation, asked in original.conversations(2, ROUNDS):
        if original.json_arguments and any(message.tool_calls for message in conversation.messages):
            continue
        found = answers(template.render(conversation, add_generation_prompt=asked))

        assert found == answers(built_in.render(conversation, add_generation_prompt=asked))


@pytest.mark.oracle
@pytest.mark.parametrize("original", MARKED, ids=lambda original: original.file)
def test_generation_blocks_are_the_answers(original: Original) -> None:
    template = jinja(original)
    for conversation, asked in original.conversations(3, ROUNDS):
        text, blocks = rendered(original, conversation, asked=asked)
        marked = ["."] * len(text)
        for start, stop in blocks:
            marked[start:stop] = "#" * (stop - start)

        assert answers(template.render(conversation, add_generation_prompt=asked)) == "".join(marked)


def of_fastchat(name: str, conversation: Conversation, *, asked: bool) -> str:
    """What fschat makes of a conversation. An empty message is a prompt to it, so there must be none."""
    talk = fastchat.get_conv_template(name)
    messages = conversation.messages
    if messages[0].role == "system":
        talk.set_system_message(messages[0].content)
        messages = messages[1:]
    for message in messages:
        talk.append_message(talk.roles[message.role == "assistant"], message.content)
    if asked or (name == "llama-2" and messages[-1].role == "user"):
        talk.append_message(talk.roles[1], None)
    return str(talk.get_prompt())


@pytest.mark.oracle
@pytest.mark.parametrize(("name", "theirs"), [("zephyr", "zephyr"), ("vicuna", "vicuna_v1.1"), ("llama2", "llama-2")])
def test_formats_without_a_jinja_template_are_those_of_fschat(name: str, theirs: str) -> None:
    """It writes no first beginning-of-text token, but one after every answer; and zephyr's system turn always."""
    template, compared = ChatTemplate.of(name, bos_token="<s>", eos_token="</s>"), 0
    for conversation, asked in conversations(FORMS["vicuna"], theirs, 5 * ROUNDS):
        first, last = conversation.messages[0], conversation.messages[-1]
        if not all(message.content for message in conversation.messages) or (asked and last.role == "assistant"):
            continue
        if name == "zephyr" and first.role != "system":
            continue
        compared += 1
        text = joined(template.render(conversation, add_generation_prompt=asked)).removeprefix("<s>")
        if name == "llama2" and last.role == "assistant":
            text += "<s>"

        assert text == of_fastchat(theirs, conversation, asked=asked)
    assert compared > 50
