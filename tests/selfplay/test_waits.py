"""Who waits for games is told what for, can leave at any time, and leaves nothing at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import ClosedError, LoaderError, StageError, WaitWarning
from millstream.loaders import SelfPlayDataLoader
from selfplay.growing_games import LENGTHS, add, live, loader, three_archives


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.stages.wait.WORTH_SAYING_S", 0.5)


@pytest.fixture
def games(tmp_path: Path) -> Path:
    return three_archives(tmp_path / "games")


@contextmanager
def closed_after(run: SelfPlayDataLoader, seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, run.close)
    timer.start()
    with pytest.raises(ClosedError):
        yield
    timer.join()


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("millstream")]


def test_ctrl_c_is_heard_at_once_while_there_is_no_game_and_nothing_is_lost(tmp_path: Path) -> None:
    run = live(tmp_path, tmp_path / "run", shuffle_frames=4)
    sent = list[float]()

    def interrupt() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.5, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run.next()
    assert time.monotonic() - sent[0] < 1
    add(tmp_path, 0)
    assert len(run.next()) == 7
    run.close()


def test_a_loader_that_is_forgotten_while_it_waits_ends_its_threads(tmp_path: Path) -> None:
    run = loader(tmp_path, watch=True)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run.next()
    timer.join()
    assert _threads()
    del run
    assert not _threads()


_FORGETFUL = """
import atexit, sys, threading, time
atexit.register(lambda: print([each.name for each in threading.enumerate() if each.daemon]))  # called last of all
from millstream import SelfPlayDataLoader

def slow(game):
    time.sleep(0.2)
    return True

how = {"batch_size": 4, "shuffle_frames": 4, "framework": "numpy", "threads": 2}
loader = SelfPlayDataLoader(sys.argv[1], predicates=[slow] if sys.argv[2] == "works" else [], **how)
if sys.argv[2] == "waits":
    import os, signal
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
loader.next()
"""


@pytest.mark.parametrize(("what", "code"), [("works", 0), ("waits", -signal.SIGINT)])
def test_a_script_that_ends_without_closing_its_loader_leaves_no_thread_at_work(
    games: Path, tmp_path: Path, what: str, code: int
) -> None:
    """The interpreter would end threads that come back from native code, and that aborts the process."""
    folder = games if what == "works" else tmp_path / "none"
    ended = subprocess.run(
        [sys.executable, "-c", _FORGETFUL, folder, what], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (code, "[]\n"), ended.stderr


@pytest.mark.usefixtures("impatient")
def test_who_waits_is_told_what_is_there(games: Path, tmp_path: Path) -> None:
    missing = loader(tmp_path / "none", watch=True)
    with closed_after(missing, 1), pytest.warns(WaitWarning, match=r"waiting for a batch for . s: .*none is not there"):
        missing.next()
    large = loader(games, watch=True, shuffle_frames=1 << 20, match={"rule50_count": (0, 1000)})
    found = rf"has 3 files; the window has {3 * len(LENGTHS)} games; \d+ of 1048576 positions are in the shuffle buffer"
    with closed_after(large, 1), pytest.warns(WaitWarning, match=found) as warned:
        large.next()
    assert warned[0].filename == __file__


@pytest.mark.usefixtures("impatient")
def test_another_rank_says_that_it_waits_for_rank_0(games: Path, tmp_path: Path) -> None:
    run = live(games, tmp_path / "run", rank=1, world_size=2)
    with closed_after(run, 1), pytest.warns(WaitWarning, match="rank 0 to say which games enter; .*has 3 files"):
        run.next()


@pytest.mark.usefixtures("impatient")
def test_a_rank_with_a_cache_of_its_own_says_where_it_waits_for_rank_0(games: Path, tmp_path: Path) -> None:
    """As on two machines that share no disk, whether the folder is watched or not."""
    with loader(games, cache_dir=tmp_path / "first", rank=0, world_size=2) as first:
        first.next()
        run = loader(games, cache_dir=tmp_path / "second", rank=1, world_size=2)
        said = f"rank 0 to say .*in {tmp_path / 'second'}, the cache_dir that all ranks must share"
        with closed_after(run, 1), pytest.warns(WaitWarning, match=said):
            run.next()


def test_a_rank_of_a_pass_that_never_sees_rank_0_ends_with_an_error(
    games: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.tensors.ranks.Ranks.PATIENCE_S", 0.2)
    how: dict[str, Any] = {"cache_dir": tmp_path / "run", "world_size": 2}
    with loader(games, rank=1, **how) as run:
        with pytest.raises(StageError, match=r"rank 0 has begun no run in .*run after 0\.2 s"):
            run.next()
        with loader(games, rank=0, **how) as first:
            assert len(first.next()) == len(run.next())  # it may come later all the same


@pytest.mark.usefixtures("impatient")
def test_a_filter_that_wants_no_game_is_told_of_and_burns_no_core(games: Path) -> None:
    run = loader(games, watch=True, match={"visits": (1 << 30, None)})
    seen = "a whole pass over them gave not one position; .*left out: .*visits does not match"
    grown = list[float]()

    def look() -> None:
        while _passes(run) < 1024 / (3 * len(LENGTHS)):  # so many are made before anybody can know
            time.sleep(0.01)
        before = _passes(run)
        time.sleep(1)
        grown.append(_passes(run) - before)
        run.close()

    looks = threading.Thread(target=look)
    with pytest.raises(ClosedError), pytest.warns(WaitWarning, match=seen):
        looks.start()
        run.next()
    looks.join()
    assert grown[0] < 20


def _passes(run: SelfPlayDataLoader) -> float:
    stages = run.counters()["stages"]
    return float(stages["chunk_set"]["gauges"]["passes"]) if stages else 0


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"match": {"visits": (1 << 30, None)}}, r"no position to train on; left out: 24 \(visits does not match\)"),
        ({"drop_last": True, "batch_size": 500}, r"only 117 positions, a step takes 500, and drop_last leaves out"),
    ],
)
def test_an_epoch_without_a_batch_says_why(games: Path, how: dict[str, Any], why: str) -> None:
    with loader(games, **how) as run, pytest.raises(LoaderError, match=why):
        run.next()
