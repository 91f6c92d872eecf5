from __future__ import annotations

import gc
import re
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaders.samples import counting_file, counting_loader, follows_its_hint, inputs, take
from millstream import BudgetError, ClosedError, PretrainDataLoader, StoreError, TrainingBatch
from scripts import ran, run_script
from store.samples import write_store

PATIENCE_S = 20.0
"""Longer than anything here takes on a busy machine; a hang is longer still."""


def threads_now() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def eventually(true: Callable[[], bool]) -> bool:
    """Wait for what must come, however busy the machine is."""
    deadline = time.monotonic() + PATIENCE_S
    while not true() and time.monotonic() < deadline:
        time.sleep(0.001)
    return true()


def threads_return_to(before: int) -> bool:
    """The kernel lists a thread for a moment longer than it can be joined."""
    return eventually(lambda: threads_now() == before)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def all_rows(path: Path, **settings: Any) -> list[list[int]]:
    """What an epoch gives when nothing is in the way."""
    with counting_loader(path, **settings) as loader:
        return inputs(loader)


# The budget


def smallest_budget(path: Path, **settings: Any) -> int:
    """Give the budget that the hint of too small a budget names."""
    with counting_loader(path, memory_budget=100, **settings) as loader, pytest.raises(BudgetError) as caught:
        loader.next()
    enough = re.search(r"memory_budget=(\d+)", follows_its_hint(caught.value))
    assert enough is not None
    return int(enough[1])


@pytest.mark.parametrize("documents", ["attend", "isolate", "row"])
def test_a_budget_below_two_batches_is_refused_and_its_hint_works(tmp_path: Path, documents: str) -> None:
    enough = smallest_budget(tmp_path, documents=documents)

    with counting_loader(tmp_path, memory_budget=enough, documents=documents) as loader:
        assert inputs(loader) == all_rows(tmp_path, documents=documents)
        assert loader.get_profiling_results()["memory"]["batches"] <= enough
    with counting_loader(tmp_path, memory_budget=enough - 1, documents=documents) as loader, pytest.raises(BudgetError):
        loader.next()


@pytest.mark.parametrize("threads", [1, 3])
def test_who_keeps_every_batch_gets_an_error_and_goes_on_after_release(tmp_path: Path, threads: int) -> None:
    expected = all_rows(tmp_path)
    with counting_loader(tmp_path, memory_budget=16 * 1024, threads=threads) as loader:
        kept: list[TrainingBatch] = []
        with pytest.raises(BudgetError, match="in use by your code") as caught:
            while True:
                kept.append(loader.next())
        assert "release" in follows_its_hint(caught.value)
        got = inputs(kept)
        with pytest.raises(BudgetError):
            loader.next()
        for batch in kept:
            batch.release()
        while loader.epoch == 0:
            batch = loader.next()
            got += inputs([batch])
            batch.release()

    assert got == expected


@pytest.mark.parametrize("kept_batches", [1, 3])
def test_a_budget_error_means_that_every_buffer_is_in_the_users_hands(tmp_path: Path, kept_batches: int) -> None:
    with counting_loader(tmp_path, tokens=8001) as loader:
        buffer_bytes = buffer_of(loader.next())
    budget = smallest_budget(tmp_path, tokens=8001, threads=4) + (kept_batches - 1) * buffer_bytes
    with counting_loader(tmp_path, tokens=8001, memory_budget=budget, threads=4) as loader:
        window: deque[TrainingBatch] = deque()
        for step in range(200):
            window.append(loader.next())
            assert window[-1].metadata["step"] == step
            if len(window) > kept_batches:
                window.popleft().release()


def buffer_of(batch: TrainingBatch) -> int:
    """Bytes of a batch's buffer."""
    assert batch._native is not None
    return batch._native.nbytes


