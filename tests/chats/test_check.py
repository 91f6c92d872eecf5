"""A template that would train something else than what it seems to is refused, and the message says how to mend it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

import pytest

from chats.chatml import END, START, ChatML, bpe, talk
from millstream.chats import ChatSettings, Choice, Kind, Policy, Rendered
from millstream.chats.encode import Encoder
from millstream.chats.parse import Conversation
from millstream.chats.templates import ChatTemplate
from millstream.chats.templates.builtin import BUILTINS
from millstream.errors import TemplateError, TokenizerError
from millstream.tokens import BPETokenizer, CharTokenizer


class Forgetful(NamedTuple):
    """Drops the reasoning of all turns but the last, as stock Qwen3 does."""

    name: str = "forgetful"
    control_tokens: tuple[str, ...] = (START, END)

    def render(self, conversation: Conversation, *, add_generation_prompt: bool = False) -> Rendered:
        rendered = ChatML().render(conversation, add_generation_prompt=add_generation_prompt)
        last = len(conversation.messages) - 1
        return [piece for piece in rendered if piece.kind != Kind.reasoning or piece.message == last]


def test_a_stop_token_that_is_never_trained() -> None:
    with pytest.raises(TemplateError, match="never learn to stop"):
        Encoder(bpe(), ChatML(stop=Kind.scaffold))


def test_a_history_that_is_rendered_differently_once_it_goes_on() -> None:
    with pytest.raises(TemplateError, match=r'train="last"'):
        Encoder(bpe(), Forgetful())
    for train in ("last", "last_round"):
        Encoder(bpe(), Forgetful(), policy=Policy(train))
    Encoder(bpe(), Forgetful(), check=False)


def test_two_beginnings_of_text() -> None:
    with pytest.raises(TemplateError, match="twice"):
        Encoder(bpe(), ChatML(bos="<|endoftext|>" * 2))
    Encoder(bpe(), ChatML(bos="<|endoftext|>"))


def test_a_template_without_anything_to_train() -> None:
    class Mute(NamedTuple):
        name: str = "mute"
        control_tokens: tuple[str, ...] = (START, END)

        def render(self, conversation: Conversation, *, add_generation_prompt: bool = False) -> Rendered:
            rendered = ChatML().render(conversation, add_generation_prompt=add_generation_prompt)
            return [piece._replace(kind=Kind.scaffold) for piece in rendered]

    with pytest.raises(TemplateError, match="no token of a conversation with answers is trained"):
        Encoder(bpe(), Mute())
    Encoder(bpe(), Mute(), policy=Policy("explicit"))


def test_a_template_that_renders_nothing() -> None:
    class Picky(NamedTuple):
        name: str = "picky"
        control_tokens: tuple[str, ...] = ()

        def render(self, conversation: Conversation, *, add_generation_prompt: bool = False) -> Rendered:
            raise TokenizerError("no")

    with pytest.raises(TemplateError, match=r"^no; so it renders none"):
        Encoder(bpe(), Picky())


def test_control_tokens_that_the_tokenizer_lacks_are_added_when_asked_for() -> None:
    tokenizer = BPETokenizer.train(["the mill"], vocab_size=260)
    with pytest.raises(TokenizerError, match=r"add_control_tokens=True: a new tokenizer with 262 ids"):
        Encoder(tokenizer, ChatML())

    encoder = Encoder(tokenizer, ChatML(), add_control_tokens=True)
    assert (tokenizer.vocab_size, encoder.tokenizer.vocab_size) == (260, 262)
    assert encoder.added_tokens == (START, END)
    assert encoder.tokenizer.fingerprint != tokenizer.fingerprint
    row = encoder.encode([talk("a", "b")]).rows[0][0]
    assert row.ids[0] == encoder.tokenizer.token_id(START) == 260
    assert encoder.tokenizer.decode(row.ids.tolist()) == "".join(
        piece.text for piece in ChatML().render(talk("a", "b"))
    )


def test_a_tokenizer_that_no_token_can_be_added_to_says_so() -> None:
    with pytest.raises(TokenizerError, match="no tokens can be added"):
        Encoder(CharTokenizer("ab"), ChatML(), add_control_tokens=True)


@pytest.mark.parametrize("train", ["all", "assistant", "last", "last_round", "completion", "explicit"])
def test_a_sound_template_passes_with_every_policy(train: Choice) -> None:
    encoder = Encoder(bpe(), ChatML(), policy=Policy(train))

    asked = replace(talk("a", "b"), prompt_messages=1 if train == "completion" else None)
    row = encoder.encode_rows([ChatML().render(asked)], [asked])[0]
    trained = encoder.tokenizer.decode(row.ids[row.weights > 0].tolist())
    assert train == "all" or trained == ("" if train == "explicit" else f"b{END}")
    assert (f"b{END}" in trained) == (train != "explicit")
    assert (f"a{END}" in trained) == (train == "all")


@pytest.mark.parametrize("name", BUILTINS)
def test_what_the_hint_of_a_refused_format_names_first_is_taken(name: str) -> None:
    """Every built-in format can be trained with: as it is, or with the first setting that the refusal names."""
    try:
        Encoder(bpe(), ChatTemplate.of(name), add_control_tokens=True)
    except TemplateError as refusal:
        assert refusal.hint
        setting = refusal.hint.split("=")[0].split()[-1]
        if setting == "variant":
            assert 'variant="training"' in refusal.hint
            Encoder(bpe(), ChatTemplate.of(name, variant="training"), add_control_tokens=True)
        else:
            assert 'history_reasoning="explode"' in refusal.hint
            settings = ChatSettings(ChatTemplate.of(name), explode=True, add_control_tokens=True)
            assert settings.encoder(bpe()).template is not None


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("{{ raise_exception('only questions about mills') }}", "refused: only questions about mills"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages.__class__.__mro__ }}", "reaches for what it must not"),
        ("{% include 'other.jinja' %}", "no loader"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "loops without end"),
    ],
)
def test_a_jinja_template_that_fails_is_refused_with_the_cause_and_soon(said: str, cause: str) -> None:
    template = said + "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    started = time.monotonic()
    with pytest.raises(TemplateError, match=cause):
        Encoder(bpe(), ChatTemplate.of(template))
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("said", ["{% for m in messages %}", "{{ messages | grind }}"])
def test_what_is_no_jinja_is_to_be_mended_in_the_template(said: str) -> None:
    with pytest.raises(TemplateError, match=r"line 1 of the template.*\n  hint: mend the template"):
        ChatTemplate.of(said)
