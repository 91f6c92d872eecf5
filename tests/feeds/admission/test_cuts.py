"""What a batch is cut of: fresh groups with a spread, in the order that was asked for, the rest kept for the next."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest

from feeds.admission.samples import group, row, rows
from millstream.errors import LoaderError, RecordError
from millstream.feeds.admission import Admission, AdmissionRules, AdmittedBatch, ReplayRules, mean_lengths
from millstream.feeds.admission.rules import OnBad


def ids(cut: AdmittedBatch | None) -> tuple[str | int, ...]:
    assert cut is not None
    return cut.group_ids


@pytest.mark.parametrize(("max_staleness", "kept"), [(1, True), (0, False)])
def test_step_5_trains_version_4_and_what_version_3_made_is_one_version_stale(max_staleness: int, kept: bool) -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=2, max_staleness=max_staleness))
    admission.arrive(group("a", [0, 1], versions=(3,)), now=0)
    assert (admission.cut(5, 4, now=0) is not None) == kept
    assert admission.counters.get("stale", 0) == (0 if kept else 2)


def test_what_is_known_to_be_stale_is_not_held_at_all() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=1, max_staleness=1))
    assert admission.cut(0, 4, now=0) is None
    admission.arrive(row("a-0", "a", versions=(2,)), now=0)
    assert admission.held == 0 and admission.counters["stale"] == 1


def test_groups_age_while_they_wait_and_are_looked_at_again_at_every_cut() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=1, max_staleness=1))
    for name in "abc":
        admission.arrive(row(name, name, versions=(3,)), now=0)
    assert ids(admission.cut(0, 3, now=0)) == ("a",)
    assert ids(admission.cut(1, 4, now=0)) == ("b",)
    assert admission.cut(2, 5, now=0) is None
    assert admission.counters["stale"] == 1


def test_only_trained_tokens_grow_stale() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=1, max_staleness=0))
    admission.arrive(row("a", "a", versions=(0, 7), mask=(0, 1)), now=0)
    assert admission.cut(0, 7, now=0) is not None


def test_stale_tokens_of_partial_rollouts_lose_their_loss_and_what_is_stale_as_a_whole_is_dropped() -> None:
    rules = AdmissionRules(groups_per_batch=1, group_size=3, max_staleness=1, on_stale="mask")
    admission = Admission(rules)
    made = [(3, 4, 5), (3, 3, 3), (5, 5, 5)]
    admission.arrive(rows(*(row(f"a-{i}", "a", versions=versions) for i, versions in enumerate(made))), now=0)
    cut = admission.cut(0, 5, now=0)
    assert cut is not None and cut.block["rollout_id"].tolist() == ["a-0", "a-2"]
    assert cut.block["loss_mask"].tolist() == [False, True, True, True, True, True]
    assert cut.stale_masked == 1
    assert admission.counters["stale"] == 1 and admission.counters["stale_masked_tokens"] == 1


def test_versions_from_the_future_are_an_error_or_counted() -> None:
    choices: tuple[OnBad, ...] = ("error", "skip")
    for on_bad in choices:
        admission = Admission(AdmissionRules(groups_per_batch=1, group_size=1, on_bad=on_bad))
        admission.arrive(rows(row("a", "a", versions=(4,)), row("b", "b", versions=(9,))), now=0)
        if on_bad == "skip":
            assert ids(admission.cut(0, 4, now=0)) == ("a",)
            assert admission.counters["future"] == 1
            continue
        for _ in range(2):
            with pytest.raises(RecordError, match="'b' has tokens of version 9, and the trainer is at 4"):
                admission.cut(0, 4, now=0)
        assert ids(admission.cut(0, 9, now=0)) == ("a",)


def test_a_version_that_goes_back_is_an_error() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size="any"))
    admission.cut(0, 4, now=0)
    with pytest.raises(LoaderError, match="went back from 4 to 3"):
        admission.cut(0, 3, now=0)


def test_a_bound_on_staleness_needs_versions() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, max_staleness=1))
    block = row("a", "a")
    plain = type(block)(block.ends, block.rows, {name: block[name] for name in ("token_ids", "loss_mask")})
    with pytest.raises(RecordError, match="no policy version: rollout 'a'"):
        admission.arrive(plain, now=0)


def test_groups_without_a_spread_are_dropped_by_reason_and_others_are_waited_for() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=2, dynamic_sampling=True))
    made: dict[str, list[float]] = {
        "zeros": [0, 0],
        "ones": [1, 1],
        "halves": [0.5, 0.5],
        "unscored": [math.nan, math.nan],
    }
    for name, rewards in made.items():
        admission.arrive(group(name, rewards), now=0)
    assert admission.cut(0, 0, now=0) is None
    admission.arrive(group("good", [0, 1]), now=0)
    cut = admission.cut(0, 0, now=0)
    assert cut is not None and ids(cut) == ("good",)
    assert [drop.reason for drop in cut.drops] == ["all_0", "all_1", "equal", "unscored"]


@pytest.mark.parametrize("size", [3, 5, 6, 7, 8, 16])
def test_equal_rewards_have_no_spread_whatever_their_mean_is_rounded_to(size: int) -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=size, dynamic_sampling=True))
    for percent in range(1, 100):
        admission.arrive(group(f"g{percent}", [float(np.float32(percent / 100))] * size), now=0)
    assert admission.counters["equal"] == 99 * size


def test_the_spread_may_be_that_of_the_task_and_not_of_the_shaped_reward() -> None:
    rules = AdmissionRules(groups_per_batch=1, group_size=2, dynamic_sampling=True, spread_of="rewards.solved")
    admission = Admission(rules)
    admission.arrive(group("a", [0.3, 0.7], **{"rewards.solved": 1.0}), now=0)
    assert admission.counters["all_1"] == 2


def test_what_a_batch_has_no_room_for_is_kept_for_the_next() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=2, group_size=2, dynamic_sampling=True))
    for name in "abcde":
        admission.arrive(group(name, [0, 1]), now=0)
    assert [ids(admission.cut(step, 0, now=0)) for step in range(2)] == [("a", "b"), ("c", "d")]
    assert admission.cut(2, 0, now=0) is None and admission.held == 2


def test_dynamic_sampling_gives_up_after_so_many_batches_with_an_error_or_with_what_there_is() -> None:
    choices: tuple[Literal["error", "train"], ...] = ("error", "train")
    for then in choices:
        rules = AdmissionRules(
            groups_per_batch=2, group_size=2, dynamic_sampling=True, max_gen_batches=2, on_exhausted=then
        )  # fmt: skip
        admission = Admission(rules)
        for name, rewards in {"a": [0, 1], "b": [0, 0], "c": [1, 1]}.items():
            admission.arrive(group(name, rewards), now=0)
        assert admission.cut(0, 0, now=0) is None
        admission.arrive(group("d", [0, 0]), now=0)
        if then == "train":
            assert ids(admission.cut(0, 0, now=0)) == ("a",)
            continue
        with pytest.raises(LoaderError, match="groups for 2 batches were tried, and 1 of them"):
            admission.cut(0, 0, now=0)


def test_dynamic_sampling_gives_up_on_nothing_but_equal_rewards_too() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=2, dynamic_sampling=True, max_gen_batches=2))
    admission.arrive(rows(group("a", [0, 0]), group("b", [1, 1])), now=0)
    with pytest.raises(LoaderError, match="groups for 2 batches were tried, and 0 of them"):
        admission.cut(0, 0, now=0)


def test_lengths_of_what_was_kept_and_dropped_are_told() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=1, max_staleness=0))
    admission.arrive(rows(row("a", "a", versions=(1,)), row("b", "b", versions=(0, 0, 0))), now=0)
    admission.cut(0, 1, now=0)
    assert mean_lengths(admission.counters) == {"arrived": 2.0, "cut": 1.0, "stale": 3.0}


def test_whole_groups_of_so_many_rollouts_make_a_batch_as_long_as_they_fit() -> None:
    admission = Admission(AdmissionRules(rollouts_per_batch=5, group_size=3, group_timeout_s=1))
    admission.arrive(rows(group("a", [0, 1, 0]), group("b", [0, 1]), group("c", [0, 1, 0])), now=0)
    assert ids(admission.cut(0, 0, now=0)) == ("a",)
    assert ids(admission.cut(1, 0, now=1)) == ("c", "b")


def test_a_step_waits_for_the_groups_that_were_made_for_it() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=1, order="target_step"))
    admission.arrive(row("a", "a", extra={"target_step": 1}), now=0)
    assert admission.cut(0, 0, now=0) is None
    admission.arrive(row("b", "b", extra={"target_step": 0}), now=0)
    assert [ids(admission.cut(step, 0, now=0)) for step in range(2)] == [("b",), ("a",)]


def test_groups_by_index_wait_for_those_before_them_but_not_for_ever() -> None:
    rules = AdmissionRules(groups_per_batch=1, group_size=1, order="group_index", group_timeout_s=60)
    admission = Admission(rules)
    admission.arrive(rows(row("r2", 2), row("r1", 1)), now=0)
    assert admission.cut(0, 0, now=59) is None
    admission.arrive(row("r0", 0), now=59)
    assert [ids(admission.cut(step, 0, now=59)) for step in range(3)] == [(0,), (1,), (2,)]
    admission.arrive(row("r5", 5), now=60)
    assert admission.cut(3, 0, now=119) is None
    assert ids(admission.cut(3, 0, now=120)) == (5,)
    admission.arrive(row("r3", 3), now=121)
    assert ids(admission.cut(4, 0, now=121)) == (3,)


def test_an_index_whose_group_was_dropped_is_not_waited_for() -> None:
    rules = AdmissionRules(groups_per_batch=1, group_size=2, order="group_index", dynamic_sampling=True)
    admission = Admission(rules)
    for index, rewards in {1: [0, 0], 0: [0, 0], 2: [0, 1]}.items():
        admission.arrive(group(index, [float(reward) for reward in rewards]), now=0)
    assert ids(admission.cut(0, 0, now=0)) == (2,)


def test_those_who_make_rollouts_are_held_back_by_what_waits_here() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=2, group_size=2, max_staleness=1))
    assert admission.wanted() == 4
    admission.arrive(rows(group("a", [0, 1]), row("b-0", "b")), now=0)
    assert admission.wanted() == 2
    assert Admission(AdmissionRules(groups_per_batch=2)).wanted() is None


REPLAY = AdmissionRules(groups_per_batch=2, group_size=1, max_staleness=3, replay=ReplayRules(max_uses=2))


def test_groups_come_again_until_they_are_used_up_and_leave_room_for_new_ones() -> None:
    admission = Admission(REPLAY)
    for name in "abcd":
        admission.arrive(row(name, name), now=0)
    cuts = [admission.cut(step, 0, now=0) for step in range(3)]
    assert ids(cuts[0]) == ("a", "b")
    assert [cut.replayed for cut in cuts if cut] == [(False, False), (False, True), (False, True)]
    again = [ids(cut)[1] for cut in cuts[1:]]
    assert len(set(again)) == 2
    assert admission.counters["replay_used_up"] == 2


def test_replay_is_bounded_and_gives_up_the_stalest_then_the_oldest() -> None:
    replay = ReplayRules(capacity_groups=2, max_uses=9)
    admission = Admission(AdmissionRules(groups_per_batch=4, group_size=1, max_staleness=9, replay=replay))
    made = {"a": 2, "b": 1, "c": 2, "d": 2}
    admission.arrive(rows(*(row(name, name, versions=(version,)) for name, version in made.items())), now=0)
    admission.cut(0, 2, now=0)
    assert [kept["id"] for kept in admission.state().fields["replay"]] == ["c", "d"]
    assert admission.counters["replay_evicted"] == 2


def test_what_has_grown_stale_does_not_come_again() -> None:
    admission = Admission(REPLAY)
    for name in "ab":
        admission.arrive(row(name, name), now=0)
    assert ids(admission.cut(0, 0, now=0)) == ("a", "b")
    admission.arrive(rows(row("c", "c", versions=(4,)), row("d", "d", versions=(4,))), now=0)
    assert ids(admission.cut(1, 4, now=0)) == ("c", "d")
    assert admission.counters["replay_stale"] == 2


def test_a_group_comes_no_more_than_once_in_a_batch() -> None:
    """Twice it would be compared with itself: advantages know groups by their ids."""
    replay = ReplayRules(share=0.75, max_uses=3)
    admission = Admission(AdmissionRules(groups_per_batch=4, group_size=1, replay=replay))
    for name in "abcdefghijkl":
        admission.arrive(row(name, name), now=0)
    cuts = [admission.cut(step, 0, now=0) for step in range(4)]
    uses = [group for cut in cuts if cut for group in cut.group_ids]
    assert max(map(uses.count, uses)) == 3
    assert all(len(set(cut.group_ids)) == len(cut.group_ids) for cut in cuts if cut)
    with pytest.raises(TypeError):
        ReplayRules(replacement=True)  # type: ignore[call-arg]