def test_batches_of_every_size_and_place_share_one_budget(tmp_path: Path) -> None:
    budget = 3 * smallest_budget(tmp_path, batch_size=8, threads=2)
    with counting_loader(tmp_path, memory_budget=budget, threads=2) as loader:
        kept: list[TrainingBatch] = []
        refused = 0
        start = loader.state_dict()
        for turn in range(120):
            try:
                kept.append(loader.get_batch([4, 2, 8, 1][turn % 4]))
            except BudgetError:
                refused += 1
                kept = kept[2:]
            assert sum(map(buffer_of, kept)) <= budget
            if turn % 3 == 0:
                loader.seek(turn // 5)
            if turn % 10 == 0:
                loader.load_state_dict(start)
        assert refused > 10
        kept.clear()
        assert len(loader.get_batch(8).input_ids) == 8


def test_resident_memory_stays_within_the_budget_whatever_is_held(tmp_path: Path) -> None:
    code = """
        import sys
        from millstream import BudgetError, PretrainDataLoader

        def anonymous():
            with open("/proc/self/status") as file:
                return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))

        budget = 24 << 20
        loader = PretrainDataLoader(sys.argv[1], chunk_size=1024, batch_size=64, dtype="uint16", framework="numpy",
                                    memory_budget=budget, threads=2)
        loader.next()
        loader.seek(0)
        before, kept, most, refused = anonymous(), [], 0, 0
        for turn in range(60):
            try:
                kept.append(loader.get_batch(48 + turn % 7))
            except BudgetError:
                refused += 1
                kept = kept[len(kept) // 2:]
            if turn % 4 == 0:
                loader.seek(turn // 2)
            most = max(most, anonymous() - before)
        print(most / budget, refused)
    """
    growth, refused = map(float, ran(code, counting_file(tmp_path / "c.bin", 1 << 20))[0].split())

    assert growth < 1.1
    assert refused > 1


def test_a_refused_batch_changes_nothing(tmp_path: Path) -> None:
    enough = smallest_budget(tmp_path)
    with counting_loader(tmp_path, memory_budget=enough) as loader:
        first = loader.next()
        state = loader.state_dict()
        with pytest.raises(BudgetError):
            loader.get_batch(100)
        assert loader.state_dict() == state
        second = loader.next()
        with pytest.raises(BudgetError):
            loader.get_batch(3)
        assert len(loader.state_dict()["phases"]) == 1
        got = inputs([first, second])
        for batch in (first, second):
            batch.release()
        del first, second, batch
        assert got + inputs(loader) == all_rows(tmp_path)


def test_without_a_budget_all_batches_of_an_epoch_may_be_held(tmp_path: Path) -> None:
    with counting_loader(tmp_path, tokens=5001, batch_size=2) as loader:
        kept = list(loader)

    assert inputs(kept) == all_rows(tmp_path, tokens=5001)


def test_buffers_return_to_the_pool_and_memory_stays_flat(tmp_path: Path) -> None:
    with counting_loader(tmp_path, tokens=60_001, chunk_size=100, batch_size=8, prefetch=16) as loader:
        for _ in range(500):
            loader.next()
        resident = resident_bytes()
        for _ in range(10_000):
            loader.next()

        assert loader._filler.engine.used_bytes < (16 + 4) * 14_000  # a batch of 2 columns of 8 x 100 ids, and a little
        assert resident_bytes() - resident < 8 << 20


def test_a_view_of_a_batch_keeps_its_buffer_from_being_reused(tmp_path: Path) -> None:
    with counting_loader(tmp_path, shuffle=False) as loader:
        row = loader.next().input_ids[2]
        before = row.copy()
        for _ in range(200):
            loader.next()

    assert row.tolist() == before.tolist() == list(range(20, 30))


# Ends


def test_batches_stay_valid_after_close_and_after_the_loader_is_garbage(tmp_path: Path) -> None:
    loader = counting_loader(tmp_path, shuffle=False)
    first, second = loader.next(), loader.next()
    loader.close()
    del loader
    gc.collect()

    assert inputs([first, second]) == [list(range(i, i + 10)) for i in range(0, 80, 10)]
    assert first.validate() is first


@pytest.mark.parametrize("situation", ["full", "never asked", "starved", "at work"])
def test_close_leaves_no_thread_behind(tmp_path: Path, situation: str) -> None:
    before = threads_now()
    budget = 16_384 if situation == "starved" else None
    loader = counting_loader(tmp_path, threads=3, memory_budget=budget)
    kept = [] if situation == "never asked" else [loader.next()]
    if situation == "full":
        assert eventually(lambda: loader._filler.engine.ready >= 4)
    if situation == "starved":
        with pytest.raises(BudgetError):
            while True:
                kept.append(loader.next())

    start = time.monotonic()
    loader.close()
    assert time.monotonic() - start < 5  # a second is promised, to those who have a processor for themselves
    assert threads_return_to(before)
    loader.close()


def test_a_forgotten_loader_takes_its_threads_with_it(tmp_path: Path) -> None:
    before = threads_now()
    loader = counting_loader(tmp_path, threads=2)
    loader.next()
    assert threads_now() == before + 2
    del loader
    gc.collect()

    assert threads_return_to(before)


def test_a_closed_loader_says_so_in_every_call_that_needs_batches(tmp_path: Path) -> None:
    with counting_loader(tmp_path) as loader:
        threads = threads_now()
        loader.next()

    calls = (loader.next, lambda: loader.get_batch(2), lambda: next(iter(loader)), lambda: loader.prefetch(2))
    for call in calls:
        with pytest.raises(ClosedError) as caught:
            call()
        assert "load_state_dict" in follows_its_hint(caught.value)
    assert threads_return_to(threads)


def test_closing_in_the_middle_of_a_loop_is_no_silent_end_of_the_epoch(tmp_path: Path) -> None:
    loader = counting_loader(tmp_path)
    with pytest.raises(ClosedError):
        for _ in loader:
            loader.close()


def test_with_closes_after_an_error_too(tmp_path: Path) -> None:
    before = threads_now()
    with pytest.raises(ZeroDivisionError), counting_loader(tmp_path) as loader:
        loader.next()
        raise ZeroDivisionError

    assert threads_return_to(before)


def slow_loader(path: Path, rows: int = 400_000) -> PretrainDataLoader:
    """A loader that is nearly always waited for: very many rows of one token."""
    with (path / "zeros.bin").open("wb") as file:
        file.truncate(2 * (rows + 1))
    return PretrainDataLoader(
        path / "zeros.bin", chunk_size=1, batch_size=rows, dtype="uint16", framework="numpy", threads=1, prefetch=1
    )


def test_close_from_another_thread_ends_a_waiting_next(tmp_path: Path) -> None:
    loader = slow_loader(tmp_path)
    outcome: list[BaseException] = []

    def wait() -> None:
        try:
            while True:
                loader.next()
        except ClosedError as error:
            outcome.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert eventually(lambda: loader._filler.engine.ring is not None)
    loader.close()
    waiting.join(PATIENCE_S)

    assert not waiting.is_alive()
    assert [type(result) for result in outcome] == [ClosedError]


SLOW_NEXT = """
    import sys
    from millstream import PretrainDataLoader

    loader = PretrainDataLoader(sys.argv[1], chunk_size=1, batch_size=1_000_000, dtype="uint16", framework="numpy",
                                threads=1, prefetch=1)
    print("asking", flush=True)
    while True:
        loader.next()
"""


def test_ctrl_c_ends_a_waiting_next_promptly(tmp_path: Path) -> None:
    with (tmp_path / "zeros.bin").open("wb") as file:
        file.truncate(2 * 1_000_001)
    command = [sys.executable, "-c", textwrap.dedent(SLOW_NEXT), str(tmp_path / "zeros.bin")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asking\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE_S)

    assert output == ""
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode == -signal.SIGINT


def test_a_batch_interrupted_by_ctrl_c_is_not_lost(tmp_path: Path) -> None:
    expected = all_rows(tmp_path)
    got: list[list[int]] = []

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    gc.disable()  # the signal may not be heard inside somebody's collector
    try:
        with counting_loader(tmp_path) as loader:
            while loader.epoch == 0:
                before = loader.step
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.00002)
                    batch = loader.next()
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    if loader.step > before:  # it came between the loader's return and our assignment
                        loader.seek(before)
                    batch = loader.next()
                assert batch.metadata["step"] == before
                got += inputs([batch])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        gc.enable()

    assert got == expected


