"""Every format of fine-tuning rows says the same in the same types."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from millstream.chats.parse import (
    ChatRow,
    Completion,
    Conversation,
    Document,
    Judged,
    Media,
    Message,
    Preference,
    RowParser,
    Stepwise,
    Tokens,
    ToolCall,
)
from millstream.chats.parse.detect import detect
from millstream.chats.parse.parser import parse_row
from millstream.chats.parse.row_types import Stretch
from millstream.errors import RecordError

USER, ANSWER = Message("user", "2+2?"), Message("assistant", "4")
ASK = {"role": "user", "content": "2+2?"}
TELL = {"role": "assistant", "content": "4"}
OTHER = {"role": "assistant", "content": "5"}
CALL = ToolCall("add", {"b": 2, "a": 1}, "c1")
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"a": {"type": "integer"}}}}

GOOD: list[tuple[str, dict[str, Any], ChatRow]] = [
    ("messages", {"messages": [ASK, TELL], "id": 7}, Conversation((USER, ANSWER))),
    (
        "messages",
        {
            "messages": [{"role": "developer", "content": None}, {**TELL, "name": "bot"}],
            "chat_template_kwargs": {"x": 1},
        },
        Conversation((Message("developer", ""), Message("assistant", "4", name="bot")), template_kwargs={"x": 1}),
    ),
    ("sharegpt", {"conversations": [ASK, TELL]}, Conversation((USER, ANSWER))),
    (
        "sharegpt",
        {
            "conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4", "weight": 0}],
            "system": "Be short.",
            "tools": "",
        },
        Conversation((Message("system", "Be short."), USER, Message("assistant", "4", weight=0.0))),
    ),
    (
        "alpaca",
        {"instruction": "Add.", "input": "2 and 2", "output": "4", "history": [["2+2?", "4"]], "system": None},
        Conversation((USER, ANSWER, Message("user", "Add.\n2 and 2"), ANSWER)),
    ),
    ("alpaca", {"instruction": "2+2?", "input": "", "output": "4"}, Conversation((USER, ANSWER))),
    ("completion", {"prompt": "2+2=", "completion": "4"}, Completion("2+2=", "4")),
    ("completion", {"prompt": [ASK], "completion": [TELL]}, Conversation((USER, ANSWER), prompt_messages=1)),
    ("completion", {"prompt": [ASK], "completion": TELL}, Conversation((USER, ANSWER), prompt_messages=1)),
    ("text", {"text": "Once", "messages": None}, Document("Once")),
    ("preference", {"prompt": "2+2=", "chosen": "4", "rejected": "5"}, Preference("2+2=", "4", "5")),
    (
        "preference",
        {"prompt": [ASK], "chosen": [TELL], "rejected": [OTHER]},
        Preference((USER,), (ANSWER,), (Message("assistant", "5"),)),
    ),
    (
        "preference",
        {"chosen": [ASK, TELL, ASK, TELL], "rejected": [ASK, TELL, ASK, OTHER], "prompt": None},
        Preference((USER, ANSWER, USER), (ANSWER,), (Message("assistant", "5"),)),
    ),
    ("kto", {"prompt": "2+2=", "completion": "4", "label": True}, Judged("2+2=", "4", label=True)),
    ("kto", {"messages": [ASK, TELL], "kto_tag": False}, Judged((USER,), (ANSWER,), label=False)),
    (
        "kto",
        {"instruction": "2+2?", "input": "", "output": "4", "kto_tag": 1},
        Judged((USER,), (ANSWER,), label=True),
    ),
    (
        "stepwise",
        {"prompt": "2+2+2?", "completions": ["4", "7"], "labels": [True, False]},
        Stepwise("2+2+2?", ("4", "7"), (True, False)),
    ),
]


@pytest.mark.parametrize(("format", "row", "meant"), GOOD)
def test_a_row_is_known_by_its_fields_read_and_left_as_it_was(format: str, row: dict[str, Any], meant: ChatRow) -> None:
    before = json.dumps(row)

    assert detect(row) == format
    assert parse_row(row) == parse_row(row, format) == meant
    assert json.dumps(row) == before


@pytest.mark.parametrize("arguments", [{"b": 2, "a": 1, "unused": None}, '{"b": 2, "a": 1}'])
def test_arguments_are_an_object_or_one_written_as_json_and_keep_their_order(arguments: Any) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": arguments}}
    row = {
        "messages": [
            ASK,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "3", "tool_call_id": "c1", "name": "add"},
            TELL,
        ]
    }

    parsed = parse_row(row)

    assert isinstance(parsed, Conversation)
    assert parsed.messages[1] == Message("assistant", "", tool_calls=(CALL,))
    assert list(parsed.messages[1].tool_calls[0].arguments) == ["b", "a"]
    assert parsed.messages[2] == Message("tool", "3", name="add", tool_call_id="c1")


def test_nulls_inside_arguments_that_were_written_as_json_were_meant() -> None:
    call = {"name": "f", "arguments": '{"x": null}'}
    row = {"messages": [ASK, {"role": "assistant", "function_call": call}]}

    parsed = parse_row(row)

    assert isinstance(parsed, Conversation)
    assert parsed.messages[1].tool_calls == (ToolCall("f", {"x": None}),)


def test_calls_and_observations_of_sharegpt_are_messages_with_tools() -> None:
    turns = [
        {"from": "human", "value": "1+2?"},
        {"from": "function_call", "value": '{"name": "add", "arguments": {"b": 2, "a": 1}}'},
        {"from": "observation", "value": "3"},
        {"from": "gpt", "value": "3"},
    ]

    parsed = parse_row({"conversations": turns, "tools": json.dumps([TOOL])})

    assert isinstance(parsed, Conversation)
    assert [message.role for message in parsed.messages] == ["user", "assistant", "tool", "assistant"]
    assert parsed.messages[1].tool_calls == (ToolCall("add", {"b": 2, "a": 1}),)
    assert parsed.tools == (TOOL,)


def test_sharegpt_may_spell_its_calls_in_the_text_and_messages_may_with_an_option() -> None:
    turns = [{"from": "human", "value": "?"}, {"from": "gpt", "value": "<tool_call>"}, {"from": "tool", "value": "3"}]
    messages = [ASK, TELL, {"role": "tool", "content": "3"}]

    for parsed in (parse_row({"conversations": turns}), parse_row({"messages": messages}, calls_in_text=True)):
        assert isinstance(parsed, Conversation)
        assert [message.role for message in parsed.messages] == ["user", "assistant", "tool"]


@pytest.mark.parametrize("written", [lambda tool: tool, json.dumps])
def test_tools_are_objects_or_json_and_lose_the_nulls_that_a_table_added(written: Any) -> None:
    padded = {"type": "function", "strict": None, "function": {**TOOL["function"], "description": None}}  # type: ignore[dict-item]
    row = {"messages": [ASK, TELL], "tools": [written(padded if written is not json.dumps else TOOL)]}

    parsed = parse_row(row)

    assert isinstance(parsed, Conversation)
    assert parsed.tools == (TOOL,)
    assert "strict" in padded


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_has_three_names(name: str) -> None:
    parsed = parse_row({"messages": [ASK, {**TELL, name: "hm", "content": "4"}]})

    assert isinstance(parsed, Conversation)
    assert parsed.messages[1] == Message("assistant", "4", "hm")


def test_inline_reasoning_is_taken_out_only_when_asked() -> None:
    content = "<think>\nhm\n</think>\n\n4"
    flagged = {"begin_offset": len(content) - 1, "end_offset": len(content) - 1, "train": True}
    row = {"messages": [ASK, {"role": "assistant", "content": content, "training_detail": [flagged]}]}

    kept, taken = parse_row(row), parse_row(row, inline_think=True)

    assert isinstance(kept, Conversation)
    assert isinstance(taken, Conversation)
    assert kept.messages[1].content == content
    assert taken.messages[1] == Message("assistant", "4", "hm", stretches=(Stretch(0, 1, 1.0),))


@pytest.mark.parametrize(
    ("flags", "weight"),
    [
        ({"weight": 0.25}, 0.25),
        ({"loss_scale": 2}, 2.0),
        ({"train": False}, 0.0),
        ({"training": True}, 1.0),
        ({"loss": 0}, 0.0),
        ({"masked": True}, 0.0),
        ({"masked": False}, 1.0),
        ({"loss": True, "loss_scale": 0.5}, 0.5),
        ({"train": None, "weight": None}, None),
    ],
)
def test_every_training_flag_becomes_one_weight(flags: dict[str, Any], weight: float | None) -> None:
    for row in (
        {"messages": [ASK, {**TELL, **flags}]},
        {"conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4", **flags}]},
    ):
        parsed = parse_row(row)
        assert isinstance(parsed, Conversation)
        assert parsed.messages[1] == Message("assistant", "4", weight=weight)


def test_flags_of_parts_and_details_become_stretches_in_order() -> None:
    parts = [{"type": "text", "text": "ab", "weight": 0}, {"type": "text", "text": "cd"}]
    details = [
        {"begin_offset": 3, "end_offset": 3, "train": True},
        {"begin_offset": 0, "end_offset": 1, "train": False},
    ]

    by_parts = parse_row({"messages": [ASK, {"role": "assistant", "content": parts}]})
    by_details = parse_row({"messages": [ASK, {"role": "assistant", "content": "abcd", "training_detail": details}]})

    assert isinstance(by_parts, Conversation)
    assert isinstance(by_details, Conversation)
    assert by_parts.messages[1] == Message("assistant", "abcd", stretches=(Stretch(0, 2, 0.0),))
    assert by_details.messages[1].stretches == (Stretch(0, 2, 0.0), Stretch(3, 4, 1.0))


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [{"role": "user", "content": "<image>2+2?"}, TELL], "images": ["a.png"]},
        {"messages": [{"role": "user", "content": "<image>2+2?"}, TELL], "images": [{"path": "a.png", "bytes": None}]},
        {"messages": [{"role": "user", "content": "<image>2+2?"}, TELL], "images": "a.png", "videos": []},
        {
            "messages": [
                {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "2+2?", "url": None}]},
                TELL,
            ],
            "images": ["a.png"],
        },
        {
            "messages": [
                {"role": "user", "content": [{"type": "image", "path": "a.png"}, {"type": "text", "text": "2+2?"}]},
                TELL,
            ]
        },
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "a.png"}}, {"type": "text", "text": "2+2?"}],
                },
                TELL,
            ],
            "images": [],
        },
    ],
)
def test_media_are_references_beside_placeholders(row: dict[str, Any]) -> None:
    media = (Media("image", "a.png"),)

    assert parse_row(row) == Conversation((Message("user", "<image>2+2?"), ANSWER), media=media)


def test_a_text_that_only_mentions_a_placeholder_needs_no_media() -> None:
    parsed = parse_row({"messages": [{"role": "user", "content": "What is <image>?"}, TELL]})

    assert isinstance(parsed, Conversation)
    assert parsed.media == ()


@pytest.mark.parametrize(
    ("beside", "weights"),
    [
        ({}, [1, 1, 1]),
        ({"labels": [-100, 6, 7]}, [0, 1, 1]),
        ({"loss_mask": [0, 0.5, 1]}, [0, 0.5, 1]),
        ({"completion_mask": [0, 1, 1], "assistant_masks": [1, 1, 0]}, [0, 1, 0]),
        ({"labels": np.array([5, 6, -100]), "attention_mask": [1, 1, 1]}, [1, 1, 0]),
    ],
)
def test_rows_that_were_tokenised_pass_with_one_weight_per_token(beside: dict[str, Any], weights: list[float]) -> None:
    parsed = parse_row({"input_ids": [5, 6, 7], **beside})

    assert isinstance(parsed, Tokens)
    assert (parsed.ids.tolist(), parsed.weights.tolist()) == ([5, 6, 7], weights)
    assert [str(parsed.ids.dtype), str(parsed.weights.dtype)] == ["uint32", "float32"]


def test_columns_rename_and_hide_fields() -> None:
    row = {"dialog": [ASK, TELL], "text": "rendered", "messages": "not these"}

    assert parse_row(row, columns={"messages": "dialog", "text": None}) == Conversation((USER, ANSWER))


def test_roles_can_be_given_other_names() -> None:
    row = {"messages": [{"role": "customer", "content": "2+2?"}, {"role": "bot", "content": "4"}]}

    assert parse_row(row, roles={"customer": "user", "bot": "assistant"}) == Conversation((USER, ANSWER))


def test_a_chosen_format_wins_over_what_the_fields_say() -> None:
    assert parse_row({"messages": [ASK, TELL], "text": "x"}, "text") == Document("x")
    assert parse_row({"prompt": "a", "completion": "b", "label": "maths"}, "completion") == Completion("a", "b")


def test_the_rows_of_a_file_have_the_format_of_its_first() -> None:
    parser = RowParser()
    parser.parse({"messages": [ASK, TELL]})

    assert parser.format == "messages"
    assert parser.parse({"messages": [ASK, TELL], "text": "x"}) == Conversation((USER, ANSWER))


def test_a_row_of_another_format_is_told_that_the_first_one_decided() -> None:
    parser = RowParser()
    parser.parse({"messages": [ASK, TELL]})
    with pytest.raises(RecordError, match=r"no 'messages' .*: it is a row of alpaca in a file of messages") as caught:
        parser.parse({"instruction": "2+2?", "output": "4"})

    assert caught.value.hint and "the first row of a file" in caught.value.hint
