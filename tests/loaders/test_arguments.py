"""What a trainer passes to a loader is checked once: every loader refuses the same values, with the same words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loaders.kinds import KINDS
from loaders.samples import follows_its_hint
from millstream import ClosedError, DataLoader, LoaderError, OrderError, StateError
from millstream.loaders import example_loader

NO_STEPS: tuple[Any, ...] = ("a", 1.5, -1, True, None, 2**62, 2**200, np.array([1, 2]))
NO_SIZES: tuple[Any, ...] = ("8", True, 0, -1, 1.5, 2**31 + 1, 2**70, np.array([1, 2]))
NO_BATCHES: tuple[Any, ...] = ("x", True, 1.5, {}, [])


@pytest.fixture(scope="module", params=KINDS)
def loader(request: pytest.FixtureRequest) -> Any:
    with KINDS[request.param](batch_size=4) as opened:
        opened.next()
        yield opened


@pytest.fixture(scope="module", params=KINDS)
def kind_of_state(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    where = {"cache_dir": tmp_path_factory.mktemp("cache")} if request.param == "rollout feed" else {}
    with KINDS[request.param](batch_size=4, **where) as opened:
        opened.next()
        yield opened, opened.state_dict()


def test_a_step_that_cannot_be_is_refused_in_the_same_words(loader: DataLoader[Any]) -> None:
    for wrong in NO_STEPS:
        for call in (loader.seek, loader.explain):
            with pytest.raises(OrderError, match=r"^there is no step") as refused:
                call(wrong)
            follows_its_hint(refused.value)
    assert loader.step == 1


def test_rows_that_no_batch_can_have_are_refused_in_the_same_words(loader: DataLoader[Any]) -> None:
    for wrong in NO_SIZES:
        with pytest.raises(LoaderError, match=r"^batch_size") as refused:
            loader.get_batch(wrong)
        follows_its_hint(refused.value)
    assert loader.step == 1


def test_what_is_no_batch_has_no_state(loader: DataLoader[Any]) -> None:
    for wrong in NO_BATCHES:
        for place in ("after", "before"):
            with pytest.raises(LoaderError, match="does not say which step it is") as refused:
                loader.state_dict(**{place: wrong})
            follows_its_hint(refused.value)


def test_more_batches_than_are_kept_ready_are_refused_with_the_most(loader: DataLoader[Any]) -> None:
    for wrong in (1025, 10**6, 2**70):
        with pytest.raises(LoaderError, match="too many") as refused:
            loader.prefetch(wrong)
        assert follows_its_hint(refused.value) == "pass prefetch=1024 at most"
    assert loader.step == 1


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_as_are_kept_ready_stay_within_the_budget(kind: str) -> None:
    budget = 4_000_000
    with KINDS[kind](batch_size=32, memory_budget=budget) as opened:
        opened.prefetch(1024)
        for _ in range(2):
            opened.next().release()
            assert opened.get_profiling_results()["memory"]["batches"] <= budget
    with pytest.raises(LoaderError, match="too many") as refused:
        KINDS[kind](prefetch=10**6)
    assert follows_its_hint(refused.value) == "pass prefetch=1024 at most"


@pytest.mark.parametrize("kind", KINDS)
def test_a_loader_that_was_closed_keeps_nothing_ready(kind: str) -> None:
    with KINDS[kind]() as opened:
        opened.next()
    with pytest.raises(ClosedError, match="was closed") as refused:
        opened.prefetch(2)
    follows_its_hint(refused.value)


@pytest.mark.parametrize("key", ["version", "order_version", "loader", "step", "seed", "rows"])
def test_a_state_that_lacks_something_says_what_and_why_that_may_be(kind_of_state: Any, key: str) -> None:
    opened, state = kind_of_state
    for call in (opened.load_state_dict, opened.commit):
        with pytest.raises(StateError, match=f"the state has no '{key}'") as refused:
            call({name: fact for name, fact in state.items() if name != key})
        assert "something else, or was edited" in follows_its_hint(refused.value)


def test_rows_of_a_state_that_lack_a_fact_are_not_told_to_pass_none(kind_of_state: Any) -> None:
    opened, state = kind_of_state
    for key, fact in state["rows"].items():
        if fact is None:
            continue
        rows = {name: each for name, each in state["rows"].items() if name != key}
        with pytest.raises(StateError, match=f"the state does not say {key}, this loader has") as refused:
            opened.load_state_dict({**state, "rows": rows})
        assert "was edited" in follows_its_hint(refused.value) and "None" not in follows_its_hint(refused.value)
    with pytest.raises(StateError, match="rows in the state are 5"):
        opened.load_state_dict({**state, "rows": 5})
    opened.load_state_dict(state)


def test_a_state_of_another_version_is_told_so_whatever_else_it_lacks() -> None:
    with example_loader() as opened, pytest.raises(StateError, match="the state has version 2"):
        opened.load_state_dict({"format": "millstream state", "version": 2, "order_version": 1})


def test_integers_of_every_kind_are_steps_and_rows() -> None:
    with example_loader(batch_size=2) as loader:
        loader.seek(np.int64(2))  # type: ignore[arg-type]
        assert loader.get_batch(np.int16(1)).metadata["rows"] == 1  # type: ignore[arg-type]
        assert type(loader.state_dict()["step"]) is int
        assert loader.explain(np.uint8(0)) == loader.explain(0)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["store", "documents", "packed chats", "rollouts", "groups of rollouts"])
def test_a_document_that_cannot_be_has_no_steps(kind: str) -> None:
    with KINDS[kind]() as opened:
        for wrong in ("x", 1.5, True, None, -1, 2**70):
            with pytest.raises(LoaderError, match=r"there is no (document|rollout)") as refused:
                opened.steps_of(wrong)
            follows_its_hint(refused.value)
