"""Laws of parsing rows: one meaning however it is written, the row untouched, and no error but ours."""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from laws import examples
from millstream.chats.parse import FIELDS, Conversation, Message, Preference, RowParser
from millstream.chats.parse.detect import FORMATS
from millstream.chats.parse.parser import parse_row
from millstream.chats.parse.row_types import Stretch
from millstream.errors import RecordError

texts = st.text(st.characters(codec="utf-8"), max_size=20)
turns = st.lists(st.tuples(texts, texts), min_size=1, max_size=4)

KEYS = [
    *sorted(FIELDS),
    *("role", "content", "from", "value", "name", "type", "text", "url", "path", "image", "image_url", "id"),
    *("function", "function_call", "arguments", "tool_calls", "tool_call_id"),
    *("weight", "train", "training", "loss", "loss_scale", "masked", "training_detail", "begin_offset", "end_offset"),
    *("reasoning", "thinking", "reasoning_content"),
]
VALUES = [
    *("system", "user", "assistant", "tool", "developer", "human", "gpt", "observation", "function_call"),
    *("text", "image", "<image>", "<think>", "{}", "[7]"),
]
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(VALUES)
    | st.sampled_from(["\ud800", "<think>a</think>b", '{"name": "f"}', 10**400]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=30,
)
almost = st.fixed_dictionaries(
    {
        "messages": st.lists(
            st.fixed_dictionaries(
                {"role": st.sampled_from(["user", "assistant", "tool"]), "content": anything},
                optional={name: anything for name in KEYS if name not in ("role", "content")},
            ),
            max_size=4,
        )
    },
    optional=dict.fromkeys(("tools", "images", "chat_template_kwargs", "kto_tag"), anything),
)


@examples(100)
@given(anything | almost, st.none() | st.sampled_from(list(FORMATS)), st.booleans())
def test_no_row_raises_anything_but_our_error(row: Any, format: str | None, inline_think: bool) -> None:
    before = copy.deepcopy(row)
    try:
        parse_row(row, format, inline_think=inline_think)
    except RecordError as error:
        assert error.hint
        str(error).encode()
    assert repr(row) == repr(before)


@examples(100)
@given(st.dictionaries(st.sampled_from(sorted(FIELDS)), anything, max_size=6))
def test_no_row_of_known_fields_raises_anything_but_our_error(row: dict[str, Any]) -> None:
    for format in (None, *FORMATS):
        try:
            parse_row(row, format)
        except RecordError as error:
            assert error.reason


def as_messages(said: list[tuple[str, str]]) -> list[dict[str, str]]:
    pairs = (({"role": "user", "content": q}, {"role": "assistant", "content": a}) for q, a in said)
    return [message for pair in pairs for message in pair]


@given(turns)
def test_a_conversation_means_the_same_in_every_format(said: list[tuple[str, str]]) -> None:
    assume(said[-1][0])
    messages = as_messages(said)
    names = {"user": "human", "assistant": "gpt"}
    shared = [{"from": names[each["role"]], "value": each["content"]} for each in messages]
    history, (question, answer) = [list(pair) for pair in said[:-1]], said[-1]
    in_parts = [{**each, "content": [{"type": "text", "text": each["content"]}]} for each in messages]

    meant = parse_row({"messages": messages})

    assert meant == Conversation(tuple(Message(each["role"], each["content"]) for each in messages))
    assert parse_row({"messages": in_parts}) == meant
    assert parse_row({"conversations": shared}) == meant
    assert parse_row({"instruction": question, "output": answer, "history": history}) == meant
    assert RowParser("messages").parse(json.loads(json.dumps({"messages": messages}))) == meant


@given(turns, texts, texts)
def test_the_implicit_prompt_is_the_longest_common_run_of_messages(
    said: list[tuple[str, str]], good: str, poor: str
) -> None:
    assume(good != poor)
    prompt = as_messages(said)[:-1]
    chosen, rejected = ({"role": "assistant", "content": each} for each in (good, poor))

    implicit = parse_row({"chosen": [*prompt, chosen], "rejected": [*prompt, rejected]})

    assert isinstance(implicit, Preference)
    assert implicit == parse_row({"prompt": prompt, "chosen": [chosen], "rejected": [rejected]})
    assert implicit.prompt == tuple(Message(each["role"], each["content"]) for each in prompt)


@given(st.lists(st.tuples(texts, st.none() | st.floats(0, 10)), max_size=6))
def test_the_stretches_of_parts_lie_over_their_texts(parts: list[tuple[str, float | None]]) -> None:
    content = [{"type": "text", "text": text, "weight": weight} for text, weight in parts]

    parsed = parse_row({"messages": [{"role": "assistant", "content": content}]})

    assert isinstance(parsed, Conversation)
    (message,) = parsed.messages
    weighed = [(text, weight) for text, weight in parts if text and weight is not None]
    assert message.content == "".join(text for text, _ in parts)
    assert [(message.content[each.start : each.stop], each.weight) for each in message.stretches] == weighed


@given(texts.filter(bool), st.data())
def test_details_by_character_are_stretches_whatever_their_order(content: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(content)))) | {0, len(content)})
    meant = [Stretch(start, stop, float(place % 2)) for place, (start, stop) in enumerate(pairwise(cuts))]
    details = [
        {"begin_offset": each.start, "end_offset": each.stop - 1, "train": bool(each.weight)}
        for each in data.draw(st.permutations(meant))
    ]

    parsed = parse_row({"messages": [{"role": "assistant", "content": content, "training_detail": details}]})

    assert isinstance(parsed, Conversation)
    assert parsed.messages[0].stretches == tuple(meant)
