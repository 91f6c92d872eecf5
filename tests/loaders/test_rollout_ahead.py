"""Batches of a fixed set of rollouts that are made ahead of the trainer."""

from __future__ import annotations

import time
from typing import Any

import pytest

from millstream import RolloutDataLoader, TrainingBatch
from rollouts.samples import random_rollouts


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
