"""How a template is found, what its settings do, and what it refuses."""

from __future__ import annotations

import json
import pickle
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest

from millstream import ChatTemplate, TemplateError
from millstream.chats import Kind, Rendered
from millstream.chats.parse import Conversation, Message, ToolCall
from millstream.chats.templates.builtin import ALIASES, BUILTINS

JINJA = "{% for m in messages %}{{ bos_token }}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
CHAT = Conversation((Message("user", "u"), Message("assistant", "a")))
THOUGHTS = Conversation(
    (
        Message("user", "u"),
        Message("assistant", "a", reasoning="first"),
        Message("user", "v"),
        Message("assistant", "b", reasoning="second"),
    )
)


def joined(pieces: Rendered) -> str:
    return "".join(piece.text for piece in pieces)


@pytest.mark.parametrize("alias", ALIASES)
def test_every_other_name_leads_to_a_format(alias: str) -> None:
    assert ChatTemplate.of(alias).name == ALIASES[alias]


def test_case_and_hyphens_do_not_matter() -> None:
    assert ChatTemplate.of("Mistral_V3_Tekken").name == "mistral-v3-tekken"


def test_an_unknown_name_is_answered_with_all_names_and_the_nearest() -> None:
    with pytest.raises(TemplateError, match="there is no chat template 'qwen-33'") as caught:
        ChatTemplate.of("qwen-33")

    assert "did you mean 'qwen3'?" in str(caught.value.hint)
    assert all(name in str(caught.value.hint) for name in BUILTINS)


def test_a_template_is_taken_from_a_text_a_file_a_folder_or_a_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text(JINJA)
    beside, inside = tmp_path / "beside", tmp_path / "inside"
    beside.mkdir()
    inside.mkdir()
    tokens = {"bos_token": {"content": "<"}, "eos_token": ">"}
    (beside / "chat_template.jinja").write_text(JINJA)
    (beside / "tokenizer_config.json").write_text(json.dumps(tokens))
    (inside / "tokenizer_config.json").write_text(json.dumps({**tokens, "chat_template": JINJA}))
    several = [{"name": "default", "template": JINJA}, {"name": "tool_use", "template": "{{ 1 }}"}]
    tokenizer = SimpleNamespace(chat_template=several, bos_token="<", eos_token=">")

    for given in (beside, inside, str(inside), tokenizer):
        assert joined(ChatTemplate.of(given).render(CHAT)) == "<user: u><assistant: a>"
    for given in (JINJA, tmp_path / "own.jinja"):
        assert joined(ChatTemplate.of(given, bos_token="<", eos_token=">").render(CHAT)) == "<user: u><assistant: a>"


@pytest.mark.parametrize("given", [SimpleNamespace(chat_template=None), Path("nowhere.jinja"), 3])
def test_what_has_no_template_says_so(given: object) -> None:
    with pytest.raises(TemplateError):
        ChatTemplate.of(given)


def test_the_fingerprint_tells_all_settings_apart() -> None:
    made = [
        ChatTemplate.of("llama3.1"),
        ChatTemplate.of("llama3"),
        ChatTemplate.of("llama3.1", bos_token=""),
        ChatTemplate.of("llama3.1", eos_token="x"),
        ChatTemplate.of("llama3.1", date=date(2025, 1, 1)),
        ChatTemplate.of("llama3.1", variant="training"),
        ChatTemplate.of("llama3.1", history_reasoning="drop"),
        ChatTemplate.of(JINJA),
        ChatTemplate.of(JINJA + " "),
    ]

    assert len({template.fingerprint for template in made}) == len(made)
    assert ChatTemplate.of("llama3.2").fingerprint == made[0].fingerprint


@pytest.mark.parametrize("given", ["qwen3", JINJA])
def test_a_template_travels_to_other_processes(given: str) -> None:
    template = ChatTemplate.of(given, bos_token="<", eos_token=">", date=date(2025, 1, 1))
    copied = pickle.loads(pickle.dumps(template))

    assert copied.fingerprint == template.fingerprint
    assert copied.render(CHAT) == template.render(CHAT)


def test_tokens_that_are_not_given_are_those_of_the_family() -> None:
    assert joined(ChatTemplate.of("llama3").render(CHAT)).startswith("<|begin_of_text|>")
    assert joined(ChatTemplate.of("llama3", bos_token="").render(CHAT)).startswith("<|start_header_id|>")
    assert joined(ChatTemplate.of("zephyr").render(CHAT)).endswith("a</s>\n")


def test_dates_are_fixed_unless_they_are_given() -> None:
    assert "Today Date: 26 Jul 2024\n" in joined(ChatTemplate.of("llama3.1").render(CHAT))
    assert "Today Date: 01 May 2025\n" in joined(ChatTemplate.of("llama3.1", date=date(2025, 5, 1)).render(CHAT))
    assert "Current date: 2025-05-01\n" in joined(ChatTemplate.of("gpt-oss", date=date(2025, 5, 1)).render(CHAT))


