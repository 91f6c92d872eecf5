"""Which tokens carry loss: the policy's choice, the row's own weights, and the overlap of tokens with both."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chats.chatml import ATOMS, END, START, ChatML, bpe, byte_level, composing, encoder, metaspace, talk
from millstream.chats import Boundary, Kind, Policy, Supervised
from millstream.chats.encode import Encoder
from millstream.chats.parse import Completion, Conversation, Message, ToolCall
from millstream.chats.parse.row_types import Stretch
from millstream.chats.show import show
from millstream.errors import RecipeError, RecordError
from millstream.tokens import BPETokenizer, Tokenizer

BOUNDARIES: tuple[Boundary, ...] = ("split", "whole")
contents = st.lists(st.sampled_from([*ATOMS, START, END, "</s>"]), max_size=8).map("".join)
KINDS: dict[str, Callable[[], Tokenizer]] = {
    "our own": bpe,
    "byte level": byte_level,
    "composing": composing,
    "metaspace": metaspace,
}


def encoded(conversation: Conversation, policy: Policy | None = None) -> Supervised:
    rows = [ChatML().render(conversation)]
    return encoder(boundary="split").encode_rows(rows, [conversation], policy=policy)[0]


def shown(conversation: Conversation, policy: Policy | None = None) -> str:
    return show(encoded(conversation, policy), bpe().decode)


def chat(user: str, *turns: str) -> str:
    """What `shown` should be: a user's turn, then turns as given."""
    return f"{START}user\n{user}{END}\n" + "".join(turns)


TWO = talk("a", "b", "c", "d")
ROUND = Conversation(
    (
        *talk("a", "b", "c").messages,
        Message("assistant", "d", tool_calls=(ToolCall("f", {}),)),
        Message("tool", "e"),
        Message("assistant", "g", reasoning="hm"),
    )
)


def test_the_assistants_turns_are_trained_with_their_stop_token_and_without_header() -> None:
    assert shown(TWO) == (
        f"{START}user\na{END}\n{START}assistant\n⟦b{END}⟧\n{START}user\nc{END}\n{START}assistant\n⟦d{END}⟧\n"
    )


def test_last_trains_one_turn_and_last_round_all_after_the_users_last_message() -> None:
    last, last_round = shown(ROUND, Policy("last")), shown(ROUND, Policy("last_round"))
    assert last.count("⟦") == 1 and last.endswith(f"⟦<think>\nhm\n</think>\n\ng{END}⟧\n")
    assert last_round.count("⟦") == 2 and f"⟦d<tool_call>f</tool_call>{END}⟧" in last_round


def test_all_trains_everything_but_what_the_model_is_handed() -> None:
    assert shown(talk("a", "b"), Policy("all")) == f"{START}⟦user\na{END}\n⟧{START}assistant\n⟦b{END}\n⟧"


def test_a_generation_prompt_at_the_end_is_never_trained() -> None:
    row = ChatML().render(talk("a"), add_generation_prompt=True)
    for train in ("all", "assistant", "last", "last_round", "explicit"):
        found = encoder(boundary="split").encode_rows([row], policy=Policy(train))[0]
        assert show(found, bpe().decode).endswith(f"{START}assistant\n")


def test_reasoning_and_tool_calls_can_be_left_out() -> None:
    assert f"<think>\nhm\n</think>\n\n⟦g{END}⟧" in shown(ROUND, Policy(train_reasoning=False))
    assert f"⟦d⟧<tool_call>f</tool_call>⟦{END}⟧" in shown(ROUND, Policy(train_tool_calls=False))


@pytest.mark.parametrize("reasoning", ["", "\n "])
def test_an_empty_think_block_is_not_trained(reasoning: str) -> None:
    thoughtless = Conversation((*talk("a").messages, Message("assistant", "b", reasoning=reasoning)))
    assert f"</think>\n\n⟦b{END}⟧" in shown(thoughtless)
    assert "⟦<think>" in shown(thoughtless, Policy(mask_empty_think=False))


def test_a_weight_of_the_row_replaces_the_policys_choice() -> None:
    user, first, second, third = TWO.messages
    own = Conversation((replace(user, weight=0.5), replace(first, weight=0.0), second, third))
    assert shown(own) == (
        f"{START}user\n⟦a⟧×0.5{END}\n{START}assistant\nb{END}\n{START}user\nc{END}\n{START}assistant\n⟦d{END}⟧\n"
    )
    assert shown(own, Policy("explicit")).count("⟦") == 1


def test_stretches_stand_above_all_and_survive_trimming_templates() -> None:
    message = Message("assistant", " yes, é no ", stretches=(Stretch(1, 4, 0.0), Stretch(6, 7, 0.5)))
    conversation = Conversation((*talk("a").messages, message))
    rendered = [
        piece._replace(text=piece.text.strip()) if piece.given else piece for piece in ChatML().render(conversation)
    ]
    found = encoder(boundary="split").encode_rows([rendered], [conversation])[0]
    assert show(found, bpe().decode) == chat("a", f"{START}assistant\nyes⟦, ⟧⟦é⟧×0.5⟦ no{END}⟧\n")


