"""A batch is the trainer's or it is not: a state says which, at any time, and a listener that fails loses none."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from millstream.batches import SelfPlayBatch
from millstream.errors import LoaderError
from millstream.loaders import SelfPlayDataLoader
from selfplay.growing_games import Row, add, live, loader, rows_of, three_archives


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return three_archives(tmp_path / "games")


class FailsOnce:
    """A listener that does not take the batch of a step the first time."""

    def __init__(self, step: int) -> None:
        self.step, self.heard = step, list[int]()

    def on_batch(self, batch: SelfPlayBatch) -> None:
        self.heard.append(batch.metadata["step"])
        if self.heard[-1] == self.step and self.heard.count(self.step) == 1:
            raise ZeroDivisionError("once")


def test_a_state_can_be_saved_while_another_thread_waits_for_games(tmp_path: Path) -> None:
    games = tmp_path / "games"
    games.mkdir()
    found: list[list[Row]] = []
    with live(games, tmp_path / "run") as run:
        trainer = threading.Thread(target=lambda: found.append(rows_of(run.next())))
        trainer.start()
        time.sleep(0.3)
        began = time.monotonic()
        state = run.state_dict()
        run.commit(state)
        assert time.monotonic() - began < 1
        assert state["step"] == 0
        assert not found
        for number in range(3):
            add(games, number)
        trainer.join(20)
        found.append(rows_of(run.next()))
    with live(games, tmp_path / "run") as run:
        run.load_state_dict(state)
        assert [rows_of(run.next()) for _ in range(2)] == found


def test_a_batch_that_a_listener_did_not_take_is_given_again(folder: Path, tmp_path: Path) -> None:
    with live(folder, tmp_path / "first") as run:
        expected = [rows_of(run.next()) for _ in range(6)]
    listener = FailsOnce(3)
    with live(folder, tmp_path / "second", callbacks=[listener]) as run:
        got = [rows_of(run.next()) for _ in range(3)]
        with pytest.raises(ZeroDivisionError):
            run.next()
        assert run.step == 3
        state = run.state_dict()
        assert state["step"] == 3
        with pytest.raises(LoaderError, match="batch_size=7"):
            run.get_batch(2)
        got += [rows_of(run.next()) for _ in range(3)]
        assert run.state_dict()["step"] == run.step == 6
    assert got == expected
    assert listener.heard == [0, 1, 2, 3, 3, 4, 5]
    with live(folder, tmp_path / "second") as run:
        run.load_state_dict(state)
        assert [rows_of(run.next()) for _ in range(3)] == expected[3:]


def test_a_jump_forgets_the_batch_that_was_not_taken(folder: Path) -> None:
    with loader(folder, callbacks=[FailsOnce(2)]) as run:
        first = rows_of(run.next())
        run.next()
        with pytest.raises(ZeroDivisionError):
            run.next()
        run.reset()
        assert (run.step, rows_of(run.next())) == (0, first)


def test_a_listener_may_save_the_state_that_follows_the_batch(folder: Path, tmp_path: Path) -> None:
    states: list[dict[str, Any]] = []

    class Saver:
        run: SelfPlayDataLoader

        def on_batch(self, batch: SelfPlayBatch) -> None:
            states.append(self.run.state_dict())

    saver = Saver()
    with live(folder, tmp_path / "run", callbacks=[saver]) as run:
        saver.run = run
        rows = [rows_of(run.next()) for _ in range(4)]
    with live(folder, tmp_path / "run") as run:
        run.load_state_dict(states[1])
        assert [rows_of(run.next()) for _ in range(2)] == rows[2:]
