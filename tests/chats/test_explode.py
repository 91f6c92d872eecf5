"""Answer by answer: each row is what inference saw, and each answer is trained exactly once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chats.chatml import bpe
from laws import examples
from millstream.chats.block import exploded
from millstream.chats.parse import Conversation, Message
from millstream.errors import RecipeError
from millstream.loaders.chat_keywords import chat_settings
from millstream.sources import Reading

turns = st.lists(st.tuples(st.text("abc ", min_size=1), st.text("xyz ", min_size=1)), min_size=1, max_size=4)


def talk(pairs: list[tuple[str, str]]) -> Conversation:
    messages: list[Message] = []
    for question, answer in pairs:
        messages += (Message("user", question), Message("assistant", answer, reasoning="hm"))
    return Conversation(tuple(messages))


@examples(30)
@given(pairs=turns)
def test_every_answer_is_the_last_of_one_row_and_trained_there_alone(pairs: list[tuple[str, str]]) -> None:
    rows = exploded(talk(pairs))

    assert [row.messages[-1].content for row in rows] == [answer for _, answer in pairs]
    for number, row in enumerate(rows):
        assert [(each.role, each.content) for each in row.messages] == [
            (each.role, each.content) for each in talk(pairs).messages[: 2 * number + 2]
        ]
        assert all(each.weight == 0 for each in row.messages[:-1] if each.role == "assistant")


def test_a_template_that_drops_the_reasoning_of_earlier_turns_is_trained_as_it_is_used() -> None:
    """Rendered as a whole such a conversation trains answers without their reasoning: refused, unless exploded."""
    tokenizer = bpe()
    rows = exploded(talk([("a", "x"), ("b", "y")]))
    settings = chat_settings(
        {"chat_template": "qwen3", "history_reasoning": "explode", "add_control_tokens": True}, None, 512
    )
    encoder = settings.encoder(tokenizer)

    made = encoder.encode(rows, settings.limit)

    assert not made.faults
    for (row,), answer in zip(made.rows, "xy", strict=True):
        trained = encoder.tokenizer.decode(row.ids[row.weights > 0].tolist())
        assert "hm" in trained and trained.endswith(f"{answer}<|im_end|>")
        assert np.count_nonzero(np.diff(row.weights)) <= 2


def test_exploding_needs_a_policy_that_trains_all_answers() -> None:
    chosen = chat_settings({"chat_template": "chatml", "history_reasoning": "explode", "train": "last"}, None, 512)

    with pytest.raises(RecipeError, match="explode"):
        chosen.decided([], chosen.formats(Reading()))
