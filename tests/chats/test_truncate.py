"""A row that is too long: what is left is short enough, says so, and trains nothing that the row did not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chats.chatml import bpe, encoder, talk
from millstream.chats import Choice, Limit, Policy, Supervised, Truncation, Untrained
from millstream.chats.encode import Encoded
from millstream.chats.parse import Conversation, Document, Media, Message, ToolCall
from millstream.chats.show import show
from millstream.chats.truncate import Pair, PairLimit, fit_pair
from millstream.errors import RecipeError, RecordError

EXCHANGES = st.lists(
    st.lists(st.sampled_from(["assistant", "tool"]), max_size=4).map(lambda later: ["user", *later]),
    min_size=1,
    max_size=5,
)


def conversation(exchanges: list[list[str]], sizes: list[int], *, system: bool) -> Conversation:
    """Exchanges in which every tool result follows a call; message i says its own number."""
    messages = [Message("system", "be brief")] if system else []
    for exchange in exchanges:
        for place, role in enumerate(exchange):
            calls = (ToolCall("f", {}),) if exchange[place + 1 : place + 2] == ["tool"] else ()
            text = f"m{len(messages)} " + "the mill " * sizes[len(messages) % len(sizes)]
            allowed = role if role != "tool" or place > 1 or exchange[place - 1] == "assistant" else "assistant"
            messages.append(Message(allowed, text, tool_calls=calls if allowed == "assistant" else ()))
    return Conversation(tuple(messages))


def encode(row: Conversation, limit: Limit, policy: Policy | None = None) -> Encoded:
    return encoder().encode([row], limit, policy=policy)


@pytest.mark.parametrize("truncation", ["drop", "keep_start", "keep_end", "turns", "split"])
@settings(max_examples=60, deadline=None)
@given(
    exchanges=EXCHANGES,
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=5),
    system=st.booleans(),
    length=st.integers(1, 120),
)
def test_truncation_never_exceeds_the_cap_nor_trains_more(
    truncation: Truncation, exchanges: list[list[str]], sizes: list[int], system: bool, length: int
) -> None:
    row = conversation(exchanges, sizes, system=system)
    whole = encode(row, Limit(untrained="keep")).rows[0][0]
    found = encode(row, Limit(length, truncation, untrained="keep"))
    kept = found.rows[0]

    assert all(len(each) <= length for each in kept)
    assert sum(each.trained for each in kept) <= whole.trained + len(kept)  # the first token of a window may count
    assert all(each.truncated for each in kept) == (len(whole) > length or not kept)
    if len(whole) > length:
        assert found.counts["truncated"] + found.dropped["too long"] == 1
    if truncation in ("turns", "split"):
        for each in kept:
            assert_whole_exchanges(row, np.unique(each.messages[each.messages >= 0]).tolist(), system=system)


@pytest.mark.parametrize("untrained", ["error", "drop", "keep"])
@pytest.mark.parametrize("truncation", ["error", "drop", "keep_start", "keep_end", "turns", "split"])
@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.tuples(EXCHANGES, st.lists(st.integers(0, 12), min_size=1, max_size=5)), min_size=1, max_size=6),
    length=st.integers(1, 120),
    train=st.sampled_from(["assistant", "last", "explicit"]),
)
def test_every_row_is_counted_once_and_changes_are_of_rows_that_are_kept(
    truncation: Truncation, untrained: Untrained, rows: list[Any], length: int, train: Choice
) -> None:
    """Left out + bad + kept is all rows, and what is counted as changed is what the kept rows alone give."""
    chats = [_thinking(conversation(*each, system=True)) for each in rows]
    limit = Limit(length, truncation, untrained=untrained)
    found = encoder().encode(chats, limit, policy=Policy(train))
    kept = [at for at, made in enumerate(found.rows) if made]

    assert found.dropped.total() + len(found.faults) + len(kept) == len(chats)
    assert not {*kept} & {*found.faults} and not {*kept} & {*found.reasons} and not {*found.reasons} & {*found.faults}
    again = encoder().encode([chats[at] for at in kept], limit, policy=Policy(train))
    assert found.counts == again.counts
    assert found.counts["truncated"] <= len(kept)


def _thinking(row: Conversation) -> Conversation:
    """Answers with a reasoning that the template leaves out."""
    messages = (replace(each, reasoning="so" if each.role == "assistant" else None) for each in row.messages)
    return replace(row, messages=tuple(messages))


def assert_whole_exchanges(row: Conversation, kept: list[int], *, system: bool) -> None:
    """Whole exchanges, one after the other, after the system prompt: no half turn, no result without its call."""
    roles = [message.role for message in row.messages]
    assert not system or kept[0] == 0
    later = kept[1:] if system else kept
    assert later == list(range(later[0], later[-1] + 1))
    assert roles[later[0]] == "user"
    assert later[-1] + 1 == len(roles) or roles[later[-1] + 1] == "user"


LONG = talk(*(f"{word} the mill the stream" for word in ("one", "two", "three", "four")), system="be brief")
ROOM = 50


def test_turns_drops_the_oldest_exchanges_and_keeps_the_system_prompt() -> None:
    row = encode(LONG, Limit(ROOM, "turns")).rows[0][0]
    text = show(row, bpe().decode)
    assert "be brief" in text and "three" in text and "one" not in text and text.count("⟦") == 1
    assert row.truncated and np.unique(row.messages).tolist() == [0, 3, 4]
    assert encode(LONG, Limit(ROOM, "turns")).counts["messages left out"] == 2


def test_split_keeps_every_exchange_once_each_with_the_system_prompt() -> None:
    rows = encode(LONG, Limit(ROOM, "split")).rows[0]
    assert [np.unique(row.messages).tolist() for row in rows] == [[0, 1, 2], [0, 3, 4]]


def test_a_window_trains_only_what_the_whole_row_trained() -> None:
    found = encode(LONG, Limit(ROOM, "split", untrained="drop"), Policy("last"))
    assert [np.unique(row.messages).tolist() for row in found.rows[0]] == [[0, 3, 4]]
    assert not found.dropped  # the row is kept; what it lost is a change
    assert found.counts == {"truncated": 1, "messages left out": 2, "windows left out: nothing to train": 1}


def test_a_long_document_is_split_into_windows_that_lose_nothing() -> None:
    found = encoder().encode([Document("the mill " * 40)], Limit(16, "split")).rows[0]
    assert bpe().decode(np.concatenate([row.ids for row in found]).tolist()) == "the mill " * 40 + "<|endoftext|>"


def test_a_row_that_is_too_long_is_an_error_unless_something_else_is_asked_for() -> None:
    fault = encode(LONG, Limit(ROOM)).faults[0]
    assert fault.reason == "too long" and f"{ROOM} are allowed" in fault.found and fault.hint and "turns" in fault.hint


def test_parts_of_a_row_with_media_are_refused() -> None:
    row = Conversation(LONG.messages, media=(Media("image", "a.png"),))
    assert encode(row, Limit(ROOM, "turns")).faults[0].reason == "media in a long row"


@pytest.mark.parametrize("wrong", [{"max_length": 0}, {"truncation": "middle"}, {"untrained": "maybe"}])
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(RecipeError):
        Limit(**wrong)  # type: ignore[arg-type]


def test_one_bad_row_does_not_spoil_its_batch() -> None:
    rows = [talk("a", "b"), Conversation((Message("robot", "\ud800"),)), talk("c", "d")]
    found = encoder().encode(rows)
    assert [len(each) for each in found.rows] == [1, 0, 1]
    assert isinstance(found.faults[1], RecordError) and list(found.faults) == [1]


lengths = st.integers(0, 60)


def row(count: int, first: int = 0) -> Supervised:
    return Supervised(
        np.arange(first, first + count, dtype=np.uint32), np.ones(count, np.float32), np.zeros(count, np.int32)
    )


@given(prompt=lengths, chosen=lengths, rejected=lengths, cap=st.integers(1, 80), least=st.integers(0, 79))
def test_a_pair_keeps_the_cap_the_same_prompt_and_answers_that_are_not_empty(
    prompt: int, chosen: int, rejected: int, cap: int, least: int
) -> None:
    least = min(least, cap - 1)
    pair = Pair(row(prompt), row(chosen, 100), row(rejected, 200))
    found = fit_pair(pair, PairLimit(cap, least))
    if found is None:
        assert not (chosen and rejected)
        return
    answers = (found.chosen, found.rejected)
    assert all(len(found.prompt) + len(answer) <= cap and len(answer) for answer in answers)
    assert len(found.prompt) >= min(prompt, least)
    assert found.prompt.ids.tolist() == pair.prompt.ids[prompt - len(found.prompt) :].tolist()  # its end
    assert all(
        whole.ids[: len(part)].tolist() == part.ids.tolist() for whole, part in zip(pair[1:], answers, strict=True)
    )
    assert all(part.truncated == (len(part) < len(whole)) for whole, part in zip(pair, found, strict=True))
    if prompt + max(chosen, rejected) <= cap:
        assert found == pair


def test_a_least_prompt_that_leaves_no_room_for_an_answer_is_refused() -> None:
    with pytest.raises(RecipeError, match="no room"):
        PairLimit(10, min_prompt=10)
