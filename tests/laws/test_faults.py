"""What goes wrong around a loader, for every loader: kills, full disks, signals, forks, threads, and closing."""

from __future__ import annotations

import errno
import multiprocessing.util
import os
import pickle
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from forks import forked
from laws.case import Kind, Row, Team, digest
from laws.faults import KINDS, STEPS, case_of, trail_of, train
from laws.raw_files import small_steps
from millstream import ClosedError
from millstream.errors import MillstreamError
from store.crash import FailingDisk

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
every_loader = pytest.mark.parametrize("kind", KINDS, ids=repr)
STUCK_S = 60
"""What takes longer than this hangs."""
FUZZ = "MILLSTREAM_FUZZ" in os.environ
NEVER = 1 << 60
Handler = Callable[[int, FrameType | None], None]
multiprocessing.util.get_temp_dir()  # made now: the folder of this run's tests is gone before its last deeds
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["laws.faults"])


@pytest.fixture(scope="module", autouse=True)
def _small() -> Iterator[None]:
    with small_steps():
        yield


def undisturbed(kind: Kind, place: Path, steps: int = STEPS) -> list[list[Row]]:
    """The rows of each step of a run to which nothing happens."""
    with Team(case_of(kind.name), place) as run:
        return [run.step() for _ in range(steps)]


@every_loader
def test_a_run_that_is_killed_again_and_again_trains_on_the_same_rows(kind: Kind, tmp_path: Path) -> None:
    chance = random.Random(3)
    expected = [digest(rows) for rows in undisturbed(kind, tmp_path / "whole")]
    place = tmp_path / "killed"
    place.mkdir()
    kills = 0
    deadline = time.monotonic() + 4 * STUCK_S
    while not (place / "done").exists():
        assert time.monotonic() < deadline, trail_of(place)
        before = len(trail_of(place))
        process = _context.Process(target=train, args=(kind.name, place))
        process.start()
        wanted = before + chance.choice([1, 2, 3, 5]) if kills < (30 if FUZZ else 2) else STEPS * 99
        while process.exitcode is None and len(trail_of(place)) < wanted:
            time.sleep(0.001)
        time.sleep(chance.choice([0, 0.001, 0.005]))
        if process.exitcode is None and wanted < STEPS * 99:
            process.kill()
            kills += 1
        process.join(STUCK_S)
        assert process.exitcode in (0, -signal.SIGKILL)
    trained = trail_of(place)
    assert kills > 0
    assert {step for step, _ in trained} == set(range(STEPS))
    assert [(step, told) for step, told in trained if expected[step] != told] == []


class RefusingDisk(FailingDisk):
    """A disk that is full at one operation, and not afterwards."""

    def _step(self) -> None:
        self.count += 1
        if self.count == self.limit:
            raise OSError(errno.ENOSPC, "No space left on device")


@every_loader
def test_a_disk_that_is_full_for_a_moment_is_said_and_nothing_is_lost(kind: Kind, tmp_path: Path) -> None:
    """A run continues by itself or, where a thread of it ended with the error, from its last state."""
    expected = undisturbed(kind, tmp_path / "whole", 6)
    rows, operations = steps_on(RefusingDisk(tmp_path / "counted", NEVER), kind)
    assert rows == expected
    limits = range(1, operations + 1)
    for limit in limits if FUZZ else sorted(random.Random(4).sample(limits, min(8, operations))):
        rows, _ = steps_on(RefusingDisk(tmp_path / f"full {limit}", limit), kind)
        assert rows == expected, limit


def steps_on(disk: RefusingDisk, kind: Kind) -> tuple[list[list[Row]], int]:
    """Take steps, with a state after each, whatever the disk says; gives their rows and what was done to the disk."""
    case = case_of(kind.name)
    case.data.make(disk.root)
    rows: list[list[Row]] = []
    with pytest.MonkeyPatch.context() as patch:
        disk.install(patch)
        with _refused_once(lambda: Team(case, disk.root)) as run:
            saved = _refused_once(run.state), 0
            while len(rows) < 6:
                try:
                    rows.append(run.step())
                    state = run.state()
                    run.commit(state)
                    saved = state, run.start
                except MillstreamError as error:
                    _check_full(error)
                    run.load(*saved)
                    del rows[run.loaders[0].step :]
    return rows, disk.count


def _refused_once(act: Callable[[], Any]) -> Any:
    """Do something; if the disk is full, hear that and do it again."""
    try:
        return act()
    except MillstreamError as error:
        _check_full(error)
        return act()


def _check_full(error: MillstreamError) -> None:
    assert "No space left" in str(error), error
    assert error.hint and "free some space" in error.hint and "TokenStoreWriter" not in error.hint, error


@contextmanager
def signals(number: signal.Signals, handler: Handler, after_s: float, *, again: bool = False) -> Iterator[None]:
    """A signal that arrives, or that arrives again and again. (The system's timer is that of our own time limit.)"""
    before, over, main = signal.signal(number, handler), threading.Event(), threading.main_thread().ident
    assert main is not None

    def send() -> None:
        while not over.wait(after_s):
            signal.pthread_kill(main, number)
            if not again:
                return

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()
        signal.signal(number, before)


