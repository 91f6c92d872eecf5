"""Preferences, judged answers and steps as documents: equal prompts on both sides, and nothing over the cap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chats.chatml import bpe, metaspace
from laws import examples
from millstream.chats import ChatSettings, Limit, Policy, Supervised
from millstream.chats.answers import RIGHT, STEP_END, WRONG, RowKind, encode_kind
from millstream.chats.encode import Encoded, Encoder
from millstream.chats.parse import ChatRow, Completion, Judged, Message, Preference, Stepwise
from millstream.chats.templates import ChatTemplate
from millstream.tokens import Tokenizer

texts = st.text("ab ?\n🙂é", max_size=40)
answers = st.text("ab ?\n🙂é", min_size=1, max_size=40)


def settings(kind: RowKind, template: str = "chatml", **given: Any) -> ChatSettings:
    return ChatSettings(ChatTemplate.of(template), kind=kind, add_control_tokens=True, **given)


def encoder(kind: RowKind, tokenizer: Tokenizer | None = None, template: str = "chatml") -> Encoder:
    return settings(kind, template).encoder(tokenizer or bpe())


def encode(row: ChatRow, kind: RowKind, limit: Limit | None = None, **given: Any) -> Encoded:
    return encode_kind([row], kind, encoder(kind, **given), limit or Limit())


def trained(row: Supervised) -> list[int]:
    return [int(id) for id in row.ids[1:][row.weights[1:] > 0]]


def said(prompt: str, *answers: str) -> Preference | Judged:
    """A prompt of a user, and one answer or two."""
    question = (Message("user", prompt),)
    first, *rest = [(Message("assistant", answer),) for answer in answers]
    return Preference(question, first, rest[0]) if rest else Judged(question, first, label=True)


def common(pair: list[Supervised]) -> tuple[int, int]:
    """The length of the prompt on each side: what comes before the first token that is trained."""
    return tuple(int(np.flatnonzero(side.weights)[0]) for side in pair)  # type: ignore[return-value]


@given(prompt=texts, chosen=answers, rejected=answers, tokenizer=st.sampled_from([bpe, metaspace]))
@examples(60)
def test_the_prompt_has_the_same_ids_on_both_sides(prompt: str, chosen: str, rejected: str, tokenizer: Any) -> None:
    """Also where a token of the whole text would reach over its end (trl#5213, #6105)."""
    rows: list[ChatRow] = [said(prompt, chosen, rejected), Preference("p" + prompt, chosen, rejected)]
    encoded = encode_kind(rows, "preference", encoder("preference", tokenizer()), Limit())
    assert not encoded.faults
    for pair in encoded.rows:
        first, second = common(pair)
        assert first == second > 0
        assert np.array_equal(pair[0].ids[:first], pair[1].ids[:first])


@given(
    prompt=texts, chosen=answers, rejected=answers, length=st.integers(2, 60), form=st.sampled_from(["chat", "text"])
)
@examples(150)
def test_shortened_pairs_keep_equal_prompts_and_some_of_each_answer_under_the_cap(
    prompt: str, chosen: str, rejected: str, length: int, form: str
) -> None:
    """The cap holds for the rejected side (LLaMA-Factory#4402, #4617), and no answer is emptied (trl#6588)."""
    row: ChatRow = said(prompt, chosen, rejected) if form == "chat" else Preference("p" + prompt, chosen, rejected)
    whole = encode(row, "preference").rows[0]
    encoded = encode(row, "preference", Limit(length, "keep_end"))
    (pair,) = encoded.rows
    long = max(map(len, whole)) > length

    assert not encoded.faults
    assert encoded.counts["truncated"] == long
    first, second = common(pair)
    assert first == second >= 1
    assert np.array_equal(pair[0].ids[:first], pair[1].ids[:first])
    for side, before in zip(pair, whole, strict=True):
        start = int(np.flatnonzero(before.weights)[0])
        assert len(side) <= length
        assert side.truncated == (len(side) < len(before))
        assert np.array_equal(side.ids[:first], before.ids[start - first : start])
        assert len(side) > first
        assert np.array_equal(side.ids[first:], before.ids[start : start + len(side) - first])
        assert side.weights[0] == 0


@pytest.mark.parametrize("kind", ["preference", "kto", "stepwise"])
def test_rows_that_are_too_long_are_refused_or_left_out_and_counted(kind: RowKind) -> None:
    rows: dict[RowKind, ChatRow] = {
        "preference": Preference("a" * 20, "b" * 20, "c"),
        "kto": Judged("a" * 20, "b" * 20, label=True),
        "stepwise": Stepwise("a" * 20, ("b" * 20,), (True,)),
    }
    refused = encode(rows[kind], kind, Limit(8))
    assert [fault.reason for fault in refused.faults.values()] == ["too long"]
    dropped = encode(rows[kind], kind, Limit(8, "drop"))
    assert (dropped.rows, dropped.dropped["too long"]) == ([[]], 1)


@given(answer=answers, label=st.booleans())
@examples(30)
def test_a_judged_answer_says_so_in_its_first_token_and_trains_the_same(answer: str, label: bool) -> None:
    row = Judged("p?", answer, label)
    (made,) = encode(row, "kto").rows[0]
    plain = encoder("kto").encode([Completion("p?", answer)], policy=Policy(train="completion")).rows[0][0]
    assert made.weights[0] == (1 if label else 0)
    assert trained(made) == trained(plain)
    assert np.array_equal(made.ids, plain.ids)


@given(prompt=answers, steps=st.lists(st.tuples(texts, st.booleans()), min_size=1, max_size=6))
@examples(60)
def test_each_step_ends_with_its_label(prompt: str, steps: list[tuple[str, bool]]) -> None:
    row = Stepwise(prompt, tuple(step for step, _ in steps), tuple(label for _, label in steps))
    (made,) = encode(row, "stepwise").rows[0]
    tokenizer = bpe()
    places = np.flatnonzero(made.weights)

    assert made.weights[places].tolist() == pytest.approx([RIGHT if label else WRONG for _, label in steps])
    written = [tokenizer.decode(made.ids[: place + 1].tolist()) for place in places]
    assert written == [prompt + "".join(step + STEP_END for step, _ in steps[: n + 1]) for n in range(len(steps))]


def test_steps_that_are_cut_off_are_not_labelled() -> None:
    row = Stepwise("abc", ("a" * 9, "b" * 9), (True, False))
    whole = encode(row, "stepwise").rows[0][0]
    cut = encode(row, "stepwise", Limit(len(whole) - 1, "keep_start"))
    assert np.count_nonzero(cut.rows[0][0].weights) == 1
    assert cut.counts["truncated"] == 1
    nothing = encode(row, "stepwise", Limit(3, "keep_start"))
    assert [fault.reason for fault in nothing.faults.values()] == ["nothing to train"]


def test_rows_of_another_kind_are_faults_and_the_others_are_not() -> None:
    rows: list[ChatRow] = [Judged("p", "a", label=True), Preference("p", "a", "b"), Judged("p", "b", label=False)]
    encoded = encode_kind(rows, "kto", encoder("kto"), Limit())
    assert {row: fault.reason for row, fault in encoded.faults.items()} == {1: "wrong kind"}
    assert [len(made) for made in encoded.rows] == [1, 0, 1]
    chats = encode_kind(rows, "chat", ChatSettings().encoder(bpe()), Limit())
    assert [fault.reason for fault in chats.faults.values()] == ["wrong kind"] * 3


def test_a_fault_in_one_side_is_a_fault_of_the_row_alone() -> None:
    empty = Preference((Message("user", "p"),), (Message("assistant", "", weight=0.0),), (Message("assistant", "b"),))
    encoded = encode_kind(
        [said("p", "a", "b"), empty, said("p", "c", "d")], "preference", encoder("preference"), Limit()
    )
    assert {row: fault.reason for row, fault in encoded.faults.items()} == {1: "nothing to train"}
    assert [len(made) for made in encoded.rows] == [2, 0, 2]
    left_out = encode_kind([empty], "preference", encoder("preference"), Limit(untrained="drop"))
    assert left_out.dropped["nothing to train"] == 1


def test_turns_of_the_prompt_are_not_trained() -> None:
    """Nor the reasoning of the history, which the stock template of Qwen3 leaves out: only the answer is learned."""
    prompt = (Message("user", "a"), Message("assistant", "b", reasoning="so"), Message("user", "c"))
    row = Preference(prompt, (Message("assistant", "yes"),), (Message("assistant", "no"),))
    for template in ("chatml", "qwen3"):
        plain = tuple(Message(each.role, each.content) for each in prompt) if template == "chatml" else prompt
        made = encode(Preference(plain, row.chosen, row.rejected), "preference", template=template)
        decode = encoder("preference", template=template).tokenizer.decode
        assert [decode(trained(side)).removeprefix("<think>\n\n</think>\n\n") for side in made.rows[0]] == [
            "yes<|im_end|>",
            "no<|im_end|>",
        ]


def test_the_kind_is_part_of_what_tokens_depend_on() -> None:
    assert settings("kto").identity != settings("preference").identity
    assert ChatSettings(format="kto").identity == ChatSettings(format="kto", kind="kto").identity
