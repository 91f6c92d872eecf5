"""Parts of about equal cost: each item in one part, and the sums that Karmarkar and Karp's method is known to find."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import examples
from loaders.samples import follows_its_hint
from millstream import OrderError
from millstream.order import CostModel, members, partition

Costs = list[int]
costs = st.lists(st.one_of(st.integers(0, 9), st.integers(0, 10**9)), max_size=60)


def sums(costs: Costs, parts: int, *, equal_sizes: bool = False, refine: bool = True) -> Costs:
    found = members(partition(costs, parts, equal_sizes=equal_sizes, refine=refine), parts)
    return [int(np.asarray(costs, np.int64)[rows].sum()) for rows in found]


def differencing(costs: Costs, parts: int, *, equal_sizes: bool) -> Costs:
    """The plain method as it is told: sums of the parts, the heaviest first."""
    rest = sorted(costs, reverse=True)
    step = parts if equal_sizes else 1
    starts = [rest[start : start + step] for start in range(0, len(rest), step)]
    heap = [(-(each[0] - each[-1]), each) for each in (start + [0] * (parts - len(start)) for start in starts)]
    heapq.heapify(heap)
    while len(heap) > 1:
        (_, one), (_, other) = heapq.heappop(heap), heapq.heappop(heap)
        joined = sorted((a + b for a, b in zip(one, reversed(other), strict=True)), reverse=True)
        heapq.heappush(heap, (-(joined[0] - joined[-1]), joined))
    return heap[0][1] if heap else [0] * parts


def test_known_partitions() -> None:
    assert sums([8, 7, 6, 5, 4], 2, refine=False) == [16, 14]
    assert sums([8, 7, 6, 5, 4], 2) == [15, 15]
    assert sums([10, 9, 8, 7, 6, 5, 4, 3], 4, refine=False) == [13] * 4
    assert partition([10, 2, 18, 4], 2, equal_sizes=True).tolist() == [1, 0, 0, 1]


@given(st.integers(0, 2**32), st.integers(1, 80), st.integers(1, 9), st.booleans())
@examples(60)
def test_without_refinement_the_sums_are_those_of_the_method_as_it_is_told(
    seed: int, items: int, parts: int, equal_sizes: bool
) -> None:
    drawn = np.random.default_rng(seed).integers(1, 10**12, items).tolist()  # ties may be broken in any way
    assert sums(drawn, parts, equal_sizes=equal_sizes, refine=False) == differencing(
        drawn, parts, equal_sizes=equal_sizes
    )


@given(costs, st.integers(1, 9), st.booleans())
@examples(150)
def test_every_item_is_in_one_part_and_the_heaviest_comes_first(costs: Costs, parts: int, equal_sizes: bool) -> None:
    part_of = partition(costs, parts, equal_sizes=equal_sizes)
    found = members(part_of, parts)
    assert sorted(np.concatenate(found).tolist()) == list(range(len(costs)))
    assert sums(costs, parts, equal_sizes=equal_sizes) == sorted(
        sums(costs, parts, equal_sizes=equal_sizes), reverse=True
    )
    if equal_sizes:
        assert max(map(len, found)) - min(map(len, found)) <= 1
    assert part_of.tolist() == partition(costs, parts, equal_sizes=equal_sizes).tolist()


@pytest.mark.parametrize("equal_sizes", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_ranks_differ_by_less_than_a_hundredth_of_a_percent(seed: int, equal_sizes: bool) -> None:
    lengths = np.random.default_rng(seed).lognormal(6.5, 0.9, 256).astype(np.int64) + 1
    costs = CostModel().of(lengths)
    loads = np.array(sums(costs.tolist(), 8, equal_sizes=equal_sizes))
    assert loads.max() / loads.mean() - 1 <= 1e-4


def test_many_items_and_parts_are_no_trouble() -> None:
    costs = CostModel().of(np.random.default_rng(0).lognormal(6, 0.7, 100_000).astype(np.int64))
    loads = np.bincount(partition(costs, 64), costs)
    assert loads.max() / loads.mean() - 1 <= 1e-5


def test_the_cost_of_a_model_follows_its_shape() -> None:
    assert CostModel.of_config(4096) == CostModel()
    llama = CostModel.of_config(4096, intermediate_size=14336, key_value_size=1024)
    assert llama == CostModel((2 * 4096 + 2 * 1024 + 3 * 14336) // 2, 1)
    assert CostModel(2, 3).of([0, 1, 10]).tolist() == [0, 5, 320]


@pytest.mark.parametrize(
    ("costs", "parts", "found"),
    [([1], 0, "0 parts"), ([1, -5], 2, "item 1 costs -5"), ([2**61, 2**61], 2, "more than 2")],
)
def test_what_cannot_be_is_refused(costs: Costs, parts: int, found: str) -> None:
    with pytest.raises(OrderError, match=found) as caught:
        partition(costs, parts)
    follows_its_hint(caught.value)