@every_loader
def test_system_calls_that_signals_interrupt_change_nothing(kind: Kind, tmp_path: Path) -> None:
    expected = undisturbed(kind, tmp_path / "whole")
    heard: list[int] = []
    with signals(signal.SIGUSR1, lambda *_: heard.append(1), 0.0005, again=True):
        for number in count():
            assert undisturbed(kind, tmp_path / f"disturbed {number}") == expected
            if heard:
                break


@every_loader
def test_control_c_at_any_moment_loses_and_doubles_no_row(kind: Kind, tmp_path: Path) -> None:
    """Whatever was interrupted: the next call gives the batch that did not reach the trainer."""
    expected = undisturbed(kind, tmp_path / "whole")
    chance, found, missed = random.Random(1), list[list[Row]](), list[int]()
    with Team(case_of(kind.name), tmp_path / "run") as run:
        (loader,) = run.loaders
        patience_s = 0.0001
        while len(found) < STEPS:
            batch = None
            try:
                with signals(signal.SIGINT, signal.default_int_handler, chance.uniform(0, patience_s)):
                    batch = loader.next()
            except KeyboardInterrupt:
                pass
            if batch is None and loader.step == len(found):
                patience_s *= 1.3  # else what takes longer would never be done
                continue
            patience_s = 0.0001
            assert loader.step == len(found) + 1
            found.append([] if batch is None else run.taken([batch]))
            if batch is None:  # between the end of next() and the assignment: the trainer had it
                missed.append(len(found) - 1)
                run.start += len(expected[len(found) - 1])
    expected = run.data.again(tmp_path / "run", STEPS, expected)
    assert found == [[] if step in missed else rows for step, rows in enumerate(expected)]
    assert len(missed) <= 2


@every_loader
def test_a_forked_child_and_its_parent_both_go_on(kind: Kind, tmp_path: Path) -> None:
    """The child gives the rows that would have come, or says that it cannot; it never hangs."""
    expected = [digest(rows) for rows in undisturbed(kind, tmp_path / "whole")]
    for moment in (0, 1, 5):
        place = tmp_path / str(moment)
        with Team(case_of(kind.name), place) as run:
            before = [digest(run.step()) for _ in range(moment)]
            told = in_child(lambda: [digest(run.step()) for _ in range(3)])
            after = [digest(run.step()) for _ in range(STEPS - moment)]
        assert before + after == expected
        assert told == expected[moment : moment + 3] or isinstance(told, MillstreamError), told


def in_child(act: Callable[[], Any]) -> Any:
    """What something gives in a forked child, or the error that it raises there."""
    reading, writing = os.pipe()
    child = forked()
    if child == 0:
        told: Any = "nothing"
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a handler would wait for what hangs
            signal.alarm(STUCK_S)
            try:
                told = act()
            except MillstreamError as error:
                told = type(error)(str(error))
            except BaseException as error:
                told = repr(error)
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(told, pipe)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    assert os.WIFEXITED(status), f"the child hung or died: {status}"
    return pickle.loads(data)


@every_loader
def test_threads_that_share_a_loader_get_every_step_once(kind: Kind, tmp_path: Path) -> None:
    expected = undisturbed(kind, tmp_path / "whole")
    found: dict[int, Any] = {}
    guard = threading.Lock()
    with Team(case_of(kind.name), tmp_path / "run") as run:
        (loader,) = run.loaders

        def take(_: int) -> None:
            batch = loader.next()
            rows = run.data.rows(batch)
            with guard:
                assert batch.metadata["step"] not in found
                found[batch.metadata["step"]] = rows

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(take, range(STEPS), timeout=STUCK_S))
    start, seen = 0, []
    for step in range(STEPS):
        seen.append(run.data.merged(start, [found[step]]))
        start += len(seen[-1])
    assert seen == expected


@every_loader
def test_closing_ends_every_wait_and_says_so(kind: Kind, tmp_path: Path) -> None:
    """A thread that takes batches as fast as it can hears of it, wherever it is; a second close does nothing."""
    for _ in range(5):
        with Team(case_of(kind.name), tmp_path / "run") as run:
            (loader,) = run.loaders
            begun, ended = threading.Event(), list[BaseException]()

            def take() -> None:
                try:
                    while True:
                        loader.next()  # noqa: B023 - joined below
                        begun.set()  # noqa: B023
                except BaseException as error:
                    ended.append(error)  # noqa: B023
                    begun.set()  # noqa: B023

            taking = threading.Thread(target=take, daemon=True)
            taking.start()
            assert begun.wait(STUCK_S)
            loader.close()
            taking.join(STUCK_S)
            assert not taking.is_alive()
            loader.close()
            with pytest.raises(ClosedError):
                loader.next()
        assert len(ended) == 1 and isinstance(ended[0], MillstreamError), ended
