"""A forked child goes on with a self-play run by itself, from where its parent stood, and writes nothing."""

from __future__ import annotations

import gc
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from forks import in_child
from millstream.errors import BusyError, ClosedError, LoaderError
from millstream.games import Game
from millstream.loaders import SelfPlayDataLoader
from millstream.loaders.runs import SelfPlayRun
from millstream.selfplay.chunk_feed import Tensors
from millstream.stages import serve_metrics
from millstream.storage import disk
from selfplay.growing_games import Row, add, live, loader, rows_of, three_archives


def two_or_more(game: Game) -> bool:
    return len(game.frames) > 1


KINDS: dict[str, dict[str, Any]] = {
    "a pass": {"watch": False},
    "a pass that fits into the reservoir": {"watch": False, "shuffle_frames": 1 << 12},
    "a pass in file order": {"watch": False, "shuffle": False},
    "a watched folder": {"watch": True, "poll_s": 0.05, "num_chunks": 16},
    "heavy games": {"watch": True, "poll_s": 0.05, "hanse": 1, "weights": {"q_weight": 1.0}},
    "kept positions": {
        "watch": True,
        "poll_s": 0.05,
        "positions": 1,
        "position_cache": "1MB",
        "predicates": [two_or_more],
    },
}


@pytest.fixture
def games(tmp_path: Path) -> Path:
    return three_archives(tmp_path / "games")


def taken(run: SelfPlayDataLoader, steps: int) -> list[list[Row]]:
    return [rows_of(run.next()) for _ in range(steps)]