def test_a_program_that_never_closes_ends_cleanly(tmp_path: Path) -> None:
    done = run_script(
        """
        import sys
        from millstream import PretrainDataLoader

        loader = PretrainDataLoader(sys.argv[1], chunk_size=10, dtype="uint16", framework="numpy", threads=2)
        batch = loader.next()
        """,
        counting_file(tmp_path / "c.bin"),
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# Several threads


def test_python_threads_that_share_a_loader_get_each_batch_exactly_once(tmp_path: Path) -> None:
    expected = all_rows(tmp_path, tokens=8001)
    got: dict[int, list[list[int]]] = {}
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with counting_loader(tmp_path, tokens=8001, threads=2) as loader:

            def work() -> None:
                for _ in range(50):
                    batch = loader.next()
                    got[batch.metadata["step"]] = batch.input_ids.tolist()

            workers = [threading.Thread(target=work) for _ in range(4)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join(PATIENCE_S)
            assert loader.step == 200
    finally:
        sys.setswitchinterval(switch)

    assert sorted(got) == list(range(200))
    assert [row for step in range(200) for row in got[step]] == expected


# Forks


FORK = """
    import os, sys
    from millstream import PretrainDataLoader

    loader = PretrainDataLoader(sys.argv[1], chunk_size=10, batch_size=4, dtype="uint16", framework="numpy", threads=3)
    kept = [loader.next() for _ in range(3)]

    def rows(count):
        return [row for _ in range(count) for row in loader.next().input_ids.tolist()]

    child = os.fork()
    if child == 0:
        assert kept[0].validate()
        kept.clear()
        print(rows(5), flush=True)
        loader.close()
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    print(rows(5), flush=True)
"""


def test_a_forked_child_goes_on_with_the_right_rows_and_so_does_its_parent(tmp_path: Path) -> None:
    child, parent = ran(FORK, counting_file(tmp_path / "c.bin"))

    with counting_loader(tmp_path) as loader:
        take(loader, 3)
        assert child == parent == str(take(loader, 5))


def test_a_forked_child_may_end_without_touching_the_loader(tmp_path: Path) -> None:
    code = """
        import os, sys
        from millstream import PretrainDataLoader

        loader = PretrainDataLoader(sys.argv[1], chunk_size=10, dtype="uint16", framework="numpy", threads=2)
        batch = loader.next()
        for leave in (sys.exit, os._exit):
            if (child := os.fork()) == 0:
                leave(0)
            assert os.waitpid(child, 0)[1] == 0
        loader.next()
        print("done")
    """
    assert ran(code, counting_file(tmp_path / "c.bin")) == ["done"]


def test_a_fork_while_another_thread_is_inside_next_does_not_hang(tmp_path: Path) -> None:
    code = """
        import os, sys, threading
        from millstream import PretrainDataLoader

        loader = PretrainDataLoader(sys.argv[1], chunk_size=10, dtype="uint16", framework="numpy", threads=2)
        stop = threading.Event()

        def work():
            while not stop.is_set():
                loader.next()

        worker = threading.Thread(target=work)
        worker.start()
        for _ in range(30):
            if (child := os.fork()) == 0:
                assert loader.next().metadata["rows"] > 0
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        worker.join()
        print("done")
    """
    assert ran(code, counting_file(tmp_path / "c.bin")) == ["done"]


def test_forked_worker_processes_may_use_the_parents_loader(tmp_path: Path) -> None:
    code = """
        import multiprocessing, sys
        from millstream import PretrainDataLoader

        loader = PretrainDataLoader(sys.argv[1], chunk_size=10, batch_size=4, dtype="uint16", framework="numpy")
        loader.next()

        def work(queue):
            queue.put(loader.next().input_ids.tolist())

        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        workers = [context.Process(target=work, args=(queue,)) for _ in range(2)]
        for worker in workers:
            worker.start()
        answers = [queue.get(timeout=30) for _ in workers]
        for worker in workers:
            worker.join(30)
        assert [worker.exitcode for worker in workers] == [0, 0]
        assert answers[0] == answers[1] == loader.next().input_ids.tolist()
        print("done")
    """
    assert ran(code, counting_file(tmp_path / "c.bin")) == ["done"]


# Files that change under a running loader


TRUNCATED = """
    import faulthandler, os, sys
    from millstream import PretrainDataLoader, StoreError

    path, faults, documents = sys.argv[1:]
    if faults == "before":
        faulthandler.enable()
    loader = PretrainDataLoader(path, chunk_size=1000, batch_size=4, framework="numpy", documents=documents,
                                threads=2, prefetch=2)
    loader.next()
    if faults == "after":
        faulthandler.enable()
        for _ in range(8):
            loader.next()  # what was being filled meanwhile is done
    shrinking = os.path.join(path, "00000.bin")
    os.truncate(shrinking, 64)
    try:
        for _ in range(2 * loader.get_num_batches()):
            loader.next()
    except StoreError as error:
        print(type(error).__name__, error)
    try:
        loader.next()
    except StoreError:
        print("again")
    loader.close()
"""


@pytest.mark.parametrize("faults", ["before", "after", "never"])
@pytest.mark.parametrize("documents", ["attend", "isolate", "row"])
def test_a_store_that_is_cut_under_a_running_loader_is_an_error_and_no_crash(
    tmp_path: Path, faults: str, documents: str
) -> None:
    texts = [np.arange(i, i + 997) for i in range(400)]
    path = write_store(tmp_path / "store", texts)

    first, *_, last = ran(TRUNCATED, path, faults, documents)

    assert first.startswith("StoreError")
    assert "00000.bin" in first
    assert last == "again"


def test_a_bus_error_that_is_not_ours_still_ends_the_process(tmp_path: Path) -> None:
    code = """
        import faulthandler, os, signal, sys
        from millstream import PretrainDataLoader

        def use():
            with PretrainDataLoader(sys.argv[1], chunk_size=10, dtype="uint16", framework="numpy") as loader:
                loader.next()

        use()
        if sys.argv[2] == "faulthandler":
            faulthandler.enable()
            use()
        os.kill(os.getpid(), signal.SIGBUS)
        print("survived")
    """
    for faults in ("plain", "faulthandler"):
        done = run_script(code, counting_file(tmp_path / "c.bin"), faults)
        assert (done.returncode, done.stdout) == (-signal.SIGBUS, "")
        assert done.stderr.count("Fatal Python error") == (faults == "faulthandler")


def test_a_store_that_is_deleted_under_a_running_loader_is_read_to_the_end(tmp_path: Path) -> None:
    expected = all_rows(tmp_path)
    with counting_loader(tmp_path) as loader:
        got = take(loader, 1)
        (tmp_path / "counting.bin").unlink()

        assert got + inputs(loader) == expected


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("batch_size", [2, 64])
def test_a_shard_that_vanished_is_an_error_in_its_turn(tmp_path: Path, threads: int, batch_size: int) -> None:
    path = write_store(tmp_path / "store", [np.full(60, number) for number in range(300)], shard_tokens=60)
    settings: dict[str, Any] = {"chunk_size": 20, "batch_size": batch_size, "framework": "numpy", "threads": threads}
    with PretrainDataLoader(path, **settings) as loader:
        rows = [loader.explain(step) for step in range(loader.get_num_batches())]
        # Tokens of a row's documents, and of the next one, to which its last target may belong.
        touched = [{span.document + extra for row in step for span in row.spans for extra in (0, 1)} for step in rows]
        failing, lost = next(
            (step, documents)
            for step in range(3, len(rows))
            if (documents := {row.spans[0].document for row in rows[step][:1]} - set().union(*touched[:step]))
        )
        for document in lost:
            (path / f"{document:05}.bin").unlink()
        for step in range(failing):
            assert loader.next().metadata["step"] == step
        for _ in range(2):
            with pytest.raises(StoreError, match=f"{min(lost):05}.bin") as caught:
                loader.next()
            assert "verify" in follows_its_hint(caught.value)
        assert loader.step == failing


def test_after_a_damaged_shard_is_restored_the_run_goes_on(tmp_path: Path) -> None:
    path = write_store(tmp_path / "store", [np.full(100, number) for number in range(8)], shard_tokens=100)
    with PretrainDataLoader(path, chunk_size=50, batch_size=2, framework="numpy") as loader:
        expected = inputs(loader)
    with PretrainDataLoader(path, chunk_size=50, batch_size=2, framework="numpy") as loader:
        (path / "00003.bin").rename(path / "away")
        got = []
        with pytest.raises(StoreError):
            while True:
                got += inputs([loader.next()])
        (path / "away").rename(path / "00003.bin")

        assert got + inputs(loader) == expected


def test_an_unreadable_shard_names_the_reason(tmp_path: Path) -> None:
    path = write_store(tmp_path / "store", [np.arange(200)])
    with PretrainDataLoader(path, chunk_size=50, framework="numpy") as loader:
        (path / "00000.bin").unlink()
        (path / "00000.bin").symlink_to("00000.bin")
        with pytest.raises(StoreError, match="symbolic links"):
            loader.next()
