"""Batches of a fixed set of rollouts that are made ahead of the trainer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forks import in_child
from laws import examples
from millstream import ClosedError, RolloutDataLoader, TrainingBatch
from millstream.loaders.fillers import rollouts as filling
from rollouts.samples import random_rollouts

NO_TIME, ALL_TIME = 2**63, -1
"""What it costs to hand a batch over, so that no trainer, or every one, leaves enough time."""
RECORDS = random_rollouts(groups=5)
acts = st.one_of(
    st.tuples(st.just("take"), st.sampled_from([None, 3, 4])),
    st.tuples(st.just("micro"), st.none()),
    st.tuples(st.just("seek"), st.integers(0, 9)),
    st.tuples(st.just("prefetch"), st.integers(1, 3)),
    st.tuples(st.just("resume"), st.none()),
)


def opened(**given_as: Any) -> RolloutDataLoader:
    return RolloutDataLoader(RECORDS, framework="numpy", batch_size=4, micro_tokens=80, **given_as)


def said(batch: Any) -> Any:
    return [(part.metadata["step"], part.metadata["rollout_id"], part.input_ids.tolist()) for part in batch]


def done(loader: Any, act: str, value: Any) -> Any:
    """What a trainer sees of what it does."""
    if act == "take":
        return said([loader.get_batch(value)])
    if act == "micro":
        return said(loader.get_micro_batches())
    if act == "seek":
        return loader.seek(value)
    if act == "prefetch":
        return loader.prefetch(value)
    state = loader.state_dict()
    return state, loader.load_state_dict(state)


def without_threads() -> RolloutDataLoader:
    loader = opened()
    loader._filler._most = 0
    loader.prefetch = lambda batches: None  # type: ignore[method-assign]
    return loader


@contextmanager
def busy(loader: RolloutDataLoader) -> Iterator[None]:
    """The thread that makes batches ahead has something else to do."""
    threads, release = loader._filler._threads, threading.Event()
    begun = threads.submit(release.wait)
    try:
        while not begun.running():
            time.sleep(0.001)
        yield
    finally:
        release.set()


def test_a_batch_that_no_thread_has_begun_is_made_by_who_asks() -> None:
    with without_threads() as loader:
        expected = [done(loader, "take", None) for _ in range(9)]
    for prefetch in (None, 3):
        with opened(prefetch=prefetch) as loader, ThreadPoolExecutor(1) as trainer:
            found = [done(loader, "take", None)]
            with busy(loader):
                found += [trainer.submit(done, loader, "take", None).result(30) for _ in range(8)]
            assert found == expected


@pytest.mark.parametrize("prefetch", [None, 2])
def test_nothing_is_made_ahead_for_a_trainer_that_leaves_no_time_until_it_does(
    monkeypatch: pytest.MonkeyPatch, prefetch: int | None
) -> None:
    def made_ahead(loader: RolloutDataLoader) -> int:
        loader.next()
        return len(loader._filler._made)

    with opened(prefetch=prefetch) as loader:
        monkeypatch.setattr(filling, "HAND_OVER_NS", NO_TIME)
        found = [made_ahead(loader) for _ in range(filling.PATIENCE + 4)]
        assert found[: filling.PATIENCE - 1] == [prefetch or 1] * (filling.PATIENCE - 1)
        assert found[filling.PATIENCE :] == [prefetch or 0] * 4
        monkeypatch.setattr(filling, "HAND_OVER_NS", ALL_TIME)
        assert [made_ahead(loader) for _ in range(3)] == [prefetch or 1] * 3
        monkeypatch.setattr(filling, "HAND_OVER_NS", NO_TIME)
        loader.prefetch(3)
        assert [made_ahead(loader) for _ in range(20)] == [3] * 20


@pytest.mark.parametrize("is_busy", [False, True])
@pytest.mark.parametrize("cost", [NO_TIME, ALL_TIME])
@given(before=st.lists(acts, max_size=12), then=st.lists(acts, max_size=12))
@examples(15)
def test_nothing_is_lost_or_doubled_whoever_makes_a_batch(
    cost: int, is_busy: bool, before: list[tuple[str, Any]], then: list[tuple[str, Any]]
) -> None:
    with without_threads() as loader:
        expected = [done(loader, *act) for act in (("take", None), *before, *then)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filling, "HAND_OVER_NS", cost)
        with opened() as loader:
            found = [done(loader, "take", None)]
            if is_busy:
                with busy(loader):
                    found += [done(loader, *act) for act in before]
            else:
                found += [done(loader, *act) for act in before]
            found += [done(loader, *act) for act in then]
        assert found == expected
        with pytest.raises(ClosedError):
            loader.next()


def test_a_forked_child_and_its_parent_both_have_what_no_thread_has_begun() -> None:
    def rest(loader: RolloutDataLoader) -> list[Any]:
        return [done(loader, "take", None) for _ in range(4)]

    with without_threads() as loader:
        loader.next()
        expected = rest(loader)
    with opened(prefetch=2) as loader:
        loader.next()
        with busy(loader):
            assert in_child(lambda: rest(loader))() == expected
            assert rest(loader) == expected


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
