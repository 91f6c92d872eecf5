"""What is wrong with a row is said with a reason that can be counted, what was found, and a hint."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from millstream.errors import RecordError, SourceError
from millstream.records.chat import RowParser
from millstream.records.chat.parser import parse_row

ASK = {"role": "user", "content": "2+2?"}
TELL = {"role": "assistant", "content": "4"}
CALLS = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": {}}}]}


def chat(*messages: Any, **beside: Any) -> dict[str, Any]:
    return {"messages": list(messages), **beside}


def said(**fields: Any) -> dict[str, Any]:
    """A conversation whose answer has these fields."""
    return chat(ASK, {**TELL, **fields})


def detail(begin: Any, end: Any, **flags: Any) -> dict[str, Any]:
    return {"begin_offset": begin, "end_offset": end, **flags}


FAULTS: list[tuple[str, Any, str]] = [
    ("wrong type", 7, "the row is a JSON number: 7"),
    ("wrong type", [], "the row is a JSON array"),
    ("unknown format", {"id": 7, "body": "x"}, "'id', 'body'"),
    ("ambiguous format", {"messages": [], "text": "x"}, "fit messages and text"),
    (
        "ambiguous format",
        {"prompt": "a", "chosen": "b", "rejected": "c", "messages": []},
        "fit messages and preference",
    ),
    ("empty conversation", chat(), "messages has no messages"),
    ("empty conversation", {"conversations": []}, "no turns"),
    ("empty conversation", {"instruction": "", "input": None, "output": "x"}, "both"),
    ("no assistant turn", chat(ASK), "by user only"),
    ("no assistant turn", {"prompt": [ASK, TELL], "completion": [ASK]}, "completion"),
    ("no assistant turn", {"prompt": [ASK], "chosen": [TELL], "rejected": [ASK]}, "rejected"),
    ("no assistant turn", {"messages": [ASK, TELL, ASK], "kto_tag": True}, "the last message"),
    ("unknown role", chat({"role": "robot", "content": "x"}), "messages[0] is by 'robot'"),
    ("unknown role", chat({"role": ["user"], "content": "x"}), "messages[0]"),
    ("unknown role", {"conversations": [{"from": "robot", "value": "x"}]}, "conversations[0] is by 'robot'"),
    ("unknown role", {"conversations": [{"from": {}, "value": "x"}]}, "conversations[0]"),
    ("missing field", chat({"content": "x"}), "messages[0] has no 'role'"),
    ("missing field", chat(ASK, {"role": "assistant", "contents": "x"}), "messages[1] has no 'content'"),
    ("missing field", {"conversations": [{"from": "gpt"}]}, "conversations[0] has no 'value'"),
    ("wrong type", chat("hello"), "messages[0] is a JSON string"),
    ("wrong type", {"messages": "hello"}, "messages is a JSON string"),
    ("null content", said(content=None), "messages[1].content is null"),
    ("null content", said(content=None, tool_calls=[], reasoning=""), "messages[1].content is null"),
    ("null content", chat({**ASK, "content": None}, TELL), "messages[0].content is null"),
    ("wrong type", said(content=7), "messages[1].content is a JSON number"),
    ("wrong type", said(content={"text": "x"}), "messages[1].content is a JSON object"),
    ("wrong type", said(name=7), "messages[1].name"),
    ("wrong type", said(reasoning=[]), "messages[1].reasoning"),
    ("not Unicode", said(content="\ud800"), "messages[1].content"),
    ("not Unicode", said(thinking="\udfff"), "messages[1].thinking"),
    ("not Unicode", {"text": "x\ud83d"}, "text"),
    ("not Unicode", {"instruction": "a", "output": "\udc00"}, "output"),
    ("not Unicode", chat(ASK, TELL, tools=[{"name": "\ud800"}]), "tools[0]"),
    ("not Unicode", chat(ASK, TELL, images=["\ud800"]), "images[0]"),
    ("reasoning twice", said(reasoning="a", thinking="b"), "reasoning and thinking"),
    ("bad weight", said(weight=float("nan")), "weight is NaN"),
    ("bad weight", said(weight=float("inf")), "weight is Infinity"),
    ("bad weight", said(weight=-1), "weight is -1"),
    ("bad weight", said(loss_scale=1e30), "loss_scale is 1e+30"),
    ("bad weight", said(weight=10**400), "weight is 1000"),
    ("bad weight", said(weight=75.5), "weight is 75.5"),
    ("bad weight", said(training_detail=[detail(0, 0, weight=100)]), "training_detail[0].weight is 100"),
    ("wrong type", said(weight="1"), "messages[1].weight"),
    ("wrong type", said(train="yes"), "messages[1].train"),
    ("wrong type", said(masked=0.5), "messages[1].masked"),
    ("flags contradict", said(train=False, weight=1), "weight=1, train=false"),
    ("flags contradict", said(weight=1, loss_scale=0.5), "weight=1, loss_scale=0.5"),
    ("offsets outside", said(training_detail=[detail(0, 1, train=True)]), "characters 0 to 1 of a content of 1"),
    ("offsets outside", said(training_detail=[detail(-1, 0, train=True)]), "characters -1 to 0"),
    ("offsets outside", said(content="abc", training_detail=[detail(2, 1, train=True)]), "characters 2 to 1"),
    ("wrong type", said(training_detail=[detail(0.5, 1, train=True)]), "begin_offset"),
    ("wrong type", said(training_detail=[detail(0, float("inf"), train=True)]), "end_offset"),
    ("wrong type", said(training_detail=[7]), "training_detail[0]"),
    ("missing field", said(training_detail=[{"begin_offset": 0, "train": True}]), "'end_offset'"),
    ("no flag", said(training_detail=[detail(0, 0)]), "training_detail[0]"),
    (
        "stretches overlap",
        said(content="abc", training_detail=[detail(0, 1, train=True), detail(1, 2, train=False)]),
        "character 1",
    ),
    ("tool result without call", chat(ASK, {"role": "tool", "content": "3"}, TELL), "messages[1]"),
    ("tool result without call", chat(ASK, TELL, {"role": "tool", "content": "3"}), "messages[2]"),
    ("tool result without call", chat(ASK, CALLS, ASK, {"role": "tool", "content": "3"}), "messages[3]"),
    ("tool result without call", chat(ASK, CALLS, *[{"role": "tool", "content": "3"}] * 2), "messages[3]"),
    (
        "tool result without call",
        chat(ASK, CALLS, {"role": "tool", "content": "3", "tool_call_id": "c2"}),
        "it answers 'c2', and the open calls are 'c1'",
    ),
    (
        "tool result without call",
        {"conversations": [{"from": "observation", "value": "3"}, TELL | {"from": "gpt", "value": "x"}]},
        "messages[0]",
    ),
    ("not JSON", said(tool_calls=[{"function": {"name": "f", "arguments": "{x"}}]), "arguments"),
    ("wrong type", said(tool_calls=[{"function": {"name": "f", "arguments": "[1]"}}]), "arguments is a JSON array"),
    ("wrong type", said(tool_calls={}), "messages[1].tool_calls is a JSON object"),
    ("wrong type", said(tool_calls=["f"]), "messages[1].tool_calls[0]"),
    ("missing field", said(tool_calls=[{"function": {"arguments": {}}}]), "has no 'name'"),
    ("misplaced call", chat({**CALLS, "role": "user"}, TELL), "messages[0] is by user"),
    ("not JSON", {"conversations": [{"from": "function_call", "value": "f(1)"}]}, "conversations[0].value"),
    ("not JSON", chat(ASK, TELL, tools="[{]"), "tools"),
    ("not JSON", chat(ASK, TELL, tools=[{"x": float("nan")}]), "tools[0]"),
    ("wrong type", chat(ASK, TELL, tools=[7]), "tools[0] is a JSON number"),
    ("wrong type", chat(ASK, TELL, tools="7"), "tools[0] is a JSON number"),
    ("wrong type", chat(ASK, TELL, chat_template_kwargs=[1]), "chat_template_kwargs"),
    ("two system prompts", {"conversations": [{"from": "system", "value": "a"}], "system": "b"}, "differ"),
    ("wrong type", {"instruction": "a", "output": "b", "history": [["q"]]}, "history[0]"),
    ("wrong type", {"instruction": 7, "output": "b"}, "instruction"),
    ("unknown part", said(content=[{"type": "smell"}]), "messages[1].content[0] has type 'smell'"),
    ("missing field", said(content=[{"text": "x"}]), "content[0] has no 'type'"),
    ("missing field", said(content=[{"type": "text"}]), "content[0] has no 'text'"),
    ("wrong type", said(content=["x"]), "content[0] is a JSON string"),
    ("media count", said(content=[{"type": "image"}]), "1 <image> and the row has 0 images"),
    ("media count", {**said(content="<image>"), "images": ["a", "b"]}, "1 <image> and the row has 2 images"),
    ("media count", {**said(content="<video>"), "videos": []}, "1 <video> and the row has 0 videos"),
    ("media count", said(content=[{"type": "image", "url": "a"}, {"type": "text", "text": "<image>"}]), "2 <image>"),
    ("media twice", {**said(content=[{"type": "image", "url": "a"}]), "images": ["a"]}, "'images' lists 1"),
    ("wrong type", {**said(content="<image>"), "images": [7]}, "images[0]"),
    ("wrong type", {"prompt": 7, "completion": "x"}, "prompt is a JSON number"),
    ("mixed sides", {"prompt": "a", "completion": [TELL]}, "prompt is a string, completion is messages"),
    ("mixed sides", {"prompt": "a", "chosen": [TELL], "rejected": [TELL]}, "prompt is a string"),
    ("no prompt", {"chosen": "ab", "rejected": "ac"}, "strings"),
    ("no prompt", {"chosen": [ASK, TELL], "rejected": [{**ASK, "content": "3+3?"}, TELL]}, "no first message"),
    ("no difference", {"chosen": [ASK, TELL], "rejected": [ASK, TELL]}, "equal"),
    ("empty answer", {"prompt": "a", "chosen": "b", "rejected": ""}, "rejected"),
    ("wrong type", {"prompt": "a", "completion": "b", "label": "good"}, "label"),
    ("lengths differ", {"prompt": "a", "completions": ["b"], "labels": []}, "1 completions and 0 labels"),
    ("wrong type", {"prompt": "a", "completions": ["b"], "labels": [2]}, "labels[0]"),
    ("empty conversation", {"prompt": "a", "completions": [], "labels": []}, "no steps"),
    ("empty text", {"text": ""}, "empty"),
    ("lengths differ", {"input_ids": [1, 2], "labels": [1]}, "1 in labels and 2 in input_ids"),
    ("lengths differ", {"input_ids": [1], "loss_mask": [1, 1]}, "2 in loss_mask"),
    ("labels are other ids", {"input_ids": [1, 2, 3], "labels": [2, 3, -100]}, "labels[0] is 2, input_ids[0] is 1"),
    ("bad weight", {"input_ids": [1], "loss_mask": [-1]}, "loss_mask"),
    ("bad weight", {"input_ids": [1], "loss_mask": [float("nan")]}, "loss_mask"),
    ("bad weight", {"input_ids": [1, 2], "loss_mask": [0, 76]}, "loss_mask[1] is 76"),
    ("bad weight", {"input_ids": [1], "loss_mask": [9], "completion_mask": [9]}, "weigh a token 81"),
    ("padded row", {"input_ids": [1, 0], "attention_mask": [1, 0]}, "for 1 tokens"),
    ("empty row", {"input_ids": []}, "no tokens"),
    ("bad token id", {"input_ids": [-1]}, "-1"),
    ("bad token id", {"input_ids": [1 << 32]}, "4294967296"),
    ("wrong type", {"input_ids": [1.5]}, "input_ids"),
    ("wrong type", {"input_ids": [[1], [2, 3]]}, "input_ids"),
    ("wrong type", {"input_ids": [10**30]}, "input_ids"),
    ("wrong type", {"input_ids": "12"}, "input_ids"),
]


@pytest.mark.parametrize(("reason", "row", "found"), FAULTS)
def test_a_bad_row_is_told_by_reason_finding_and_hint(reason: str, row: Any, found: str) -> None:
    with pytest.raises(RecordError) as caught:
        parse_row(row)

    assert caught.value.reason == reason
    assert found in caught.value.found
    assert caught.value.hint
    caught.value.found.encode()  # it is written into reports


def test_offsets_of_details_and_flags_of_parts_may_not_overlap() -> None:
    parts = [{"type": "text", "text": "ab", "weight": 0}]

    with pytest.raises(RecordError, match="stretches overlap"):
        parse_row(said(content=parts, training_detail=[detail(1, 1, train=True)]))


@pytest.mark.parametrize(
    ("content", "reason"), [("<think>never closed", "open <think>"), ("<think>a</think>b", "flags in <think>")]
)
def test_inline_reasoning_must_be_whole_and_without_flags(content: str, reason: str) -> None:
    with pytest.raises(RecordError) as caught:
        parse_row(said(content=content, training_detail=[detail(0, 9, train=False)]), inline_think=True)

    assert caught.value.reason == reason


def test_a_row_without_the_renamed_field_says_what_it_has() -> None:
    with pytest.raises(RecordError, match=r"the row has no 'dialog' \(it has 'id', 'dialogue'\)"):
        parse_row({"id": 1, "dialogue": []}, columns={"messages": "dialog"})


def test_a_row_of_another_format_than_the_file_says_what_it_has() -> None:
    parser = RowParser("messages")

    with pytest.raises(RecordError, match=r"missing field: the row has no 'messages' \(it has 'text'\)"):
        parser.parse({"text": "x"})


def test_objects_that_lie_too_deep_are_told() -> None:
    tool: dict[str, Any] = {}
    for _ in range(100_000):
        tool = {"x": tool}

    with pytest.raises(RecordError, match="too deep"):
        parse_row(chat(ASK, TELL, tools=[tool]))


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"format": "chatml"}, "format='chatml' is unknown"),
        ({"columns": {"message": "dialog"}}, "no format has a field 'message'"),
        ({"roles": {"bot": "robot"}}, "'robot', which is no role"),
    ],
)
def test_impossible_options_are_refused_at_once(options: dict[str, Any], found: str) -> None:
    with pytest.raises(SourceError, match=found):
        parse_row({"text": "x"}, **options)


def test_a_fault_can_be_sent_to_another_process() -> None:
    fault = RecordError("no flag", "none", hint="add one")

    again = pickle.loads(pickle.dumps(fault))

    assert (again.reason, again.found, again.hint, str(again)) == ("no flag", "none", "add one", str(fault))