@pytest.mark.parametrize("name", ["qwen3", "glm4-moe", "deepseek-r1", "gpt-oss", "gemma4"])
def test_reasoning_of_earlier_turns_is_dropped_or_kept(name: str) -> None:
    def reasons(**settings: str) -> set[str]:
        pieces = ChatTemplate.of(name, **settings).render(THOUGHTS)  # type: ignore[arg-type]
        return {piece.text for piece in pieces if piece.kind == Kind.reasoning and piece.given}

    assert "first" not in reasons()
    assert "first" not in reasons(history_reasoning="drop", variant="training")
    assert reasons(variant="training") == reasons(history_reasoning="keep") == {"first", "second"}


@pytest.mark.parametrize("name", ["qwen3", "glm4-moe", "deepseek-v3", "gpt-oss", "gemma4"])
def test_reasoning_before_a_tool_call_is_kept_where_it_is_asked_for(name: str) -> None:
    calling = Message("assistant", "", "first", (ToolCall("f", {}, "1"),))
    chat = Conversation(
        (Message("user", "u"), calling, Message("tool", "2", tool_call_id="1"), Message("assistant", "b", "second"))
    )
    for settings in ({"variant": "training"}, {"history_reasoning": "keep"}):
        pieces = ChatTemplate.of(name, **settings).render(chat)  # type: ignore[arg-type]

        assert [piece.text for piece in pieces if piece.kind == Kind.reasoning and piece.given] == ["first", "second"]


def test_an_empty_block_of_reasoning_is_one_piece_of_the_template() -> None:
    pieces = ChatTemplate.of("qwen3", variant="training").render(CHAT)

    assert [piece for piece in pieces if piece.kind == Kind.reasoning] == [
        ("<think>\n\n</think>\n\n", Kind.reasoning, 1, False, "assistant")
    ]


def test_switched_off_thinking_is_part_of_the_prompt() -> None:
    chat = Conversation(CHAT.messages[:1], template_kwargs={"enable_thinking": False})
    pieces = ChatTemplate.of("qwen3").render(chat, add_generation_prompt=True)

    assert pieces[-1].text == "<think>\n\n</think>\n\n"
    assert pieces[-1].kind == Kind.scaffold


@pytest.mark.parametrize(
    ("name", "chat", "what"),
    [
        ("chatml", Conversation(CHAT.messages, tools=({"type": "function"},)), "no form for tools"),
        ("chatml", Conversation((Message("assistant", "", tool_calls=(ToolCall("f", {}),)),)), "form for tool calls"),
        ("qwen3", Conversation((Message("user", "", tool_calls=(ToolCall("f", {}),)),)), "form for tool calls"),
        ("llama3", THOUGHTS, "no form for reasoning"),
        ("gemma", Conversation((Message("system", "s"), *CHAT.messages)), "the role 'system' not at all"),
        ("gemma3", Conversation((*CHAT.messages, Message("system", "s"))), "only as the first message"),
        ("cohere", Conversation(CHAT.messages[1:]), "the role is 'assistant', where this format needs 'user'"),
        ("qwen3", Conversation(CHAT.messages, template_kwargs={"documents": []}), "no form for 'documents'"),
        ("gpt-oss", Conversation((Message("tool", "2"),)), "a tool result without a tool call"),
        (
            "llama3.1",
            Conversation((Message("assistant", "text", tool_calls=(ToolCall("f", {}),)),)),
            "no room for text beside a tool call",
        ),
        (
            "mistral-v3",
            Conversation((Message("user", "u"), Message("assistant", "", tool_calls=(ToolCall("f", {}, "short"),)))),
            "needs 9 letters or digits",
        ),
    ],
)
def test_what_a_format_has_no_form_for_is_refused_and_not_dropped(name: str, chat: Conversation, what: str) -> None:
    with pytest.raises(TemplateError, match=f"^{name}: .*{what}") as caught:
        ChatTemplate.of(name).render(chat)

    assert caught.value.hint


def test_reasoning_can_be_left_out_on_purpose() -> None:
    pieces = ChatTemplate.of("llama3", history_reasoning="drop").render(THOUGHTS)

    assert "first" not in joined(pieces)


def test_a_setting_that_is_misspelled_is_an_error() -> None:
    with pytest.raises(TemplateError, match="variant='train'"):
        ChatTemplate.of("chatml", variant="train")  # type: ignore[arg-type]
    with pytest.raises(TemplateError, match="with a jinja template"):
        ChatTemplate.of(JINJA, history_reasoning="keep")
