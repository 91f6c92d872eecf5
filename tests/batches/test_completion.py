from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches.threads import join, started
from laws import examples
from loaders.samples import follows_its_hint
from millstream import CompletionTracker, LoaderError, MillstreamError, OrderError, StateError

RANKS = 3
reports = st.lists(st.tuples(st.integers(0, 9), st.integers(0, RANKS - 1)), max_size=60)


def slow_completed(reported: set[tuple[int, int]]) -> int:
    """Count from the start."""
    step = 0
    while all((step, rank) in reported for rank in range(RANKS)):
        step += 1
    return step - 1


@given(reports=reports)
@examples(200)
def test_completed_is_the_prefix_that_all_ranks_have_done_whatever_the_order(reports: list[tuple[int, int]]) -> None:
    tracker = CompletionTracker(RANKS)
    seen: set[tuple[int, int]] = set()
    for step, rank in reports:  # some of them twice
        before = tracker.completed
        finished = tracker.done(step, rank)
        seen.add((step, rank))
        assert tracker.completed == slow_completed(seen)
        assert list(finished) == list(range(before + 1, tracker.completed + 1))
    last = max((step for step, _ in seen), default=-1)
    assert tracker.pending() == {
        step: missing
        for step in range(last + 1)
        if step > tracker.completed and (missing := tuple(rank for rank in range(RANKS) if (step, rank) not in seen))
    }


@given(reports=reports, cut=st.integers(0, 60))
@examples(60)
def test_a_tracker_goes_on_from_its_state_through_json(reports: list[tuple[int, int]], cut: int) -> None:
    whole, first, second = (CompletionTracker(RANKS) for _ in range(3))
    for step, rank in reports:
        whole.done(step, rank)
    for step, rank in reports[:cut]:
        first.done(step, rank)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for step, rank in reports[cut:]:
        second.done(step, rank)

    assert second.state_dict() == whole.state_dict()


def test_memory_does_not_grow_with_the_steps() -> None:
    tracker = CompletionTracker(2, window=4)
    for step in range(1000):
        tracker.done(step, 0)
        tracker.done(step, 1)
        assert tracker.state_dict()["done"] == {}
    for step in range(1000, 1004):
        tracker.done(step, 0)
    with pytest.raises(LoaderError, match="step 1004, but step 1000 is still open on rank 1") as caught:
        tracker.done(1004, 0)
    assert "window" in follows_its_hint(caught.value)
    tracker.done(1000, 1)
    assert tracker.done(1004, 0) == range(1001, 1001)


def test_another_number_of_ranks_goes_on_behind_the_last_completed_step() -> None:
    tracker = CompletionTracker(2)
    for step, rank in [(0, 0), (0, 1), (1, 1)]:
        tracker.done(step, rank)
    other = CompletionTracker(3)
    other.load_state_dict(tracker.state_dict())

    assert (other.completed, other.pending()) == (0, {})
    other.done(1, 2)
    assert other.pending() == {1: (0, 1)}


def test_a_run_may_begin_at_any_step() -> None:
    tracker = CompletionTracker(1, first_step=500)

    assert tracker.completed == 499
    assert tracker.done(500, 0) == range(500, 501)
    assert tracker.done(3, 0) == range(501, 501)  # an older state was loaded, and its steps are done again
    assert tracker.state_dict()["done"] == {}


def test_reports_may_come_from_any_thread() -> None:
    tracker = CompletionTracker(4)
    finished: list[int] = []

    def report(rank: int) -> None:
        for step in range(200):
            finished.extend(tracker.done(step, rank))

    join(*(started(lambda rank=rank: report(rank)) for rank in range(4)))  # type: ignore[misc]

    assert sorted(finished) == list(range(200))
    assert tracker.completed == 199


@pytest.mark.parametrize("call", [lambda: CompletionTracker(0), lambda: CompletionTracker(1, window=0)])
def test_impossible_trackers_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(OrderError):
        call()


def test_ranks_that_do_not_exist_are_refused() -> None:
    for rank in (-1, 2):
        with pytest.raises(OrderError, match=r"outside 0\.\.1"):
            CompletionTracker(2).done(0, rank)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": None},
        {"completed": "soon"},
        {"done": [1]},
        {"done": {"1": [7]}},
        {"done": {"-1": [0]}},
        {"world_size": None},
    ],
)
def test_foreign_states_are_refused_and_change_nothing(change: dict[str, Any]) -> None:
    tracker = CompletionTracker(2)
    tracker.done(0, 1)
    before = tracker.state_dict()

    for state in ({**before, **change}, {}):
        with pytest.raises(StateError) as caught:
            tracker.load_state_dict(state)
        assert isinstance(caught.value, MillstreamError)
        assert follows_its_hint(caught.value)
    assert tracker.state_dict() == before
