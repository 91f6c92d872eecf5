"""compute_advantages: where rewards come from, who is compared with whom, what is said when something is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from advantages.blocks import GROUPED, block_of, random_block
from millstream.advantages import (
    Advantages,
    AdvantageSettings,
    Estimate,
    Overlong,
    compute_advantages,
    register_estimator,
)
from millstream.errors import LoaderError, RecordError
from millstream.feeds.admission import AdmissionRules
from millstream.feeds.admission.refusals import why_flat
from millstream.rollouts import EQUAL_WITHIN, FINISHES, KINDS, RolloutBlock, read_rollouts
from millstream.rollouts.groups import Groups

LENGTH = FINISHES.index("length")
BASELINE = KINDS.index("baseline")
NAN = float("nan")


def computed(block: RolloutBlock, estimator: str = "grpo", **settings: Any) -> Advantages:
    return compute_advantages(block, AdvantageSettings(estimator, **settings))


def per_rollout(block: RolloutBlock, estimator: str = "dr_grpo", **settings: Any) -> list[float]:
    found = computed(block, estimator, **settings).per_rollout
    assert found is not None
    rounded: list[float] = np.round(found, 6).tolist()
    return rounded


def per_token(block: RolloutBlock, estimator: str, **settings: Any) -> list[float]:
    return [round(each, 4) for each in computed(block, estimator, **settings).token_advantages().tolist()]


def test_every_estimator_gives_finite_numbers_and_zeros_where_nothing_is_trained() -> None:
    block = random_block(3)
    for name in [*GROUPED, "reinforce++", "gae"]:
        found = computed(block, name).token_advantages()
        assert found.dtype == np.float32
        assert np.isfinite(found).all()
        assert not found[~block["loss_mask"]].any()


def test_what_was_not_scored_is_in_no_mean_and_gets_nothing() -> None:
    block = block_of([1, NAN, 0, NAN], [1, 2, 1, 1])
    assert per_rollout(block) == [0.5, 0, -0.5, 0]
    assert per_rollout(block, "rloo") == [1, 0, -1, 0]
    assert per_rollout(block, "reinforce++-baseline") == [0.707107, 0, -0.707107, 0]
    assert per_token(block, "reinforce++") == [0.7071, 0, 0, -0.7071, 0]
    assert computed(block).facts["unscored"] == 2


@pytest.mark.parametrize("estimator", GROUPED)
def test_a_rollout_in_several_parts_counts_once_and_all_its_parts_get_its_advantage(estimator: str) -> None:
    whole = block_of([1, 0, 0.5], [4, 2, 3])
    parted = block_of([1, 0, 1, 0.5, NAN], [3, 2, 1, 2, 1], rollout_id=np.array(["a", "b", "a", "c", "c"], object))
    first, second, third = per_rollout(whole, estimator)
    assert per_rollout(parted, estimator) == [first, second, first, third, third]
    assert computed(parted, estimator).facts == computed(whole, estimator).facts


def test_two_parts_of_one_rollout_are_a_group_of_one() -> None:
    with pytest.raises(RecordError, match="group of one"):
        computed(block_of([1, 1], [1, 1], rollout_id=np.array(["a", "a"], object)))


def test_rewards_on_tokens_of_all_parts_add_up_to_that_of_the_rollout() -> None:
    tokens = {"token_rewards": np.array([0.25, 0, 0.75, 0.5]), "rollout_id": np.array(["a", "a", "b"], object)}
    found = computed(block_of([NAN] * 3, [1, 2, 1], **tokens), "dr_grpo")
    assert found.rewards.tolist() == [1.0, 1.0, 0.5]
    assert found.per_rollout is not None and found.per_rollout.tolist() == [0.25, 0.25, -0.25]


@pytest.mark.parametrize("apart", [EQUAL_WITHIN / 2, EQUAL_WITHIN * 2])
def test_lint_admission_and_advantages_agree_on_which_rewards_are_equal(apart: float) -> None:
    record = {"group_id": "g", "token_ids": [5, 6], "loss_mask": [0, 1], "finish": "stop"}
    found = [{**record, "rollout_id": name, "reward": reward} for name, reward in (("a", 0.0), ("b", apart))]
    groups = Groups()
    for chunk in read_rollouts(found):
        groups.take(chunk)
        flat = [groups["g"].is_constant, bool(computed(chunk.block).zero_variance[0])]
        flat.append(why_flat(chunk.block, tol=AdmissionRules(groups_per_batch=1).tol) is not None)
    assert flat == [apart < EQUAL_WITHIN] * 3


def test_a_critic_learns_nothing_from_what_was_not_scored() -> None:
    block = block_of([1, NAN], [1, 1], values=np.array([0.25, 0.5], np.float32))
    found = computed(block, "gae", whitening="off")
    assert found.token_advantages().tolist() == [0.75, 0]
    assert found.returns is not None
    assert found.returns.tolist() == [1, 0.5]


def test_a_group_of_which_one_was_scored_teaches_nothing() -> None:
    assert per_rollout(block_of([1, NAN, NAN], [1, 1, 1]), "rloo") == [0, 0, 0]


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo", "leave_one_out", "opo", "passk"])
def test_a_group_of_one_is_an_error_that_names_it(estimator: str) -> None:
    block = block_of([0.7, 1, 0], [1, 1, 1], ["alone", "a", "a"])
    with pytest.raises(RecordError, match=r"group 'alone' has one rollout, 'r0'(.|\n)*reinforce\+\+, gae or remax"):
        computed(block, estimator)
    assert per_rollout(block, estimator, allow_singleton=True)[0] == 0


def test_whoever_needs_no_group_takes_groups_of_one() -> None:
    block = block_of([1, 0], [1, 1], ["a", "b"], values=np.zeros(2, np.float32))
    assert per_token(block, "gae") == [0.7071, -0.7071]
    assert per_token(block, "reinforce++") == [0.7071, -0.7071]


def test_groups_are_seen_through_what_length_and_divergence_took_off() -> None:
    """Equal task rewards stay equal, whatever was taken off; and others are compared with it."""
    columns = {"sampling_logprobs": np.array([-1, -2, -3, -4.0]), "ref_logprobs": np.zeros(4)}
    block = block_of([1, 1, 1, 0], [1, 1, 1, 1], ["a", "a", "b", "b"], **columns)
    found = computed(block, "dr_grpo", kl_beta=0.1)
    assert found.per_rollout is not None
    assert found.per_rollout.round(6).tolist() == [0, 0, 0.45, -0.45]
    assert found.zero_variance.tolist() == [True, False]
    assert found.rewards.round(6).tolist() == [1.1, 1.2, 1.3, 0.4]
    assert found.facts["zero_variance_share"] == 0.5
    assert found.facts["kl"] == pytest.approx(-2.5)


def test_baselines_are_compared_with_and_train_nothing() -> None:
    block = block_of([1, 0, 0.25, 5], [2, 1, 2, 1], ["a", "a", "a", "b"], kind=np.array([0, 0, BASELINE, BASELINE]))
    found = computed(block, "remax")
    assert found.token_advantages().tolist() == [0.75, 0.75, -0.25, 0, 0, 0]
    assert found.loss_mask is not None
    assert found.loss_mask.tolist() == [True, True, True, False, False, False]
    assert per_rollout(block) == [0.5, -0.5, 0, 0]
    assert found.facts["baselines"] == 2


def test_remax_says_which_group_has_no_baseline() -> None:
    block = block_of([1, 0, 0.25], [1, 1, 1], ["a", "b", "a"], kind=np.array([0, 0, BASELINE]))
    with pytest.raises(RecordError, match="group 'b' has no scored rollout of kind 'baseline'"):
        computed(block, "remax")


def test_filtered_rollouts_stay_in_the_mean_of_their_group() -> None:
    block = block_of([1, 0], [2, 1], finish=np.array([LENGTH, 0], np.uint8))
    found = computed(block, "dr_grpo", filter_truncated=True)
    assert found.token_advantages().tolist() == [0, 0, -0.5]
    assert found.loss_mask is not None
    assert found.loss_mask.tolist() == [False, False, True]
    assert found.facts["tokens_not_trained"] == 2
    assert computed(block, "dr_grpo").loss_mask is None


def test_long_rollouts_lose_reward_by_the_tokens_of_the_policy() -> None:
    block = block_of([1, 0], [4, 4], mask=[0, 1, 1, 1, 0, 0, 0, 1])
    assert computed(block, overlong=Overlong(3, 2)).rewards.tolist() == [0, 0]


def test_a_cut_rollout_goes_on_with_its_value_and_a_finished_one_does_not() -> None:
    block = block_of(
        [0, 0, 0],
        [1, 1, 1],
        values=np.zeros(3, np.float32),
        bootstrap_value=np.array([1, 1, NAN]),
        finish=np.array([LENGTH, 0, LENGTH], np.uint8),
    )
    found = computed(block, "gae", gamma=0.5, whitening="off")
    assert found.token_advantages().tolist() == [0.5, 0, 0]
    assert found.facts["truncated_without_value"] == 1


def test_rewards_come_from_tokens_from_the_scalar_or_from_both() -> None:
    tokens = np.array([9, 1, 1, 0], np.float32)
    block = block_of([5, 1], [3, 1], mask=[0, 1, 1, 1], token_rewards=tokens)
    assert computed(block).rewards.tolist() == [2, 0]
    assert computed(block).facts["rewards_ignored"] == 1
    assert computed(block, reward_of="scalar").rewards.tolist() == [5, 1]
    assert computed(block, reward_of="both").rewards.tolist() == [7, 1]
    with pytest.raises(LoaderError, match="have no token_rewards"):
        computed(block_of([1, 0], [1, 1]), reward_of="tokens")


def test_a_missing_token_reward_makes_a_rollout_unscored() -> None:
    block = block_of([1, 1, 1], [1, 1, 1], token_rewards=np.array([NAN, 1, 0], np.float32))
    assert per_rollout(block) == [0, 0.5, -0.5]


def test_named_rewards_are_added_up_by_weight() -> None:
    columns = {"rewards.right": np.array([1, 0, NAN, NAN]), "rewards.short": np.array([1, NAN, 1, NAN])}
    block = block_of([9, 9, 9, 9], [1, 1, 1, 1], **columns)
    found = computed(block, reward_weights={"right": 1, "short": 0.5})
    np.testing.assert_array_equal(found.rewards, [1.5, 0, 0.5, NAN])
    with pytest.raises(LoaderError, match=r"no reward 'rihgt'(.|\n)*right, short"):
        computed(block, reward_weights={"rihgt": 1})


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"estimator": "gae"}, r"gae needs `values`"),
        ({"kl_beta": 0.1}, r"needs sampling_logprobs and ref_logprobs"),
        ({"estimator": "reinforce_plus_plus"}, r"did you mean 'reinforce\+\+'"),
        ({"estimator": "nothing like it"}, r"there are dr_grpo, gae, grpo"),
        ({"estimator": "grpo", "lam": 0.5}, r"'grpo' does not read lam"),
        ({"whitening": "some"}, r"whitening is 'some'"),
        ({"scale": "std"}, r"scale is 'std'"),
        ({"epsilon": -1.0}, r"epsilon is -1"),
    ],
)
def test_what_cannot_work_is_refused_with_a_hint(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(LoaderError, match=says) as error:
        compute_advantages(block_of([1, 0], [1, 1]), AdvantageSettings(**settings))
    assert error.value.hint


def test_infinite_rewards_and_values_are_refused() -> None:
    with pytest.raises(RecordError, match="rollout 'r1' has a reward of inf"):
        computed(block_of([1, np.inf], [1, 1]))
    with pytest.raises(RecordError, match="rollout 1 of these"):
        computed(block_of([1, 0], [1, 1], values=np.array([0, NAN], np.float32)), "gae")
    columns = {"sampling_logprobs": np.array([0, -np.inf]), "ref_logprobs": np.array([0, -np.inf])}
    with pytest.raises(RecordError, match="rollout 'r1' has log-probabilities"):
        computed(block_of([1, 0], [1, 1], **columns), kl_beta=0.1)


def test_an_estimator_of_ones_own_is_used_by_its_name() -> None:
    register_estimator("half", lambda scored, settings: Estimate(scored.rewards / 2), groups=False)
    assert per_rollout(block_of([1, NAN], [1, 1]), "half") == [0.5, 0]
    register_estimator("idle", lambda scored, settings: Estimate())
    with pytest.raises(LoaderError, match="'idle' gave nothing"):
        computed(block_of([1], [1]), "idle")


def test_no_rollouts_have_no_advantages() -> None:
    for name in ("grpo", "passk", "leave_one_out", "reinforce++-baseline", "reinforce++"):
        assert len(computed(block_of([], []), name).token_advantages()) == 0


def test_facts_say_what_rewards_look_like() -> None:
    facts = computed(block_of([1, 0, 0.5, 0.5], [1, 1, 1, 1], ["a", "a", "b", "b"])).facts
    assert (facts["rollouts"], facts["groups"], facts["zero_variance_groups"]) == (4, 2, 1)
    assert facts["mean_reward"] == 0.5
