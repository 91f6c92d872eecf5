"""Records become columns: what goes in comes out, and whatever is wrong with one is said by its name."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import examples
from millstream.errors import RecordError, SourceError
from millstream.rollouts import Rollout, RolloutBlock, block_of, content_hash, decode, encode
from millstream.rollouts.parse import no_rollouts, parse_records
from millstream.rollouts.record import rollout_at
from rollouts.samples import random_rollouts
from rollouts.strategies import assert_same_rollout, records


def good(**more: Any) -> dict[str, Any]:
    said = {"rollout_id": "a", "group_id": "g", "token_ids": [5, 6, 7], "loss_mask": [0, 1, 1], "reward": 1.0}
    return {**said, "finish": "stop", **more}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in good().items() if key != name}


@given(records())
@examples(40)
def test_what_a_record_says_is_what_its_rollout_says(made: list[dict[str, Any]]) -> None:
    block = block_of(made)
    assert len(block) == len(made)
    for row, record in enumerate(made):
        assert_same_rollout(rollout_at(block, row), record)


@given(records())
@examples(25)
def test_rollouts_that_came_out_go_in_again_as_the_same(made: list[dict[str, Any]]) -> None:
    block = block_of(made)
    again = block_of([rollout_at(block, row) for row in range(len(block))])
    assert content_hash(again).tolist() == content_hash(block).tolist()
    assert block_of(again) is again


SHAPES: dict[str, Callable[[Any], Any]] = {
    "list": list,
    "tuple": tuple,
    "int64": lambda values: np.array(values, np.int64),
    "uint64": lambda values: np.array(values, np.uint64),
    "big-endian": lambda values: np.array(values, ">i4"),
    "array": lambda values: array("q", values),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_numbers_may_come_in_whatever_holds_them(shape: str) -> None:
    record = good(token_ids=SHAPES[shape]([5, 6, 7]), loss_mask=SHAPES[shape]([0, 1, 1]))
    block = block_of([record, good(rollout_id="b")])
    assert block["token_ids"].tolist() == [5, 6, 7, 5, 6, 7] and block["token_ids"].dtype == np.uint32
    assert block["loss_mask"].tolist() == [False, True, True] * 2


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "float64"])
def test_log_probabilities_may_be_tensors_of_every_precision(kind: str) -> None:
    torch = pytest.importorskip("torch")
    said = torch.tensor([0.0, -0.5, -2.0], dtype=getattr(torch, kind))
    assert block_of(good(sampling_logprobs=said))["sampling_logprobs"].tolist() == [0, -0.5, -2]
    both = {"rollout_id": "a", "group_id": "g", "reward": 1.0, "finish": "stop"}
    apart = {**both, "prompt_ids": [5], "completion_ids": torch.tensor([6, 7]), "completion_logprobs": said[1:]}
    assert block_of(apart)["sampling_logprobs"].tolist() == [0, -0.5, -2]


FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    **{f"no {name}": (without(name), "missing field", repr(name)) for name in good()},
    "short mask": (good(loss_mask=[1]), "unequal lengths", "loss_mask has 1 values, and token_ids has 3"),
    "short values": (good(values=np.zeros(2)), "unequal lengths", "values has 2 values"),
    "empty": (good(token_ids=[], loss_mask=[]), "no tokens", "empty"),
    "negative id": (good(token_ids=[5, -6, 7]), "impossible token id", "token_ids[1] is -6"),
    "large id": (good(token_ids=np.array([5, 6, 1 << 32])), "impossible token id", "token_ids[2] is 4294967296"),
    "larger id": (good(token_ids=[5, 6, 1 << 70]), "wrong type", "token_ids"),
    "unsigned id": (good(token_ids=np.array([5, 6, 1 << 63], np.uint64)), "impossible token id", "token_ids[2]"),
    "fractional id": (good(token_ids=[5, 6.5, 7]), "wrong type", "token_ids holds float64"),
    "text as ids": (good(token_ids="567"), "wrong type", "token_ids is '567'"),
    "texts as ids": (good(token_ids=["5", "6", "7"]), "wrong type", "token_ids"),
    "ids of ids": (good(token_ids=[[5, 6, 7]]), "wrong type", "(1, 3)"),
    "one id": (good(token_ids=5), "wrong type", "token_ids is 5"),
    "mask of 2": (good(loss_mask=[0, 2, 1]), "impossible loss_mask", "loss_mask[1] is 2"),
    "half a mask": (good(loss_mask=[0, 0.5, 1]), "impossible loss_mask", "loss_mask[1] is 0.5"),
    "NaN log-probability": (good(sampling_logprobs=[0, np.nan, -1]), "impossible log-probability", "[1] is nan"),
    "no log-probability": (good(sampling_logprobs=[None, -1, None]), "impossible log-probability", "[2] is nan"),
    "infinite log-probability": (good(ref_logprobs=[0, -np.inf, -1]), "impossible log-probability", "[1] is -inf"),
    "probability": (good(sampling_logprobs=[0, 0.5, -1]), "impossible log-probability", "[1] is 0.5"),
    "text as log-probability": (good(sampling_logprobs=[0, "x", -1]), "wrong type", "sampling_logprobs"),
    "infinite reward": (good(reward=np.inf), "not finite", "reward is inf"),
    "text as reward": (good(reward="1.0"), "wrong type", "reward is '1.0'"),
    "infinite named reward": (good(rewards={"style": np.inf}), "not finite", "rewards.style"),
    "unnamed rewards": (good(rewards=[1.0]), "wrong type", "rewards"),
    "unknown finish": (good(finish="tired"), "unknown finish", "'tired'"),
    "unknown kind": (good(kind="gold"), "unknown kind", "'gold'"),
    "negative version": (good(policy_version=-1), "impossible policy version", "-1"),
    "huge version": (good(policy_version=1 << 80), "impossible policy version", ""),
    "fractional version": (good(policy_version=1.5), "impossible policy version", "1.5"),
    "versions backwards": (good(policy_version={"start": 3, "end": 2}), "impossible policy version", "3 to 2"),
    "version with a start": (good(policy_version={"start": 3}), "impossible policy version", "start"),
    "versions of some": (good(policy_version=[1, 2, 3, 4]), "unequal lengths", "policy_version has 4"),
    "infinite value": (good(values=[0, np.inf, 0]), "not finite", "values[1] is inf"),
    "value beyond float32": (good(values=[0, 1e300, 0]), "not finite", "values[1] is inf"),
    "NaN token reward": (good(token_rewards=[0, 0, np.nan]), "not finite", "token_rewards[2] is nan"),
    "done thrice": (good(done=[0, 0, 3]), "impossible done", "done[2] is 3"),
    "flat experts": (good(routed_experts=np.zeros((3, 2), np.uint8)), "impossible experts", "(3, 2)"),
    "many experts": (good(routed_experts=np.full((3, 1, 1), 1 << 16)), "impossible experts", "65536"),
    "few experts": (good(routed_experts=np.zeros((2, 1, 1), np.uint8)), "unequal lengths", "routed_experts has 2"),
    "short offsets": (good(kept_ids=[1], kept_offsets=[0, 1]), "unequal lengths", "one more are 4"),
    "falling offsets": (good(kept_ids=[1, 2], kept_offsets=[0, 2, 1, 2]), "impossible kept ids", "2 kept_ids"),
    "kept ids left over": (good(kept_ids=[1, 2], kept_offsets=[0, 0, 1, 1]), "impossible kept ids", "0 to 1"),
    "negative weight": (good(weight=-1.0), "impossible value", "weight is -1.0"),
    "no number as weight": (good(weight=np.nan), "not finite", "weight"),
    "long prompt": (good(prompt_len=4), "impossible value", "prompt_len is 4"),
    "top_p of 0": (good(top_p=0.0), "impossible value", "top_p"),
    "number as extra": (good(extra=3), "wrong type", "extra is 3"),
    "extra without JSON": (good(extra={"x": {1, 2}}), "wrong type", "extra"),
    "fraction as id": (good(group_id=1.5), "wrong type", "group_id is 1.5"),
    "unknown field": (good(rewrad=1), "unknown field", "'rewrad'"),
    "named twice": (good(input_ids=[5, 6, 7]), "named twice", "'input_ids'"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_with_one_record_among_many_names_it(name: str) -> None:
    record, reason, found = FAULTS[name]
    shared = {key: value for key, value in good().items() if key != "rollout_id"}
    alike = {key: FINE[key] for key in record if key in FINE}
    others = [{"rollout_id": f"fine-{number}", **shared, **alike} for number in range(3)]
    with pytest.raises(RecordError) as caught:
        block_of([*others[:2], record, others[2]], where="engine 3")
    assert caught.value.reason == reason and found in caught.value.found
    assert ("rollout 'a'" if "rollout_id" in record else "record 2") in caught.value.found
    assert caught.value.where == "engine 3" and caught.value.hint

    parsed = parse_records([*others[:2], record, others[2]], on_bad="quarantine")
    assert [(bad.index, bad.error.reason) for bad in parsed.bad] == [(2, reason)] and parsed.bad[0].record is record
    assert parsed.rows.tolist() == [0, 1, 3] and parsed.reasons == {reason: 1}


FINE: dict[str, Any] = {
    "values": [0, 0, 0],
    "token_rewards": [0, 0, 0],
    "sampling_logprobs": [0, -1, -1],
    "ref_logprobs": [0, -1, -1],
    "policy_version": 1,
    "done": [0, 0, 1],
    "routed_experts": np.zeros((3, 1, 1), np.uint8),
    "kept_ids": [1],
    "kept_offsets": [0, 1, 1, 1],
}


def test_the_nearest_name_is_told() -> None:
    with pytest.raises(RecordError, match="did you mean 'sampling_logprobs'"):
        block_of([good(sampling_logprob=[0, 0, 0])])


def test_names_of_other_systems_are_known() -> None:
    other = {"id": 1, "uid": 7, "input_ids": [5, 6], "response_mask": [0, 1], "old_log_probs": [0, -1]}
    block = block_of([{**other, "reward": 1, "finish_reason": "max_tokens"}])
    assert block.finish(0) == "length" and block["group_id"].tolist() == [7]
    assert block["sampling_logprobs"].tolist() == [0, -1]


def test_a_rollout_that_was_not_scored_has_no_reward() -> None:
    block = block_of([good(reward=None), good(rollout_id="b", reward=float("nan"))])
    assert np.isnan(block["reward"]).all()


def test_log_probabilities_of_what_was_not_sampled_are_0() -> None:
    block = block_of([good(sampling_logprobs=[None, -1, -2], ref_logprobs=[np.nan, -1, -2])])
    assert block["sampling_logprobs"].tolist() == block["ref_logprobs"].tolist() == [0, -1, -2]
    loud = block.with_columns(sampling_logprobs=np.array([3, -1, -2], np.float32))
    assert block_of(loud)["sampling_logprobs"].tolist() == [0, -1, -2]


def test_rounding_is_no_positive_log_probability() -> None:
    assert block_of([good(sampling_logprobs=[0, 3e-6, -1])])["sampling_logprobs"][1] > 0


@pytest.mark.parametrize(
    ("said", "versions"),
    [(4, [4, 4, 4]), (np.int64(4), [4, 4, 4]), ([1, 2, 3], [1, 2, 3]), ([1, 3], [1, 1, 3])],
)
def test_versions_are_said_for_all_tokens_or_each_or_start_and_end(said: Any, versions: list[int]) -> None:
    block = block_of([good(policy_version=said), good(rollout_id="b", policy_version={"start": 0, "end": 9})])
    assert block["policy_version"].tolist() == [*versions, 0, 0, 9]


def test_two_versions_of_two_tokens_are_ambiguous_unless_they_are_the_same() -> None:
    two = good(token_ids=[5, 6], loss_mask=[1, 1])
    with pytest.raises(RecordError, match="ambiguous"):
        block_of([{**two, "policy_version": [1, 2]}])
    assert block_of([{**two, "policy_version": [2, 2]}])["policy_version"].tolist() == [2, 2]
    assert block_of([{**two, "policy_version": np.array([1, 2])}])["policy_version"].tolist() == [1, 2]


@dataclass(slots=True)
class Own:
    rollout_id: str
    group_id: int
    token_ids: list[int]
    loss_mask: list[bool]
    reward: float
    finish: str


def test_dataclasses_of_others_are_records() -> None:
    block = block_of(Own("a", 1, [5, 6], [False, True], 1.0, "eos"))
    assert (block["rollout_id"].tolist(), block.finish(0)) == (["a"], "stop")


def test_a_column_that_one_record_lacks_names_both() -> None:
    with pytest.raises(RecordError, match="'b': it has no values, and rollout 'a' has"):
        block_of([good(values=[0, 0, 0]), good(rollout_id="b")])
    several = [good(rollout_id=f"{number}", **({"values": [0, 0, 0]} if number != 3 else {})) for number in range(6)]
    parsed = parse_records(several, on_bad="skip")
    assert parsed.reasons == {"missing column": 1} and parsed.bad[0].index == 3


def test_kept_ids_without_their_offsets_are_refused() -> None:
    with pytest.raises(RecordError, match="belong together"):
        block_of([good(kept_ids=[1])])


def test_the_columns_of_rollouts_before_are_kept_to() -> None:
    parsed = parse_records([good()], on_bad="skip", like=["token_ids", "loss_mask", "values"])
    assert parsed.reasons == {"missing column": 1} and not len(parsed.block)


def test_a_repeat_is_dropped_and_a_conflict_refused() -> None:
    parsed = parse_records([good(), good(rollout_id="b"), good()])
    assert (parsed.block["rollout_id"].tolist(), parsed.repeated, parsed.rows.tolist()) == (["a", "b"], 1, [0, 1])
    with pytest.raises(RecordError, match="conflicting id: rollout 'a'"):
        block_of([good(), good(reward=0.0)])
    parsed = parse_records([good(), good(reward=0.0)], on_bad="skip")
    assert parsed.reasons == {"conflicting id": 1} and parsed.block["reward"].tolist() == [1.0]


@given(records(), st.randoms())
@examples(15)
def test_a_hash_is_of_the_rollout_and_not_of_its_block(made: list[dict[str, Any]], chance: Any) -> None:
    block = block_of(made)
    order = list(range(len(made)))
    chance.shuffle(order)
    alone = [int(content_hash(block_of([made[row]]))[0]) for row in order]
    assert content_hash(block.select(order)).tolist() == alone
    assert len(set(alone)) == len(alone)


CHANGES: tuple[dict[str, Any], ...] = (
    {"reward": 0.5},
    {"weight": 2.0},
    {"extra": {"x": 1}},
    {"rewards": {"a": 1.0}},
    {"group_id": "h"},
    {"rollout_id": 7},
    {"token_ids": [5, 6, 8]},
    {"loss_mask": [1, 1, 1]},
    {"finish": "length"},
    {"values": [0, 0, 0]},
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_every_change_changes_the_hash(change: dict[str, Any]) -> None:
    assert content_hash(block_of([good()])) != content_hash(block_of([good(**change)]))


def test_absent_and_default_are_the_same_to_the_hash() -> None:
    both = block_of([good(), good(rollout_id="b", weight=2.0, rewards={"x": 1.0}, extra={"y": 1})])
    assert content_hash(both)[0] == content_hash(block_of([good()]))[0]


def test_equal_prompts_form_a_group_when_none_is_named() -> None:
    rows = [
        {**without("group_id"), "rollout_id": id, "token_ids": ids}
        for id, ids in {"a": [5, 6, 7], "b": [5, 8, 9], "c": [4, 6, 7]}.items()
    ]
    groups = block_of(rows, group_by_prompt=True)["group_id"].tolist()
    assert groups[0] == groups[1] != groups[2]
    assert block_of([{**rows[0], "prompt_len": 1}], group_by_prompt=True)["group_id"].tolist() == groups[:1]


def test_what_was_made_of_records_cannot_be_changed_and_is_not_looked_at_again() -> None:
    block = block_of(random_rollouts(groups=2, size=2))
    assert block_of(block) is block
    assert not any(column.flags.writeable for column in block.arrays)
    changed = block["sampling_logprobs"].copy()
    changed[block["loss_mask"].argmax()] = np.nan
    with pytest.raises(RecordError, match="impossible log-probability"):
        block_of(block.with_columns(sampling_logprobs=changed))


def test_nothing_gives_a_block_without_rollouts() -> None:
    assert len(block_of([])) == 0 == len(parse_records(no_rollouts()).block)
    assert len(RolloutBlock.concat([no_rollouts(), block_of([good(values=[0, 0, 0])])])) == 1


@pytest.mark.parametrize("wrong", ["a.jsonl", 7, None])
def test_what_is_no_list_of_records_is_refused(wrong: Any) -> None:
    with pytest.raises(SourceError):
        block_of(wrong)
    with pytest.raises(RecordError, match="not a record"):
        block_of([wrong])


def test_a_block_that_does_not_fit_together_is_refused() -> None:
    block = block_of(random_rollouts())
    for change in (
        {"token_ids": block["token_ids"][:-1]},
        {"token_ids": block["token_ids"].astype(np.int64)},
        {"finish": np.full(len(block), 9, np.uint8)},
        {"values": np.full(len(block["values"]), np.nan, np.float32)},
        {"rollout_id": np.array([1.5] * len(block), object)},
    ):
        with pytest.raises(RecordError):
            block_of(block.with_columns(**change))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)


@given(
    name=st.sampled_from(sorted(Rollout.__dataclass_fields__)),
    value=ANYTHING,
    kind=st.sampled_from(["as it is", "array"]),
)
@examples(300)
def test_whatever_a_field_holds_is_taken_or_refused_by_name(name: str, value: Any, kind: str) -> None:
    if kind == "array":
        try:
            value = np.array(value)
        except (ValueError, OverflowError):
            return
    parsed = parse_records([good(rollout_id="fine"), good(**{name: value})], on_bad="skip")
    assert len(parsed.block) + len(parsed.bad) == 2
    assert len(decode(encode(parsed.block))) == len(parsed.block)


def test_a_weight_that_is_no_number_is_told_to_be_left_out() -> None:
    with pytest.raises(RecordError, match="leave it out for 1"):
        block_of([good(weight=np.nan)])


@pytest.mark.parametrize("ids", [[5, 6, 1 << 63], [5, -6, 1 << 63], [5, 6, 1 << 64]])
def test_an_id_that_needs_too_many_bits_is_not_called_a_fraction(ids: list[int]) -> None:
    with pytest.raises(RecordError) as caught:
        block_of([good(token_ids=ids)])
    assert "float" not in str(caught.value)


def test_what_is_too_large_to_be_shown_is_said_so() -> None:
    with pytest.raises(RecordError, match="of type int that is too large to be shown"):
        block_of([good(reward=10**5000)])
