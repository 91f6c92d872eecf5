"""Steps of fixed sets of rollouts, in groups or not, balanced or not: their micro-batches, losses and rewards."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import examples
from millstream import RolloutDataLoader, TrainingBatch
from rollouts.samples import random_rollouts

Row = tuple[Any, ...]
sets = st.builds(
    lambda seed, groups, size: random_rollouts(seed, groups=groups, size=size, mean_length=5),
    st.integers(0, 99),
    st.integers(1, 6),
    st.integers(2, 4),
)
ways = st.fixed_dictionaries(
    {
        "shuffle": st.sampled_from(["global", "local", False]),
        "balance": st.sampled_from([None, "karmarkar_karp"]),
        "keep_groups": st.booleans(),
        "labels": st.sampled_from(["next", "same"]),
    }
)
ranks = st.sampled_from([1, 2, 3, 4])


class Ranks:
    """All ranks of a run, step by step."""

    def __init__(self, data: Any, world_size: int, global_rows: int, **given: Any) -> None:
        self._stack = ExitStack()
        self.loaders = [
            self._stack.enter_context(
                RolloutDataLoader(
                    data,
                    rank=rank,
                    world_size=world_size,
                    batch_size=global_rows // world_size,
                    framework="numpy",
                    **given,
                )
            )
            for rank in range(world_size)
        ]

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@given(data=sets, way=ways, world_size=ranks, cap=st.integers(40, 120), packing=st.booleans())
@examples(15)
def test_micro_batches_keep_their_cap_and_hold_the_rows_of_the_step_on_equally_many_on_every_rank(
    data: list[dict[str, Any]], way: dict[str, Any], world_size: int, cap: int, packing: bool
) -> None:
    given_ = {**way, "micro_tokens": cap, "packing": packing}
    with Ranks(data, world_size, 12, **given_) as run, Ranks(data, world_size, 12, **way) as plain:
        for _ in range(2):
            found = [loader.get_micro_batches() for loader in run.loaders]
            assert len({len(each) for each in found}) == 1
            assert all(np.asarray(micro.input_ids).size <= cap for each in found for micro in each)
            for each, loader in zip(found, plain.loaders, strict=True):
                names = [name for micro in each for name in micro.metadata["rollout_id"]]
                assert [names[place] for place in each.inverse] == loader.next().metadata["rollout_id"]


@given(data=sets, way=ways, world_size=ranks, cap=st.integers(40, 120), loss=st.sampled_from(["token", "sequence"]))
@examples(15)
def test_sums_of_scaled_losses_do_not_depend_on_how_a_step_is_cut(
    data: list[dict[str, Any]], way: dict[str, Any], world_size: int, cap: int, loss: str
) -> None:
    def total(batches: list[TrainingBatch]) -> float:
        found = 0.0
        for batch in batches:
            learned = np.asarray(batch.labels) >= 0
            losses = np.sin(np.asarray(batch.labels, np.float64)) * learned  # of the token alone
            weights = learned if batch.loss_weights is None else np.asarray(batch.loss_weights, np.float64)
            found += float((losses * weights).sum() / batch.metadata["loss_denominator"])
        return found

    with Ranks(data, 1, 12, loss=loss, **way) as one:
        expected = total([one.loaders[0].next()])
    with Ranks(data, world_size, 12, loss=loss, micro_tokens=cap, **way) as run:
        assert total([each for loader in run.loaders for each in loader.get_micro_batches()]) == pytest.approx(
            expected, abs=1e-6
        )


def test_rewards_lie_at_the_last_token_that_was_sampled_and_add_up_to_what_was_given() -> None:
    data = random_rollouts(groups=3)
    data[0]["reward"] = float("nan")
    given_ = {record["rollout_id"]: record["reward"] for record in data}
    with RolloutDataLoader(data, framework="numpy") as loader:
        for batch in loader:
            for row, name in enumerate(batch.metadata["rollout_id"]):
                rewards = batch.metadata["rewards"][row]
                assert float(rewards.sum()) == (0 if np.isnan(given_[name]) else given_[name])
                learned = np.flatnonzero(np.asarray(batch.labels[row]) >= 0)
                assert set(np.flatnonzero(rewards)) <= {learned[-1]}
