"""What was left out is counted once, however often a run is killed and gone on with."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import StateError
from millstream.games import Game
from millstream.loaders import SelfPlayDataLoader
from millstream.selfplay import admission
from selfplay.growing_games import LENGTHS, add, live, loader, three_archives


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return three_archives(tmp_path / "games")


def is_long(game: Game) -> bool | str:
    return game.length >= 4 or "short"


HOW: dict[str, Any] = {"predicates": [is_long], "positions": 0.3}


def counted(run: SelfPlayDataLoader, steps: int) -> dict[str, int]:
    for _ in range(steps):
        run.next()
    losses = run.state_dict()["losses"]
    assert isinstance(losses, dict)
    return losses


@pytest.mark.parametrize("threads", [1, 3])
def test_a_run_that_is_killed_often_counts_what_an_unbroken_one_does(
    folder: Path, tmp_path: Path, threads: int
) -> None:
    with live(folder, tmp_path / "whole", **HOW) as run:
        whole = [counted(run, 5) for _ in range(6)]
    assert whole[-1]["short"] > whole[0]["short"] > 0
    assert whole[-1]["no position chosen"] > 0
    with live(folder, tmp_path / "run", **HOW) as run:
        state = run.state_dict()
    for expected in whole:
        with live(folder, tmp_path / "run", threads=threads, prefetch=3, **HOW) as run:
            run.load_state_dict(state)
            run.load_state_dict(state)
            assert counted(run, 5) == expected
            state = run.state_dict()
            assert all(run.losses[reason] >= count for reason, count in expected.items())
            counted(run, 3)  # these are made again


def test_positions_that_are_gone_from_the_reservoir_are_counted_when_they_would_have_come(
    folder: Path, tmp_path: Path
) -> None:
    with live(folder, tmp_path / "run") as run:
        counted(run, 12)
        state, held = run.state_dict(), len(run._run.mirror.origins)
    for number in (1, 2):
        (folder / f"training-{number:04d}.tar").unlink()
    add(folder, 3)
    lost = [0]
    while lost[-1] < held:
        with live(folder, tmp_path / "run") as run:
            run.load_state_dict(state)
            lost.append(counted(run, 1).get("gone from the reservoir", 0))
            state = run.state_dict()
    assert sorted(lost) == lost
    assert lost[-1] == held


def test_what_only_leaves_the_window_is_no_loss(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "LOOK_EVERY", 8)
    with live(folder, tmp_path / "run", num_chunks=len(LENGTHS)) as run:
        run.next()
        add(folder, 3)
        graph = run._run.graph
        assert graph is not None
        while not graph.chunk_set.gauges()["files_left"]:
            run.next()
        (folder / "training-0002.tar").unlink()
        assert not run.losses


def test_epochs_that_are_over_stay_counted(folder: Path, tmp_path: Path) -> None:
    (folder / "empty.gz").touch()
    for cache in (None, tmp_path / "run"):
        with loader(folder, cache_dir=cache, **HOW) as run:
            for _ in run:
                pass
            over = run.losses
            counted(run, 2)
            state = run.state_dict()
            for _ in run:
                pass
            both = run.losses
        with loader(folder, cache_dir=cache, **HOW) as run:
            run.load_state_dict(state)
            assert run.losses.items() >= over.items() if cache is None else run.losses["short"] >= over["short"]
            for _ in run:
                pass
            assert run.losses == both


@pytest.mark.parametrize("steps", [1, 7])
def test_a_closed_run_has_lost_what_lies_behind_the_trainer_and_bad_files(
    folder: Path, tmp_path: Path, steps: int
) -> None:
    (folder / "broken.gz").write_bytes(b"no games")
    with live(folder, tmp_path / "run", prefetch=8, **HOW) as run:
        behind = counted(run, steps)
        files = {reason: count for reason, count in run.losses.items() if reason not in ("short", "no position chosen")}
        while run.losses["short"] == behind["short"]:  # the stages go ahead
            time.sleep(0.01)
    assert files
    assert run.losses == behind | files


def test_losses_of_a_state_are_not_trusted(folder: Path) -> None:
    with loader(folder) as run:
        run.next()
        state = run.state_dict()
        for losses in (None, {"short": -1}, {"short": "many"}, [1]):
            with pytest.raises(StateError, match="what was left out"):
                run.load_state_dict({**state, "losses": losses})
