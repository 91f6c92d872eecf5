"""A self-play run knows where it stood before each of its last steps: such a state is the one that was saved then."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forks import in_child
from millstream.errors import LoaderError
from millstream.games import Game
from millstream.loaders import SelfPlayDataLoader
from millstream.selfplay import admission
from millstream.selfplay.delivered_state import KEPT
from selfplay.growing_games import Row, add, chunks_of, live, loader, rows_of, three_archives

State = dict[str, Any]


def is_long(game: Game) -> bool | str:
    return game.length >= 4 or "short"


def kept(folder: Path, run: Path, **keywords: Any) -> SelfPlayDataLoader:
    return loader(folder, cache_dir=run, **keywords)


def bare(folder: Path, run: Path, **keywords: Any) -> SelfPlayDataLoader:
    assert not run.exists()
    return loader(folder, **keywords)


KINDS: dict[str, Callable[..., SelfPlayDataLoader]] = {"watched": live, "bounded": kept, "bounded in memory": bare}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return three_archives(tmp_path / "games")


@contextmanager
def opened(kind: str, folder: Path, run: Path, ranks: int = 1, **keywords: Any) -> Iterator[list[SelfPlayDataLoader]]:
    """A loader for each rank."""
    with ExitStack() as stack:
        how = {"batch_size": 7 // ranks, **keywords}
        yield [
            stack.enter_context(KINDS[kind](folder, run, rank=rank, world_size=ranks, **how)) for rank in range(ranks)
        ]


def step(runs: list[SelfPlayDataLoader]) -> list[Row]:
    """The next step of all ranks."""
    return [row for run in runs for row in rows_of(run.next())]


def walked(runs: list[SelfPlayDataLoader], count: int) -> tuple[list[list[Row]], list[list[State]]]:
    """The rows of so many steps, and the states of all ranks before each and behind the last."""
    rows, states = list[list[Row]](), [[run.state_dict() for run in runs]]
    for _ in range(count):
        rows.append(step(runs))
        states.append([run.state_dict() for run in runs])
    return rows, states


def is_the_same(found: State, saved: State) -> bool:
    """Between two epochs a state of then says which files the second one had, which nobody knew."""
    if found["epoch"] != saved["epoch"]:
        return (found["epoch"], found["epoch_rows"]) == (saved["epoch"] + 1, 0)
    both = {**found, "files": None}, {**saved, "files": None}
    return found == saved or (saved["epoch_rows"] == 0 and both[0] == both[1])


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_each_of_the_last_steps_is_the_one_that_was_saved_then(
    folder: Path, tmp_path: Path, kind: str, ranks: int
) -> None:
    count = KEPT + 8
    with opened(kind, folder, tmp_path / "run", ranks, predicates=[is_long]) as runs:
        rows, states = walked(runs, count)
        for number, run in enumerate(runs):
            for before in range(count - KEPT, count + 1):
                saved = states[before][number]
                assert is_the_same(run.state_dict(before=before), saved), before
                assert run.state_dict(after=before - 1)["step"] == before
            for older in (0, count - KEPT - 1):
                with pytest.raises(LoaderError, match=f"keeps the last {KEPT} steps") as refused:
                    run.state_dict(before=older)
                assert refused.value.hint
        asked = (count - KEPT, count - 30, count - 1)
        found = [[run.state_dict(before=before) for run in runs] for before in asked]
    for before, of_ranks in zip(asked, found, strict=True):
        assert len({str(state) for state in of_ranks}) == 1
        with opened(kind, folder, tmp_path / "run", ranks, predicates=[is_long]) as runs:
            for run, state in zip(runs, of_ranks, strict=True):
                run.load_state_dict(state)
            assert [step(runs) for _ in range(min(8, count - before))] == rows[before:][:8]


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("kind", ["bounded", "bounded in memory"])
def test_a_state_of_an_epoch_that_is_over_goes_on_with_its_rest(
    folder: Path, tmp_path: Path, kind: str, drop_last: bool
) -> None:
    how: dict[str, Any] = {"predicates": [is_long], "positions": 0.6, "drop_last": drop_last}
    with opened(kind, folder, tmp_path / "run", **how) as runs:
        rows, states = walked(runs, 40)
        assert runs[0].epoch >= 3
        found = [runs[0].state_dict(before=before) for before in range(41)]
    assert all(is_the_same(state, saved[0]) for state, saved in zip(found, states, strict=True))
    ends = [number for number, state in enumerate(found) if state["epoch_rows"] == 0]
    assert len(ends) >= 4
    for before in [each + more for each in ends[1:4] for more in (-1, 0, 1)]:
        with opened(kind, folder, tmp_path / "run", **how) as runs:
            runs[0].load_state_dict(found[before])
            again, after = walked(runs, 40 - before)
            assert again == rows[before:]
            assert after[-1][0]["losses"] == states[-1][0]["losses"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_resumed_knows_its_steps_since_then(folder: Path, tmp_path: Path, kind: str) -> None:
    with opened(kind, folder, tmp_path / "run") as runs:
        rows, states = walked(runs, 12)
        runs[0].load_state_dict(states[8][0])
        with pytest.raises(LoaderError, match="load_state_dict"):
            runs[0].state_dict(before=7)
        assert [step(runs) for _ in range(4)] == rows[8:]
        for before in range(8, 13):
            assert is_the_same(runs[0].state_dict(before=before), states[before][0])
        with pytest.raises(LoaderError, match="does not know any more"):
            runs[0].state_dict(before=7)
        runs[0].reset()
        with pytest.raises(LoaderError, match="the next step is"):
            runs[0].state_dict(before=9)


@pytest.mark.parametrize("keywords", [{}, {"hanse": 0.5}, {"positions": 0.5}])
def test_files_that_come_and_go_meanwhile_change_no_state_of_then(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keywords: dict[str, Any]
) -> None:
    monkeypatch.setattr(admission, "LOOK_EVERY", 8)
    cache, how = tmp_path / "run", {"poll_s": 0.01, **keywords}
    with live(folder, cache, **how) as run:
        states = [run.state_dict()]
        for number in range(3, 8):
            total = chunks_of(run) if run._run.graph else 0
            add(folder, number)
            while run._run.graph is None or chunks_of(run) == total:
                run.next()
                states.append(run.state_dict())
            (folder / f"training-{number - 2:04d}.tar").unlink()
        first = max(0, run.step - KEPT)
        assert [run.state_dict(before=before) for before in range(first, run.step + 1)] == states[first:]
        back = run.state_dict(before=run.step - 5)
    with live(folder, cache, **how) as run:
        run.load_state_dict(back)
        states = [run.state_dict()]
        for _ in range(20):
            run.next()
            states.append(run.state_dict())
        assert [run.state_dict(before=before) for before in range(back["step"], run.step + 1)] == states


def test_positions_that_are_gone_from_the_reservoir_are_counted_up_to_the_step(folder: Path, tmp_path: Path) -> None:
    with live(folder, tmp_path / "run") as run:
        for _ in range(12):
            run.next()
        state = run.state_dict()
    for number in (1, 2):
        (folder / f"training-{number:04d}.tar").unlink()
    add(folder, 3)
    with live(folder, tmp_path / "run") as run, mock.patch("millstream.selfplay.delivered_state.KEPT", 10):
        run.load_state_dict(state)
        losses = [state["losses"]]
        for _ in range(18):
            run.next()
            losses.append(run.state_dict()["losses"])
        assert losses[-1]["gone from the reservoir"] > losses[9].get("gone from the reservoir", 0) > 0
        assert [run.state_dict(before=12 + number)["losses"] for number in range(8, 19)] == losses[8:]


class Broken:
    """A predicate that fails once."""

    def __init__(self) -> None:
        self.games, self.fails_at = 0, 1 << 30

    def __call__(self, game: Game) -> bool | str:
        self.games += 1
        if self.games > self.fails_at:
            self.fails_at = 1 << 30
            raise ZeroDivisionError("once")
        return is_long(game)


@pytest.mark.parametrize("kind", KINDS)
def test_stages_that_fail_and_begin_anew_leave_the_states_of_then(folder: Path, tmp_path: Path, kind: str) -> None:
    broken = Broken()
    with opened(kind, folder, tmp_path / "run", predicates=[broken]) as runs:
        rows, states = walked(runs, 4)
        broken.fails_at = broken.games
        with pytest.raises(Exception, match="once"):
            while True:
                rows.append(step(runs))
                states.append([runs[0].state_dict()])
        failed = runs[0].step
        behind = [runs[0].state_dict(before=before) for before in range(failed + 1)]
        more, after = walked(runs, 5)
        states += after[1:]
        found = [runs[0].state_dict(before=before) for before in range(failed + 6)]
    assert all(is_the_same(state, saved[0]) for state, saved in zip(behind, states, strict=False))
    assert all(is_the_same(state, saved[0]) for state, saved in zip(found, states, strict=True))
    for before in (failed - 2, failed, failed + 2):
        with opened(kind, folder, tmp_path / "run", predicates=[Broken()]) as runs:
            runs[0].load_state_dict(found[before])
            assert walked(runs, failed + 5 - before)[0] == (rows + more)[before:]
            assert runs[0].state_dict()["losses"] == found[-1]["losses"]


def test_a_forked_child_knows_the_last_steps_of_its_parent(folder: Path) -> None:
    with loader(folder) as run:
        states = walked([run], 5)[1]
        found = in_child(lambda: [run.state_dict(before=before) for before in range(1, 6)])()
    assert found == [state for (state,) in states[1:]]


@settings(max_examples=12, deadline=None)
@given(
    kind=st.sampled_from(list(KINDS)),
    size=st.integers(1, 12),
    keeps=st.integers(1, 9),
    asked=st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=25),
)
def test_wherever_a_trainer_stops_the_rows_behind_its_state_come_again(
    kind: str, size: int, keeps: int, asked: list[int | None]
) -> None:
    """At each step it saves no state, or one that lies so many steps behind."""
    with (
        tempfile.TemporaryDirectory() as place,
        mock.patch("millstream.selfplay.delivered_state.KEPT", keeps),
        mock.patch("millstream.loaders.runs.self_play.CATCH_UP", 4),
    ):
        folder, rows, states = three_archives(Path(place, "games")), list[list[Row]](), list[State]()
        with opened(kind, folder, Path(place, "run"), batch_size=size) as (run,):
            for back in asked:
                rows.append(rows_of(run.next()))
                if back is not None and back <= min(keeps, run.step):
                    states.append(run.state_dict(before=run.step - back))
                elif back is not None and back <= run.step:
                    with pytest.raises(LoaderError, match="does not know any more"):
                        run.state_dict(before=run.step - back)
        for state in states[-2:]:
            with opened(kind, folder, Path(place, "run"), batch_size=size) as (run,):
                run.load_state_dict(state)
                assert [rows_of(run.next()) for _ in rows[state["step"] :]] == rows[state["step"] :]
