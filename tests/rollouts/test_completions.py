"""Records of a prompt and its completion, as TRL and prime-rl have them: the prompt is never trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream import MemoryFeed, RolloutDataLoader
from millstream.errors import RecordError
from millstream.loaders import are_rollouts
from millstream.rollouts import block_of, encode, notes_of, read_rollouts

IDS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=6)
LOGPROBS = st.floats(-50, 0, width=32)
SAID = {"rollout_id": "a", "group_id": "g", "reward": 1.0, "finish": "stop"}
APART = {**SAID, "prompt_ids": [5, 6], "completion_ids": [7, 8, 9]}
BARE = {"prompt_ids": [5, 6], "completion_ids": [7, 8], "completion_mask": [1, 1], "reward": 1.0}


@given(st.lists(st.integers(0, 2**32 - 1), max_size=5), IDS, st.data(), st.booleans())
def test_both_sides_are_the_sequence_that_they_are(
    prompt: list[int], completion: list[int], data: st.DataObject, arrays: bool
) -> None:
    def column(each: st.SearchStrategy[Any]) -> list[Any]:
        return data.draw(st.lists(each, min_size=len(completion), max_size=len(completion)))

    mask, logprobs, values = column(st.integers(0, 1)), column(LOGPROBS), column(st.floats(-9, 9, width=32))
    name = data.draw(st.sampled_from(["completion_logprobs", "sampling_per_token_logps", "logprobs"]))
    said: dict[str, Any] = {"prompt_ids": prompt, "completion_ids": completion, "completion_mask": mask, name: logprobs}
    said |= {"values": values, "prompt_mask": [data.draw(st.integers(0, 1))] * len(prompt)}
    if arrays:
        kinds = {"prompt_ids": np.uint32, "completion_ids": np.int64, name: np.float32, "values": np.float32}
        said = {key: np.array(value, kinds.get(key, np.int8)) for key, value in said.items()}
    before = [0] * len(prompt)
    whole = {"token_ids": prompt + completion, "loss_mask": before + mask, "prompt_len": len(prompt)}
    whole |= {"sampling_logprobs": before + logprobs, "values": before + values}

    assert encode(block_of({**SAID, **said})) == encode(block_of({**SAID, **whole}))


def test_without_a_mask_the_completion_is_trained_on_and_masks_leave_out_what_they_say() -> None:
    masks: list[tuple[dict[str, Any], list[int]]] = [
        ({}, [0, 0, 1, 1, 1]),
        ({"completion_mask": [1, 1, 0]}, [0, 0, 1, 1, 0]),
        ({"completion_mask": [1, 1, 0], "tool_mask": [1, 0, 1]}, [0, 0, 1, 0, 0]),
        ({"env_mask": [0, 0, 1]}, [0, 0, 0, 0, 1]),
        ({"loss_mask": [0, 1, 1]}, [0, 0, 0, 1, 1]),
        ({"loss_mask": [0, 0, 1, 0, 1]}, [0, 0, 1, 0, 1]),
        ({"policy_version": [3, 3, 4]}, [0, 0, 1, 1, 1]),
    ]
    for more, trained in masks:
        block = block_of({**APART, **more})
        assert block["loss_mask"].tolist() == [bool(each) for each in trained], more
        assert block["prompt_len"].tolist() == [2]
    assert block_of({**APART, "policy_version": [3, 3, 4]})["policy_version"].tolist() == [3, 3, 3, 3, 4]


def test_everything_behind_the_prompt_is_trained_on_where_only_its_length_is_said() -> None:
    block = block_of({**SAID, "input_ids": [5, 6, 7], "prompt_len": 2})

    assert block["loss_mask"].tolist() == [False, False, True]


FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no completion": ({**SAID, "prompt_ids": [5]}, "missing field", "'completion_ids'"),
    "no prompt": ({**SAID, "completion_ids": [5]}, "missing field", "'prompt_ids'"),
    "ids as well": ({**APART, "input_ids": [5, 6, 7, 8, 9]}, "named twice", "'input_ids'"),
    "two masks": ({**APART, "loss_mask": [0, 1, 1], "completion_mask": [0, 1, 1]}, "named twice", "'completion_mask'"),
    "two logprobs": (
        {**APART, "logprobs": [0.0] * 3, "completion_logprobs": [0.0] * 3},
        "named twice",
        "'completion_logprobs'",
    ),
    "short mask": ({**APART, "completion_mask": [1]}, "unequal lengths", "completion_mask has 1 values"),
    "long logprobs": ({**APART, "logprobs": [0.0] * 4}, "unequal lengths", "logprobs has 4 values"),
    "a mask of 2": ({**APART, "completion_mask": [1, 2, 1]}, "impossible completion_mask", "[1, 2, 1]"),
    "padding": ({**APART, "prompt_mask": [0, 1]}, "ambiguous prompt mask", "prompt_mask is [0, 1]"),
    "another length": ({**APART, "prompt_len": 3}, "impossible value", "prompt_len is 3"),
    "texts": ({**APART, "completion_ids": "789"}, "wrong type", "completion_ids is '789'"),
    "large ids": ({**APART, "completion_ids": [1 << 40]}, "impossible token id", "1099511627776"),
    "alone": (
        {**SAID, "token_ids": [5, 6], "loss_mask": [0, 1], "completion_mask": [1]},
        "unknown field",
        "completion_",
    ),
    "odd truncation": ({**BARE, "is_truncated": "yes"}, "wrong type", "is_truncated is 'yes'"),
    "two ends": ({**APART, "is_truncated": True}, "named twice", "'is_truncated'"),
    "odd temperatures": ({**APART, "completion_temperatures": "hot"}, "wrong type", "completion_temperatures"),
    "advantages": ({**APART, "advantage": 0.5}, "unknown field", "'advantage'"),
    "nothing of the prompt": ({**SAID, "token_ids": [5, 6]}, "missing field", "'loss_mask'"),
    "no length": ({**SAID, "token_ids": [5, 6], "prompt_len": -1}, "missing field", "'loss_mask'"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_be_joined_is_refused_by_name_among_others(name: str) -> None:
    bad, reason, found = FAULTS[name]
    fine = {**APART, "rollout_id": "b"}
    with pytest.raises(RecordError) as caught:
        block_of([fine, {**bad, "rollout_id": "odd"}])
    assert (caught.value.reason, found in caught.value.found) == (reason, True)
    assert caught.value.hint
    (chunk,) = read_rollouts([fine, bad, {**fine, "rollout_id": "c"}], on_bad="skip")
    assert [each.index for each in chunk.bad] == [1]


def test_the_hint_says_what_keeps_the_prompt_from_being_trained_on() -> None:
    with pytest.raises(RecordError, match=r"give loss_mask, prompt_len, or prompt_ids and completion_ids"):
        block_of({**SAID, "token_ids": [5, 6]})


RECORDS = [
    {"prompt_ids": [5, 6 + number // 2], "completion_ids": [7, number], "reward": number % 2, "finish": "stop"}
    for number in range(4)
]


@pytest.mark.parametrize("kind", ["list", "jsonl", "parquet", "msgpack"])
def test_a_set_of_them_needs_no_ids_and_no_groups(kind: str, tmp_path: Path) -> None:
    source: Any = RECORDS
    if kind != "list":
        source = tmp_path / f"a.{kind}"
        lines = "".join(json.dumps(each) + "\n" for each in RECORDS)
        if kind == "jsonl":
            source.write_text(lines)
        elif kind == "parquet":
            pa.parquet.write_table(pa.Table.from_pylist(RECORDS), source)
        else:
            packing = pytest.importorskip("msgpack")
            packed = [{**each, "completion_ids": np.array(each["completion_ids"], "<u4").tobytes()} for each in RECORDS]
            source.write_bytes(b"".join(map(packing.packb, packed)))
    assert are_rollouts(source)
    with RolloutDataLoader(source, batch_size=4, shuffle=False, framework="numpy") as loader:
        batch = loader.get_batch()
    assert batch.metadata["rollout_id"] == ["row-0", "row-1", "row-2", "row-3"]
    assert len(set(batch.metadata["group_id"])) == 2
    assert batch.labels.tolist() == [[-100, 7, number, -100] for number in range(4)]


def test_ids_may_be_left_out_of_some_and_equal_records_are_not_one() -> None:
    same = {**APART, "rollout_id": None}
    (chunk,) = read_rollouts([same, {**APART, "rollout_id": "b"}, {**same, "id": None}])

    assert chunk.block["rollout_id"].tolist() == ["row-0", "b", "row-2"]


def test_an_end_that_is_not_said_is_a_stop_and_counted() -> None:
    records = [BARE, {**BARE, "reward": 0.0, "is_truncated": True}, {**BARE, "is_truncated": False}]
    records.append({**BARE, "finish": None, "extra": json.dumps({"env": "x"})})
    with RolloutDataLoader(records, batch_size=4, shuffle=False, framework="numpy") as loader:
        batch = loader.get_batch()
        assert batch.metadata["finish"] == ["stop", "length", "stop", "stop"]
        assert {key: count for key, count in loader.losses.items() if "changed" in key} == {
            "changed:rollouts:finish not said": 2
        }
        noted = {"noted": ["finish not said"]}
        assert batch.metadata["extra"] == [noted, None, None, {"env": "x", **noted}]


def test_a_feed_counts_ends_that_are_not_said() -> None:
    feed = MemoryFeed()
    with feed.source() as source:
        for number in range(2):
            source.put({**BARE, "rollout_id": number, "group_id": "g", "reward": number})
    live = {"group_size": 2, "groups_per_batch": 1}
    with RolloutDataLoader(feed, batch_size=2, live=live, framework="numpy") as loader:
        assert loader.get_batch().metadata["finish"] == ["stop", "stop"]
        assert (loader.losses["finish_not_said"], loader.losses["arrived"]) == (2, 2)


def test_what_else_trl_and_prime_rl_say_is_used_or_carried_along() -> None:
    old, ours = {"old_per_token_logps": [-1.0, -2.0, -3.0]}, {"sampling_per_token_logps": [-0.5, -0.5, -0.5]}
    assert block_of({**APART, **old})["sampling_logprobs"].tolist() == [0, 0, -1, -2, -3]
    both = block_of({**APART, **old, **ours})
    assert both["sampling_logprobs"].tolist() == [0, 0, -0.5, -0.5, -0.5]
    assert notes_of(both) == {"old_per_token_logps not used": 1}
    assert block_of({**APART, "completion_temperatures": [0.5] * 3})["temperature"].tolist() == [0.5]
    heat = block_of({**APART, "completion_temperatures": [0.5, 1.0, 1.0]})
    assert heat["extra"][0] == {"completion_temperatures": [0.5, 1.0, 1.0]}
    assert block_of({**APART, "prompt": "p", "completion": "c"})["extra"][0] == {"prompt": "p", "completion": "c"}


def test_a_text_of_a_completion_alone_is_told_its_name_here() -> None:
    with pytest.raises(RecordError) as caught:
        block_of({**SAID, "prompt": "p", "completion": "c", "loss_mask": [1]})
    assert "'token_ids'" in caught.value.found and "prompt and response" in str(caught.value.hint)


def test_in_a_feed_each_has_an_id_of_its_own() -> None:
    feed = MemoryFeed()
    with feed.source() as source:
        source.put(APART)
        with pytest.raises(RecordError, match="it has no 'rollout_id'"):
            source.put({name: value for name, value in APART.items() if name != "rollout_id"})
    (arrival,) = feed.receive(timeout_s=0)
    assert arrival.block["token_ids"].tolist() == [5, 6, 7, 8, 9]
