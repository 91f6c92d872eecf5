"""When a group is complete, and what becomes of those that never are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from feeds.admission.samples import group, row, rows, saved
from millstream.errors import BudgetError, LoaderError, RecordError
from millstream.feeds.admission import Admission, AdmissionRules
from millstream.feeds.admission.rules import OnBad


def test_a_straggler_delays_a_group_by_no_more_than_the_timeout() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=3, group_timeout_s=60))
    admission.arrive(group("a", [0, 1]), now=10)
    assert admission.cut(0, 0, now=69) is None
    assert admission.waiting_for() == "0 of 1 groups complete; 'a' waits for 1 of 3 since 59.0 s"
    cut = admission.cut(0, 0, now=70)
    assert cut is not None and cut.block["rollout_id"].tolist() == ["a-0", "a-1"]
    admission.arrive(row("a-2", "a"), now=71)
    assert admission.counters["late"] == 1


def test_what_is_left_of_a_group_is_dropped_below_the_smallest_size_and_counted() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=3, group_timeout_s=60))
    admission.arrive(rows(row("a-0", "a"), group("b", [0, 1, 0])), now=0)
    cut = admission.cut(0, 0, now=60)
    assert cut is not None and cut.group_ids == ("b",)
    assert [(drop.reason, drop.group, drop.tokens) for drop in cut.drops] == [("incomplete", "a", 1)]


def test_nobody_waits_for_rollouts_that_failed() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=3))
    admission.arrive(rows(group("a", [0, 1]), row("a-2", "a", finish="error")), now=0)
    cut = admission.cut(0, 0, now=0)
    assert cut is not None and len(cut.block) == 2
    assert admission.counters["error"] == 1


def test_failed_rollouts_may_be_kept() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=2, on_failed="keep"))
    admission.arrive(rows(row("a-0", "a"), row("a-1", "a", finish="abort")), now=0)
    cut = admission.cut(0, 0, now=0)
    assert cut is not None and len(cut.block) == 2


def test_a_group_whose_size_nobody_says_is_an_error_and_not_a_silent_wait() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1))
    with pytest.raises(RecordError, match="no group size"):
        admission.arrive(group("a", [0, 1]), now=0)


def test_records_may_say_how_large_their_group_is() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1))
    admission.arrive(group("a", [0, 1], extra={"group_size": 3}), now=0)
    assert admission.cut(0, 0, now=0) is None
    admission.arrive(row("a-2", "a", extra={"group_size": 3}), now=0)
    assert admission.cut(0, 0, now=0) is not None


def test_a_feed_that_ended_gives_what_is_left_and_then_nothing() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=2, group_size=2, group_timeout_s=None))
    admission.arrive(rows(group("a", [0, 1]), group("b", [1])), now=0)
    assert admission.cut(0, 0, now=1e9) is None
    cut = admission.cut(0, 0, now=1e9, ended=True)
    assert cut is not None and cut.group_ids == ("a",)
    assert admission.cut(1, 0, now=1e9, ended=True) is None
    assert admission.held == 0 and admission.counters["incomplete"] == 1


def test_a_baseline_is_not_one_of_the_rollouts_that_make_a_group_but_may_be_waited_for() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=2, baselines=1))
    admission.arrive(group("a", [0, 1], kind=0), now=0)
    assert admission.cut(0, 0, now=0) is None
    admission.arrive(row("a-greedy", "a", kind=1), now=0)
    cut = admission.cut(0, 0, now=0)
    assert cut is not None and cut.block["kind"].tolist() == [0, 0, 1]


def test_a_rollout_in_several_parts_counts_once() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=2))
    admission.arrive(rows(*(row("a-0", "a", sample_idx=part) for part in (1, 0))), now=0)
    assert admission.cut(0, 0, now=0) is None
    admission.arrive(row("a-1", "a", sample_idx=2), now=0)
    cut = admission.cut(0, 0, now=0)
    assert cut is not None and cut.block["sample_idx"].tolist() == [0, 1, 2]


def test_a_group_waits_for_all_parts_of_its_rollouts_where_records_say_how_many_there_are() -> None:
    """Also across a state, and for the baseline; no part of a rollout that is there is late."""
    rules = AdmissionRules(groups_per_batch=1, group_size=2, baselines=1)
    admission = Admission(rules)
    two: dict[str, Any] = {"extra": {"parts": 2}, "kind": np.uint8(0)}
    admission.arrive(
        rows(row("a-0", "a", extra={}, kind=np.uint8(0), sample_idx=0), row("a-1", "a", sample_idx=1, **two)), now=0
    )
    admission.arrive(row("a-g", "a", extra={"parts": 2}, kind=np.uint8(1), sample_idx=3), now=0)
    admission = Admission.load(saved(admission.state()), rules)
    assert admission.cut(0, 0, now=0) is None
    assert admission.waiting_for() == "0 of 1 groups complete; 'a' waits for parts of 'a-1', 'a-g' since 0.0 s"
    admission.arrive(row("a-g", "a", extra={"parts": 2}, kind=np.uint8(1), sample_idx=4), now=0)
    assert admission.cut(0, 0, now=0) is None
    admission.arrive(row("a-1", "a", sample_idx=2, **two), now=0)
    cut = admission.cut(0, 0, now=0)
    assert cut is not None and cut.block["sample_idx"].tolist() == [0, 1, 2, 3, 4]
    assert "late" not in admission.counters


def test_a_group_takes_no_more_rollouts_than_it_has() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=2))
    admission.arrive(group("a", [0, 1, 2]), now=0)
    cut = admission.cut(0, 0, now=0)
    assert cut is not None and cut.block["rollout_id"].tolist() == ["a-0", "a-1"]
    assert admission.counters["late"] == 1


def test_what_is_remembered_of_those_who_have_gone_is_bounded() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=2, remember=5))
    for step in range(20):
        admission.arrive(rows(group(f"g{step}", [0, 1]), row(f"waits {step}", f"w{step}")), now=0)
        assert admission.cut(step, 0, now=0) is not None
    fields = admission.state().fields
    assert len(fields["seen"]["gone"]) == len(fields["closed"]) == 5
    admission.arrive(rows(row("waits 0", "w0"), row("g19-1", "g19", reward=1)), now=0)
    assert admission.counters["repeated"] == 2


def test_the_same_rollout_twice_is_the_same_as_once() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=2))
    for _ in range(2):
        admission.arrive(rows(row("a-0", "a"), row("a-0", "a")), now=0)
    assert admission.held == 1 and admission.counters["repeated"] == 3
    admission.arrive(row("a-1", "a"), now=0)
    assert admission.cut(0, 0, now=0) is not None
    admission.arrive(row("a-1", "a"), now=0)
    assert admission.counters["repeated"] == 4


CHOICES: tuple[OnBad, ...] = ("error", "skip")
CONFLICT = rows(row("a-0", "a", reward=1.0), row("a-0", "a", reward=0.5))
BAD = {
    "conflicting": (
        AdmissionRules(groups_per_batch=1, group_size="any"),
        CONFLICT,
        "conflicting rollout: rollout 'a-0' came before",
    ),
    "too_long": (
        AdmissionRules(groups_per_batch=1, group_size="any", max_tokens=2),
        row("a-0", "a", versions=(0, 0, 0)),
        "rollout too long: rollout 'a-0' has 3 tokens, and a batch has room for 2",
    ),
    "unplaced": (
        AdmissionRules(groups_per_batch=1, group_size="any", order="target_step"),
        row("a-0", "a"),
        "no target step: rollout 'a-0' does not say its target step",
    ),
    "other_prompt": (
        AdmissionRules(groups_per_batch=1, group_size="any"),
        rows(row("a-0", "a", prompt_id="p"), row("a-1", "a", prompt_id="q")),
        "another prompt: rollout 'a-1' is in a group that has another prompt_id",
    ),
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_rollout_is_an_error_that_names_it_and_changes_nothing(reason: str) -> None:
    rules, block, message = BAD[reason]
    admission = Admission(rules)
    with pytest.raises(RecordError, match=message):
        admission.arrive(block, now=0)
    assert admission.held == 0 and admission.counters == {}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_rollout_is_counted_when_asked_for(reason: str) -> None:
    rules, block, _ = BAD[reason]
    admission = Admission(AdmissionRules(**{**vars(rules), "on_bad": "skip"}))
    admission.arrive(block, now=0)
    assert admission.counters[reason] == 1


def test_who_finds_a_conflict_in_a_feed_hears_how_to_pass_it() -> None:
    with pytest.raises(RecordError, match='on_bad="skip"'):
        Admission(BAD["conflicting"][0]).arrive(CONFLICT, now=0)


def test_a_rollout_of_another_prompt_is_not_one_of_those_that_make_a_group() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=2, on_bad="skip"))
    admission.arrive(rows(*(row(f"a-{i}", "a", prompt_id=prompt) for i, prompt in enumerate("pqp"))), now=0)
    cut = admission.cut(0, 0, now=0)
    assert cut is not None and cut.block["rollout_id"].tolist() == ["a-0", "a-2"]


def test_columns_that_not_all_rollouts_have_are_an_error_or_counted() -> None:
    odd = row("a-1", "a")
    odd = type(odd)(odd.ends, odd.rows, {**odd.tokens, "loss_mask": odd["token_ids"]})
    strict, lenient = (
        Admission(AdmissionRules(groups_per_batch=1, group_size="any", on_bad=on_bad)) for on_bad in CHOICES
    )
    for admission in (strict, lenient):
        admission.arrive(row("a-0", "a"), now=0)
    with pytest.raises(RecordError, match="'a-1' and those before it differ in loss_mask"):
        strict.arrive(odd, now=0)
    lenient.arrive(odd, now=0)
    assert lenient.counters["other_columns"] == 1 and lenient.held == 1


def test_incomplete_groups_make_room_for_a_batch_and_complete_ones_never_do() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=2, group_size=2, capacity_groups=2))
    for name in "abc":
        admission.arrive(row(f"{name}-0", name), now=0)
    assert admission.counters["crowded"] == 1 and admission.held == 2 and not admission.full
    admission.arrive(rows(row("b-1", "b"), row("c-1", "c"), row("d-0", "d")), now=0)
    before = admission.full
    cut = admission.cut(0, 0, now=0)
    assert cut is not None and cut.group_ids == ("b", "c")
    assert (before, admission.full) == (True, False)


def test_a_batch_that_no_capacity_has_room_for_is_an_error_and_not_a_wait() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=2, group_size=1, capacity_tokens=2))
    with pytest.raises(BudgetError, match="no batch can be cut of it: 1 of 2 groups complete"):
        admission.arrive(row("a-0", "a", versions=(0, 0, 0)), now=0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"groups_per_batch": 1, "rollouts_per_batch": 2},
        {"groups_per_batch": 0},
        {"groups_per_batch": 1, "group_size": 2, "min_group_size": 3},
        {"groups_per_batch": 1, "max_staleness": -1},
        {"groups_per_batch": 1, "on_stale": "mask"},
        {"groups_per_batch": 4, "capacity_groups": 3},
    ],
)
def test_rules_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(LoaderError):
        AdmissionRules(**wrong)  # type: ignore[arg-type]


def test_who_waits_hears_that_rollouts_of_a_group_that_is_gone_come_again() -> None:
    """An engine that names groups by their prompt loses its second epoch: the waiting message says so."""
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=2))
    admission.arrive(group("a", [0, 1]), now=0)
    assert admission.cut(0, 0, now=0) is not None
    admission.arrive(row("a-again", "a"), now=1)
    assert admission.cut(1, 0, now=1) is None
    assert "dropped since the last batch: 1 late" in admission.waiting_for()
