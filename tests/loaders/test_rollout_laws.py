"""The six laws for fixed sets of rollouts: in groups or not, balanced or as they come, on any ranks."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from laws import examples
from millstream import BudgetError, RolloutDataLoader, TrainingBatch
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
rows_of_a_step = st.sampled_from([12, 24])


def rows_of(batch: TrainingBatch) -> list[Row]:
    """Every row as it was delivered, without padding: what it is of, its tokens, and what is said of them."""
    facts, found = batch.metadata, []
    for row, rollout in enumerate(facts["rollout_id"]):
        length = len(np.trim_zeros(np.asarray(batch.input_ids[row]), "b"))
        columns = (batch.input_ids, batch.labels, *(facts[name] for name in ("advantages", "sampling_logprobs")))
        found.append((facts["epoch"], rollout, *(tuple(column[row][:length].tolist()) for column in columns)))
    return found


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

    def step(self) -> list[Row]:
        return [row for loader in self.loaders for row in rows_of(loader.next())]

    def epoch(self) -> list[Row]:
        first = self.loaders[0].epoch
        rows: list[Row] = []
        while self.loaders[0].epoch == first:
            rows += self.step()
        return rows

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@given(data=sets, way=ways, world_size=ranks, global_rows=rows_of_a_step)
@examples(12)
def test_complete_an_epoch_holds_every_rollout_exactly_once(
    data: list[dict[str, Any]], way: dict[str, Any], world_size: int, global_rows: int
) -> None:
    with Ranks(data, world_size, global_rows, **way) as run:
        for epoch in range(2):
            rows = run.epoch()
            assert Counter(row[1] for row in rows) == Counter(record["rollout_id"] for record in data)
            assert {row[0] for row in rows} == {epoch}


@given(data=sets, way=ways, works=st.tuples(ranks, ranks), global_rows=rows_of_a_step)
@examples(12)
def test_same_ranks_only_deal_the_same_rows_out_otherwise(
    data: list[dict[str, Any]], way: dict[str, Any], works: tuple[int, int], global_rows: int
) -> None:
    seen = []
    for world_size in works:
        with Ranks(data, world_size, global_rows, seed=4, **way) as run:
            steps = [run.step() for _ in range(4)]
            seen.append([sorted(step) for step in steps] if way["balance"] else steps)
    assert seen[0] == seen[1]


@given(data=sets, way=ways, cuts=st.lists(st.tuples(ranks, rows_of_a_step, st.integers(0, 3)), min_size=2, max_size=4))
@examples(15)
def test_resumable_the_rest_is_equal_on_any_ranks_and_batch_size(
    data: list[dict[str, Any]], way: dict[str, Any], cuts: list[tuple[int, int, int]]
) -> None:
    way = {**way, "balance": None}  # else only the sets of rows of a step are the same
    got, state = list[Row](), None
    for world_size, global_rows, steps in cuts:
        with Ranks(data, world_size, global_rows, seed=9, **way) as run:
            if state is not None:
                for loader in run.loaders:
                    loader.load_state_dict(json.loads(state))
            for _ in range(steps):
                got += run.step()
            states = {json.dumps(loader.state_dict(), sort_keys=True) for loader in run.loaders}
            (state,) = states
            assert len(state) < 4096
    assume(got)
    with Ranks(data, 1, 12, seed=9, **way) as whole:
        expected: list[Row] = []
        while len(expected) < len(got):
            expected += whole.step()
    assert got == expected[: len(got)]


@given(data=sets, way=ways, world_size=ranks, steps=st.integers(1, 5))
@examples(12)
def test_explainable_rows_name_their_rollouts_and_rollouts_their_steps(
    data: list[dict[str, Any]], way: dict[str, Any], world_size: int, steps: int
) -> None:
    with Ranks(data, world_size, 12, **way) as run:
        for step in range(steps):
            for loader in run.loaders:
                epoch = loader.epoch
                told = [data[origin.sample]["rollout_id"] for origin in loader.explain(step)]
                using = [loader.steps_of(origin.sample) for origin in loader.explain(step)]
                batch = loader.next()
                assert told == batch.metadata["rollout_id"]
                assert all(step in found for found in using)
                assert batch.metadata["epoch"] == epoch


@given(data=sets, world_size=ranks, way=ways)
@examples(8)
def test_honest_what_drop_last_leaves_out_is_counted(
    data: list[dict[str, Any]], world_size: int, way: dict[str, Any]
) -> None:
    way = {**way, "keep_groups": False}
    assume(len(data) >= 12)
    with Ranks(data, world_size, 12, drop_last=True, **way) as run:
        assert len(run.epoch()) + run.loaders[0].losses["dropped_rows"] == len(data)


def test_bounded_batches_that_the_user_holds_count() -> None:
    data = random_rollouts(groups=8, size=8, mean_length=400)
    with RolloutDataLoader(data, framework="numpy", memory_budget="1MB", batch_size=16) as loader:
        with pytest.raises(BudgetError, match="in use"):
            held = [loader.next() for _ in range(50)]
        del loader
    assert "held" not in locals()


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


def test_batches_of_a_set_are_made_ahead_and_are_the_same() -> None:
    def steps(loader: Any, *, micro: bool) -> list[Any]:
        found: list[Any] = []
        for number in range(9):
            size = 3 if number == 4 else None
            parts = loader.get_micro_batches(size) if micro else [loader.get_batch(size)]
            found += [(part.metadata["step"], part.metadata["rollout_id"], part.input_ids.tolist()) for part in parts]
            if number == 6:
                loader.prefetch(3)
        return found

    for micro in (False, True):
        found = []
        for prefetch in (1, 4):
            with RolloutDataLoader(
                random_rollouts(groups=5), framework="numpy", batch_size=4, micro_tokens=80, prefetch=prefetch
            ) as loader:
                loader.prefetch(prefetch)
                deadline = time.monotonic() + 30
                while loader.get_profiling_results()["ready_batches"] < prefetch:
                    assert time.monotonic() < deadline
                    time.sleep(0.001)
                assert loader.step == 0
                found.append(steps(loader, micro=micro))
        assert found[0] == found[1]


def test_a_step_that_a_transform_refused_is_made_anew() -> None:
    seen: list[Any] = []

    def spoil(batch: TrainingBatch) -> TrainingBatch:
        seen.append(batch.input_ids.copy())
        batch.input_ids[:] = -1
        if len(seen) == 2:
            raise ValueError("once")
        return batch

    with RolloutDataLoader(
        random_rollouts(groups=5), framework="numpy", batch_size=4, transforms=[spoil], prefetch=2
    ) as loader:
        loader.next()
        with pytest.raises(Exception, match="once"):
            loader.next()
        assert loader.step == 1
        loader.next()
    assert (seen[1] == seen[2]).all()