def contents(folder: Path) -> dict[str, str]:
    """Every file of a folder, by what is in it."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@contextmanager
def threads(*works: Any) -> Iterator[None]:
    """Threads that work for as long as the block lasts."""
    over = threading.Event()
    begun = [threading.Thread(target=work, args=(over,)) for work in works]
    for thread in begun:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in begun:
            thread.join()


@pytest.mark.parametrize("kept", ["in a folder", "in memory"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_child_gives_what_its_parent_gives(games: Path, tmp_path: Path, kind: str, kept: str) -> None:
    """Before the first batch, behind it, in the middle and, of a pass, over its end."""
    folder = {"cache_dir": tmp_path / "run"} if kept == "in a folder" else {}
    with loader(games, **KINDS[kind], **folder) as run:
        for before in (0, 1, 1, 5):
            taken(run, before)
            child = in_child(lambda: taken(run, 20))
            assert child() == taken(run, 20)


def test_a_child_goes_on_while_its_parent_does(games: Path, tmp_path: Path) -> None:
    with live(games, tmp_path / "run") as run:
        taken(run, 2)
        children = [in_child(lambda: taken(run, 30)) for _ in range(3)]
        mine = taken(run, 30)
        assert [child() for child in children] == [mine] * 3


@pytest.mark.parametrize("folder", [True, False])
def test_a_child_of_a_child_does_the_same(games: Path, tmp_path: Path, *, folder: bool) -> None:
    how = {"cache_dir": tmp_path / "run" if folder else None}
    with live(games, tmp_path, **how) as run:
        taken(run, 2)

        def work() -> tuple[list[list[Row]], list[list[Row]]]:
            before = taken(run, 3)
            return before + in_child(lambda: taken(run, 6))(), before + taken(run, 6)

        grandchild, child = in_child(work)()
        assert grandchild == child == taken(run, 9)


def test_archives_that_come_after_a_fork_enter_on_both_sides(games: Path, tmp_path: Path) -> None:
    """Those that had left the window before do not come again."""
    with live(games, tmp_path, cache_dir=None, num_chunks=8, shuffle_frames=4) as run:
        taken(run, 20)

        def until_it_comes() -> set[str]:
            names = set[str]()
            while "training-0009.tar" not in names:
                step = run.step
                run.next()
                names |= {origin.source for origin in run.explain(step)}
            return names

        child = in_child(until_it_comes)
        add(games, 9)
        assert until_it_comes() <= {"training-0002.tar", "training-0009.tar"}
        assert child() <= {"training-0002.tar", "training-0009.tar"}


def test_a_child_goes_on_from_a_state_that_its_parent_has_just_loaded(games: Path, tmp_path: Path) -> None:
    with live(games, tmp_path / "run") as run:
        taken(run, 9)
        state = run.state_dict()
        expected = taken(run, 9)
    for steps in (0, 4):
        with live(games, tmp_path / "run") as run:
            run.load_state_dict(state)
            assert taken(run, steps) == expected[:steps]
            child = in_child(partial(taken, run, 9 - steps))
            assert child() == expected[steps:]
            assert taken(run, 9 - steps) == expected[steps:]


def test_a_pass_that_skips_to_its_state_is_skipped_in_a_child_too(games: Path) -> None:
    with loader(games) as run:
        taken(run, 4)
        state = run.state_dict()
        expected = taken(run, 4)
    with loader(games) as run:
        run.load_state_dict(state)
        assert in_child(lambda: taken(run, 4))() == expected == taken(run, 4)


def test_a_child_writes_nothing_and_takes_nothing_away(games: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with live(games, folder, prefetch=1) as run:
        taken(run, 5)
        state = run.state_dict()

        def work() -> tuple[list[str], dict[str, str], dict[str, str]]:
            before = contents(folder)
            for name in ("create", "reopen", "write", "truncate", "rename", "remove", "publish", "make_directory"):
                setattr(disk, name, None)  # in the child
            taken(run, 300)
            said = []
            run.commit(state)
            for call in (run.state_dict, lambda: run.load_state_dict(state), run.reset):
                with pytest.raises(LoaderError) as raised:
                    call()
                said.append(raised.value.message)
            taken(run, 3)
            run.close()
            gc.collect()
            return said, before, contents(folder)

        said, before, after = in_child(work)()
        assert set(said) == {f"the run in {folder} is that of the process that this one was forked from"}
        assert before.keys() == after.keys() >= {str(folder / "admissions.jsonl.lock")}
        with pytest.raises(BusyError):
            live(games, folder).next()
        expected = taken(run, 20)
    with live(games, folder) as again:
        again.load_state_dict(state)
        assert taken(again, 20) == expected


def test_a_child_explains_its_steps_and_those_of_its_parent(games: Path, tmp_path: Path) -> None:
    for folder in (tmp_path / "run", None):
        with live(games, tmp_path, cache_dir=folder) as run:
            taken(run, 4)

            def explained(run: SelfPlayDataLoader = run) -> list[Any]:
                before = [run.explain(step) for step in range(4)]
                taken(run, 4)
                return before + [run.explain(step) for step in range(8)]

            assert in_child(explained)() == explained()


def test_numbers_can_be_asked_for_in_a_child_at_any_time(games: Path, tmp_path: Path) -> None:
    with live(games, tmp_path / "run", predicates=[two_or_more]) as run:
        taken(run, 4)

        def work() -> tuple[dict[str, int], dict[str, Any]]:
            run.enable_profiling()
            for numbers in (run.statistics, run.counters, run.get_profiling_results):
                numbers()
            taken(run, 2)
            return run.losses, run.statistics()

        losses, statistics = in_child(work)()
        assert losses and statistics["stages"]["frame_shuffler"]["counters"]["out"]


def test_a_fork_waits_for_the_step_of_another_thread(games: Path, tmp_path: Path) -> None:
    """So the child finds the run between two steps, whatever threads do."""
    with live(games, tmp_path / "run") as run:
        taken(run, 1)

        def take(over: threading.Event) -> None:
            while not over.is_set():
                run.next()

        def save(over: threading.Event) -> None:
            while not over.is_set():
                run.commit(run.state_dict())

        def look(over: threading.Event) -> None:
            while not over.is_set():
                run.get_profiling_results()

        def work() -> tuple[int, list[list[Row]]]:
            return run.step, taken(run, 3)

        with threads(take, save, look):
            found = [in_child(work)() for _ in range(15)]
    with live(games, tmp_path / "alone") as alone:
        expected = taken(alone, max(step for step, _ in found) + 3)
    assert all(rows == expected[step : step + 3] for step, rows in found)


def test_a_child_that_is_forked_while_another_thread_closes_the_run_is_told_so(games: Path, tmp_path: Path) -> None:
    for _ in range(5):
        run = live(games, tmp_path / "run")
        taken(run, 1)
        closing = threading.Thread(target=run.close)
        closing.start()
        child = in_child(lambda run=run: (run.close(), taken(run, 1)))  # type: ignore[misc]
        closing.join()
        with pytest.raises(ClosedError):
            child()


def test_a_step_that_never_ends_holds_up_no_fork_and_its_child_is_told(
    games: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.stages.lifetime.FORK_S", 0.05)
    inside, over = threading.Event(), threading.Event()
    deliver = SelfPlayRun.delivered

    def slow(run: SelfPlayRun, tensors: Tensors) -> None:
        inside.set()
        over.wait()
        deliver(run, tensors)

    monkeypatch.setattr(SelfPlayRun, "delivered", slow)
    with loader(games) as run:
        other = threading.Thread(target=run.next)
        other.start()
        inside.wait()
        child = in_child(lambda: taken(run, 1))
        with pytest.raises(LoaderError, match="forked while another thread made a step"):
            child()
        over.set()
        other.join()


def test_a_fork_waits_for_no_transform_and_its_child_makes_that_step_itself(games: Path) -> None:
    with loader(games) as run:
        expected = taken(run, 3)
    inside, over, home = threading.Event(), threading.Event(), os.getpid()

    def slow(batch: Any) -> Any:
        if batch.metadata["step"] == 1 and os.getpid() == home:
            inside.set()
            over.wait()
        return batch

    with loader(games, transforms=[slow]) as run:
        assert taken(run, 1) == expected[:1]
        found = list[Any]()
        other = threading.Thread(target=lambda: found.extend(taken(run, 1)))
        other.start()
        inside.wait()
        assert in_child(lambda: taken(run, 2))() == expected[1:]
        over.set()
        other.join()
        assert found == expected[1:2]
        assert taken(run, 1) == expected[2:]


def test_a_child_of_a_rank_that_follows_another_is_told(games: Path, tmp_path: Path) -> None:
    with live(games, tmp_path / "run", world_size=2, rank=0) as run:
        taken(run, 1)
        before = contents(tmp_path / "run")

        def from_the_beginning() -> None:
            run.reset()
            run.next()

        for work in (lambda: taken(run, 1), from_the_beginning):
            with pytest.raises(LoaderError, match="a forked process is none of them"):
                in_child(work)()
        assert before.keys() == contents(tmp_path / "run").keys()


def test_a_child_may_forget_or_close_the_loader_and_its_parent_does_not_notice(games: Path, tmp_path: Path) -> None:
    run = live(games, tmp_path / "run")
    with serve_metrics(run) as server:
        taken(run, 2)

        def forget() -> None:
            nonlocal run
            del run
            gc.collect()

        def close() -> None:
            run.close()
            server.close()

        for work in (forget, close):
            in_child(work)()
        assert [bool(rows) for rows in taken(run, 20)] == [True] * 20
        run.close()
