from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loaders.samples import Ids, counting_loader, inputs, take
from millstream import BudgetError, StoreError, TrainingBatch, per_row

Events = list[tuple[str, Any]]


class Listener:
    """Writes down everything that happens."""

    def __init__(self) -> None:
        self.events: Events = []

    def on_epoch_start(self, epoch: int) -> None:
        self.events.append(("start", epoch))

    def on_epoch_end(self, epoch: int) -> None:
        self.events.append(("end", epoch))

    def on_batch(self, batch: TrainingBatch) -> None:
        self.events.append(("batch", batch.metadata["step"]))

    def on_error(self, error: Exception) -> None:
        self.events.append(("error", type(error).__name__))


def epoch(number: int, steps: range) -> Events:
    return [("start", number), *(("batch", step) for step in steps), ("end", number)]


def test_a_loop_tells_of_the_start_each_batch_and_the_end_of_every_epoch(tmp_path: Path) -> None:
    listener = Listener()
    with counting_loader(tmp_path, tokens=101, callbacks=[listener]) as loader:
        for _ in range(2):
            inputs(loader)

    assert listener.events == [*epoch(0, range(3)), *epoch(1, range(3, 6))]


def test_next_tells_of_the_end_when_the_next_epoch_begins(tmp_path: Path) -> None:
    listener = Listener()
    with counting_loader(tmp_path, tokens=101, callbacks=[listener]) as loader:
        take(loader, 4)

    assert listener.events == [*epoch(0, range(3)), ("start", 1), ("batch", 3)]


def test_an_epoch_that_is_left_and_taken_up_again_starts_and_ends_once(tmp_path: Path) -> None:
    listener = Listener()
    with counting_loader(tmp_path, tokens=101, callbacks=[listener]) as loader:
        for _ in loader:
            break
        inputs(loader)

    assert listener.events == epoch(0, range(3))


def test_a_jump_ends_no_epoch_and_starts_the_one_it_leads_to(tmp_path: Path) -> None:
    listener = Listener()
    with counting_loader(tmp_path, tokens=101, callbacks=[listener]) as loader:
        loader.next()
        state = loader.state_dict()
        loader.seek(5)
        loader.next()
        loader.load_state_dict(state)
        loader.next()
        loader.reset()
        loader.next()

    assert listener.events == [
        *[("start", 0), ("batch", 0)],
        *[("start", 1), ("batch", 5)],
        *[("start", 0), ("batch", 1)],
        *[("start", 0), ("batch", 0)],
    ]


def test_every_listener_hears_everything_in_their_order(tmp_path: Path) -> None:
    heard: list[str] = []

    class First:
        def on_batch(self, batch: TrainingBatch) -> None:
            heard.append("first")

    class Second:
        def on_batch(self, batch: TrainingBatch) -> None:
            heard.append("second")

        def on_epoch_start(self, epoch: int) -> None:
            heard.append("second starts")

    with counting_loader(tmp_path, callbacks=[First(), Second()]) as loader:
        take(loader, 2)

    assert heard == ["second starts", "first", "second", "first", "second"]


def test_errors_of_the_data_are_told_before_they_are_raised(tmp_path: Path) -> None:
    listener = Listener()
    with counting_loader(tmp_path, callbacks=[listener], model_config={"vocab_size": 5}) as loader:
        with pytest.raises(StoreError):
            loader.next()
        assert listener.events == [("error", "StoreError")]


def test_a_budget_that_is_too_small_is_told_too(tmp_path: Path) -> None:
    listener = Listener()
    with counting_loader(tmp_path, callbacks=[listener], memory_budget=10) as loader, pytest.raises(BudgetError):
        loader.next()

    assert listener.events == [("error", "BudgetError")]


@pytest.mark.parametrize("where", ["row", "batch", "listener"])
def test_an_error_of_the_users_own_code_is_told_and_the_step_is_given_again(tmp_path: Path, where: str) -> None:
    listener = Listener()
    failures = [ZeroDivisionError("once")]

    def fail_once(value: Any, *rest: Any) -> Any:
        if failures and loader.step >= 1:
            raise failures.pop()
        return value

    class Failing:
        on_batch = staticmethod(fail_once)

    transforms = {"row": [per_row(fail_once)], "batch": [fail_once], "listener": []}[where]
    callbacks = [Failing(), listener] if where == "listener" else [listener]
    with counting_loader(tmp_path) as loader:
        expected = take(loader, 4)
    got: Ids = []
    with counting_loader(tmp_path, callbacks=callbacks, transforms=transforms) as loader:
        while len(got) < 16:
            step = loader.step
            try:
                batch = loader.next()
            except ZeroDivisionError:
                assert loader.step == step
                continue
            assert batch.metadata["step"] == step
            got += inputs([batch])

    assert got == expected
    assert ("error", "ZeroDivisionError") in listener.events
    assert [event for event in listener.events if event[0] == "batch"] == [("batch", step) for step in range(4)]


def test_a_listener_may_save_the_state_that_follows_the_batch(tmp_path: Path) -> None:
    states = []

    class Saver:
        def on_batch(self, batch: TrainingBatch) -> None:
            states.append((batch.metadata["step"], loader.state_dict()))

    with counting_loader(tmp_path, callbacks=[Saver()]) as loader:
        rows = [take(loader, 1) for _ in range(4)]

    step, state = states[1]
    with counting_loader(tmp_path) as resumed:
        resumed.load_state_dict(state)
        assert resumed.step == step + 1
        assert take(resumed, 1) == rows[2]
