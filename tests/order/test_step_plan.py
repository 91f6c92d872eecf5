"""Plans of a step: every row once, no micro-batch over its cap, as many on every rank, about equal work for each."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import examples
from loaders.samples import follows_its_hint
from millstream import OrderError
from millstream.order import CostModel, MicroBatchRule, StepPlan

Lengths = list[int]
lengths = st.lists(st.integers(1, 40), max_size=40)


@st.composite
def rules(draw: st.DrawFn) -> MicroBatchRule:
    unit = draw(st.sampled_from([1, 4, 8]))
    return MicroBatchRule(draw(st.integers(40, 120)), packed=draw(st.booleans()), unit=unit)


@given(lengths, rules(), st.integers(1, 5), st.integers(1, 3), st.booleans(), st.booleans())
@examples(200)
def test_plans_keep_all_their_promises(
    lengths: Lengths, rule: MicroBatchRule, ranks: int, multiple: int, kept: bool, equal_sizes: bool
) -> None:
    groups = [f"g{row // 3}" for row in range(len(lengths))] if kept else None
    asked: dict[str, Any] = {
        "ranks": ranks, "rule": rule, "groups": groups, "equal_sizes": equal_sizes, "multiple": multiple,
    }  # fmt: skip
    plan = StepPlan.of(lengths, **asked)

    assert sorted(plan.delivered.tolist()) == list(range(len(lengths)))
    assert plan.delivered[plan.inverse].tolist() == list(range(len(lengths)))
    assert len(plan.micro_batches) == ranks
    counts = {len(rank) for rank in plan.micro_batches}
    assert len(counts) == 1
    assert counts.pop() % multiple == 0
    for rows in itertools.chain(*plan.micro_batches):
        assert rule.allocated([lengths[row] for row in rows]) <= rule.cap
    sizes = [sum(map(len, rank)) for rank in plan.micro_batches]
    if kept:
        ranks_of = [{int(row) // 3 for rows in rank for row in rows} for rank in plan.micro_batches]
        assert sum(map(len, ranks_of)) == len(set.union(*ranks_of))
    elif equal_sizes:
        assert max(sizes) - min(sizes) <= 1
    again = StepPlan.of(lengths, **asked)
    assert again.delivered.tolist() == plan.delivered.tolist()


def test_groups_that_are_kept_are_paired_like_this() -> None:
    plan = StepPlan.of([5, 5, 1, 1, 9, 9, 2, 2], ranks=2, groups=[*"aabbccdd"], equal_sizes=True)
    assert [rank[0].tolist() for rank in plan.micro_batches] == [[2, 3, 4, 5], [0, 1, 6, 7]]


def test_ranks_of_a_step_are_balanced_with_equal_counts() -> None:
    lengths = np.random.default_rng(1).lognormal(6.5, 0.9, 256).astype(np.int64) + 1
    plan = StepPlan.of(lengths, ranks=8, rule=MicroBatchRule(16384), equal_sizes=True)
    loads = np.array([CostModel().of(lengths[np.concatenate(rank)]).sum() for rank in plan.micro_batches])
    assert loads.max() / loads.mean() - 1 <= 1e-4
    assert {sum(map(len, rank)) for rank in plan.micro_batches} == {32}


def test_a_cap_is_a_cap() -> None:
    """Eight sequences of 7 need eight micro-batches of 8 tokens, not the seven into which 56 tokens would go."""
    assert [len(rows) for rows in MicroBatchRule(8).cut([7] * 8)] == [1] * 8
    assert MicroBatchRule(15, packed=False).fewest([7, 1, 1, 1]) == 2
    assert MicroBatchRule(15).fewest([7, 1, 1, 1]) == 1


@given(st.lists(st.integers(1, 20), min_size=1, max_size=5), st.integers(20, 40))
@examples(30)
def test_padded_micro_batches_are_as_few_as_possible(lengths: Lengths, cap: int) -> None:
    rule = MicroBatchRule(cap, packed=False)

    def fits(chosen: tuple[int, ...]) -> bool:
        return all(
            rule.allocated([length for length, part in zip(lengths, chosen, strict=True) if part == each]) <= cap
            for each in set(chosen)
        )

    fewest = next(
        count
        for count in range(1, len(lengths) + 1)
        if any(fits(chosen) for chosen in itertools.product(range(count), repeat=len(lengths)))
    )
    assert rule.fewest(lengths) == fewest


def test_light_micro_batches_are_at_both_ends_and_missing_ones_are_empty() -> None:
    cost = CostModel()
    loads = [
        int(cost.of([(9, 8, 7, 6, 5)[row] for row in rows]).sum()) for rows in MicroBatchRule(9).cut([9, 8, 7, 6, 5])
    ]
    top = loads.index(max(loads))
    assert loads[: top + 1] == sorted(loads[: top + 1])
    assert loads[top:] == sorted(loads[top:], reverse=True)
    filled = MicroBatchRule(9).cut([9, 2], least=3, multiple=2)
    assert sorted(map(len, filled)) == [0, 0, 1, 1]
    assert [len(rows) for rows in MicroBatchRule(9).cut([])] == [0]


def test_a_cap_above_what_best_fit_can_fill_holds_too() -> None:
    rule = MicroBatchRule(3 << 20)
    found = rule.cut([1 << 20] * 7)
    assert len(found) == 3
    assert all(rule.allocated([1 << 20] * len(rows)) <= rule.cap for rows in found)


def test_what_fits_nowhere_is_named() -> None:
    with pytest.raises(OrderError, match="sequence 2 has 9 tokens") as caught:
        StepPlan.of([3, 8, 9], ranks=2, rule=MicroBatchRule(8))
    follows_its_hint(caught.value)
    with pytest.raises(OrderError, match="sequence 1 has no tokens"):
        MicroBatchRule(8).cut([1, 0])
    with pytest.raises(OrderError, match="sequence 0 has 5 tokens"):
        MicroBatchRule(7, unit=4).cut([5])
    with pytest.raises(OrderError, match="2 groups are named for 3 rows"):
        StepPlan.of([1, 1, 1], groups=["a", "b"])
    with pytest.raises(OrderError, match="multiple of 9"):
        MicroBatchRule(8, unit=9)
