"""Batches of positions go through queues and to ranks as others do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from millstream import BatchError, BatchQueue, SelfPlayBatch, Topology, distribute
from millstream.errors import BudgetError
from millstream.loaders import example_self_play


def batch_of(rows: int, framework: str = "numpy", **settings: Any) -> SelfPlayBatch:
    with example_self_play(batch_size=rows, framework=framework, **settings) as loader:
        return loader.next().copy()


def same(one: SelfPlayBatch, other: SelfPlayBatch) -> bool:
    names = [key for key, each in one.metadata.items() if isinstance(each, np.ndarray)]
    known = all((one.metadata[key] == other.metadata[key]).all() for key in names)
    tensors = [(one.to("numpy")[name], other.to("numpy")[name]) for name in ("planes", "policy", "values")]
    return known and all(np.array_equal(a, b, equal_nan=True) for a, b in tensors)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_queue_takes_positions_and_counts_their_bytes(framework: str) -> None:
    batch, queue = batch_of(3, framework), BatchQueue(capacity=2)
    queue.enqueue(batch)
    row = 4 * (112 * 64 + 1858 + 18) + 3 * 8
    assert queue.stats().bytes == 3 * row
    assert queue.try_enqueue(batch) and not queue.try_enqueue(batch)
    assert queue.dequeue() is batch
    with pytest.raises(BudgetError, match=f"an item of {3 * row} bytes does not fit"):
        BatchQueue(budget_bytes=100).enqueue(batch)


def test_what_was_released_or_is_no_batch_is_refused() -> None:
    batch = batch_of(3)
    batch.release()
    for call in (BatchQueue().enqueue, lambda each: distribute(each, Topology.flat(2))):
        with pytest.raises(BatchError, match="this batch was released"):
            call(batch)
        with pytest.raises(BatchError, match="a dict is no batch"):
            call({})  # type: ignore[arg-type]


def every_other(tokens: Sequence[int], ranks: int, most: int) -> list[range]:
    return [range(rank, len(tokens), ranks) for rank in range(ranks)]


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("balance", ["rows", "tokens", "karmarkar_karp", every_other])
@pytest.mark.parametrize("rows", [8, 7, 2])
def test_each_position_goes_to_one_data_rank_and_to_all_of_its_peers(rows: int, balance: Any, framework: str) -> None:
    batch = batch_of(rows, framework, output="boards" if framework == "numpy" else "float32")
    pieces = distribute(batch, Topology.grid(data=3, tensor=2), balance=balance)
    assert [same(pieces[rank], pieces[rank + 1]) for rank in (0, 2, 4)] == [True] * 3
    whole = SelfPlayBatch.merge(pieces[::2])
    places = [list(zip(each.metadata["chunk"], each.metadata["ply"], strict=True)) for each in (batch, whole)]
    again = SelfPlayBatch.merge([whole.rows_between(row, row + 1) for row in map(places[1].index, places[0])])
    assert same(again, batch) and max(map(len, pieces)) - min(map(len, pieces)) <= 1 + (balance == "rows")
    assert all(piece.metadata["step"] == batch.metadata["step"] for piece in pieces)


def test_positions_that_do_not_fit_or_do_not_match_are_refused() -> None:
    with pytest.raises(BatchError, match="8 rows do not fit into 2 data ranks of 3 rows"):
        distribute(batch_of(8), Topology.flat(2), batch_size=3)
    with pytest.raises(BatchError, match="differ in framework or tensors"):
        SelfPlayBatch.merge([batch_of(2), batch_of(2, "torch")])
    with pytest.raises(BatchError, match="there are no batches"):
        SelfPlayBatch.merge([])


def test_a_device_may_be_an_object_of_its_framework() -> None:
    batch = batch_of(3)
    moved = batch.to(torch.device("cpu"))
    assert moved.framework == "torch" and same(moved, batch)


@pytest.mark.parametrize("short", range(3))
def test_tensors_of_unequal_rows_are_no_batch(short: int) -> None:
    shapes = [(4, 112, 8, 8), (4, 1858), (4, 6, 3)]
    shapes[short] = (3, *shapes[short][1:])
    with pytest.raises(BatchError, match=r"planes have \d rows, policy \d and values \d") as refused:
        SelfPlayBatch(*(np.zeros(shape, np.float32) for shape in shapes))
    assert refused.value.hint
