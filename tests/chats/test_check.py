"""A template that would train something else than what it seems to is refused, and the message says how to mend it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest

from chats.chatml import END, START, ChatML, bpe, talk
from millstream.chats.encode import Encoder
from millstream.chats.masks import Choice, Policy
from millstream.chats.rendered import Kind, Rendered
from millstream.errors import RecipeError, TokenizerError
from millstream.records.chat.conversation import Conversation
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
    with pytest.raises(RecipeError, match="never learn to stop"):
        Encoder(bpe(), ChatML(stop=Kind.scaffold))


def test_a_history_that_is_rendered_differently_once_it_goes_on() -> None:
    with pytest.raises(RecipeError, match=r'train="last"'):
        Encoder(bpe(), Forgetful())
    for train in ("last", "last_round"):
        Encoder(bpe(), Forgetful(), policy=Policy(train))
    Encoder(bpe(), Forgetful(), check=False)


def test_two_beginnings_of_text() -> None:
    with pytest.raises(RecipeError, match="twice"):
        Encoder(bpe(), ChatML(bos="<|endoftext|>" * 2))
    Encoder(bpe(), ChatML(bos="<|endoftext|>"))


def test_a_template_without_anything_to_train() -> None:
    class Mute(NamedTuple):
        name: str = "mute"
        control_tokens: tuple[str, ...] = (START, END)

        def render(self, conversation: Conversation, *, add_generation_prompt: bool = False) -> Rendered:
            rendered = ChatML().render(conversation, add_generation_prompt=add_generation_prompt)
            return [piece._replace(kind=Kind.scaffold) for piece in rendered]

    with pytest.raises(RecipeError, match="no token of a conversation with answers is trained"):
        Encoder(bpe(), Mute())
    Encoder(bpe(), Mute(), policy=Policy("explicit"))


def test_a_template_that_renders_nothing() -> None:
    class Picky(NamedTuple):
        name: str = "picky"
        control_tokens: tuple[str, ...] = ()

        def render(self, conversation: Conversation, *, add_generation_prompt: bool = False) -> Rendered:
            raise TokenizerError("no")

    with pytest.raises(RecipeError, match="renders none"):
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