def test_stretches_of_a_content_that_the_template_changes_are_an_error() -> None:
    conversation = Conversation((Message("assistant", "yes", stretches=(Stretch(0, 1, 0.0),)),))
    rendered = [
        piece._replace(text="no") if piece.kind == Kind.content else piece for piece in ChatML().render(conversation)
    ]
    with pytest.raises(RecordError, match="stretches lost"):
        encoder().encode_rows([rendered], [conversation])


def test_nothing_of_a_prompt_is_trained_whatever_else_is_said() -> None:
    messages = (*TWO.messages[:1], replace(TWO.messages[1], weight=1.0), *TWO.messages[2:])
    for train in ("assistant", "completion"):
        found = shown(Conversation(messages, prompt_messages=3), Policy(train))
        assert found.count("⟦") == 1 and found.endswith(f"⟦d{END}⟧\n")
    with pytest.raises(RecordError, match="no prompt"):
        encoded(TWO, Policy("completion"))


def test_an_unknown_policy_names_the_known_ones() -> None:
    with pytest.raises(RecipeError, match="last_round"):
        Policy("turns")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(turns=st.lists(contents, min_size=2, max_size=5))
def test_the_trained_ids_of_a_turn_are_its_content_and_its_stop(kind: str, turns: list[str]) -> None:
    """Exactly with boundary="split", and less the straddlers, which are counted, with "whole"."""
    rows = [ChatML().render(talk(*turns))]
    split, whole = (encoder(KINDS[kind], boundary).encode_rows(rows)[0] for boundary in BOUNDARIES)
    wanted = [spelled(kind, turns[at] + END) for at in range(1, len(turns), 2)]

    assert split.straddlers == 0
    assert [turn(KINDS[kind](), split, at) for at in range(1, len(turns), 2)] == wanted
    found = [turn(KINDS[kind](), whole, at) for at in range(1, len(turns), 2)]
    assert sum(right != trained for right, trained in zip(wanted, found, strict=True)) <= whole.straddlers


def turn(tokenizer: Tokenizer, row: Supervised, at: int) -> str:
    return tokenizer.decode(row.ids[(row.messages == at) & (row.weights > 0)].tolist())


def spelled(kind: str, text: str) -> str:
    """What is left of a text when it was encoded and decoded."""
    if kind == "metaspace":
        return text.replace("▁", " ")
    return unicodedata.normalize("NFC", text) if kind == "composing" else text


def test_the_token_of_a_merge_across_the_border_is_not_trained_but_counted() -> None:
    encoder = Encoder(BPETokenizer.train(["user: hi\nassistant: hello"] * 9, vocab_size=300), strict=True)
    rows = [Completion("user: hi\nassistant: ", "hello hello")]
    fault = encoder.encode(rows).faults[0]
    assert (fault.reason, fault.found) == ("straddler", "1 tokens lie in parts of different weight")
    encoder.strict = False
    encoded = encoder.encode(rows)
    assert encoded.counts["straddlers"] == 1
    assert show(encoded.rows[0][0], encoder.tokenizer.decode) == "user: hi\nassistant: hello⟦ hello<|endoftext|>⟧"


@pytest.mark.parametrize("kind", KINDS)
def test_every_token_of_a_character_that_is_several_tokens_is_trained(kind: str) -> None:
    row = encoder(KINDS[kind]).encode_rows([ChatML(stop=Kind.scaffold).render(talk("a", "\U0001f9ff"))])[0]
    trained = row.ids[row.weights > 0].tolist()
    assert KINDS[kind]().decode(trained) == "\U0001f9ff" and len(trained) > 2


@settings(max_examples=40, deadline=None)
@given(turns=st.lists(contents, min_size=2, max_size=6))
def test_appending_turns_changes_no_earlier_token_and_no_weight(turns: list[str]) -> None:
    rows = encoder().encode_rows([ChatML().render(talk(*turns[:stop])) for stop in range(1, len(turns) + 1)])
    for shorter, longer in pairwise(rows):
        assert np.array_equal(shorter.ids, longer.ids[: len(shorter)])
        assert np.array_equal(shorter.weights, longer.weights[: len(shorter)])


@settings(max_examples=30, deadline=None)
@given(talks=st.lists(st.lists(contents, max_size=4), max_size=5))
def test_a_batch_gives_what_its_rows_give_alone(talks: list[list[str]]) -> None:
    rows = [ChatML().render(talk(*turns)) for turns in talks]
    for row, found in zip(rows, encoder().encode_rows(rows), strict=True):
        alone = encoder().encode_rows([row])[0]
        for field in ("ids", "weights", "messages"):
            assert np.array_equal(getattr(alone, field), getattr(found, field))
