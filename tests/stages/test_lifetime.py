"""What ends with its owner, with the interpreter or at Ctrl-C, and what a forked child does: in one place, for all."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable

from forks import in_child
from millstream.stages import ForkLock, HomeProcess, after_fork, close_on_exit, defer_sigint


class Owner:
    """Something that is closed."""

    def __init__(self, note: Callable[[str], object] = print) -> None:
        self._note = note

    def close(self) -> None:
        self._note("its own")


def printed(script: str) -> str:
    """What a script prints until its interpreter is gone."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_an_owner_that_is_collected_is_closed_once() -> None:
    closed: list[str] = []
    owner = Owner(closed.append)
    due = close_on_exit(owner, lambda: closed.append("owner"))
    close_on_exit(owner, owner.close)
    kept = weakref.ref(owner)
    del owner
    gc.collect()
    due.close()
    assert kept() is None, "being registered keeps nothing alive"
    assert closed == ["owner"], "its own methods are gone with it"


def test_what_is_called_off_is_not_closed() -> None:
    closed: list[str] = []
    owner = Owner()
    close_on_exit(owner, lambda: closed.append("owner")).cancel()
    del owner
    assert not closed


def test_an_interpreter_closes_the_newest_owner_first_then_what_works_by_itself_and_waits_for_it() -> None:
    script = """
from millstream.stages import close_on_exit
class Owner:
    def __init__(self, name): self.name = name
    def stop(self): print("stop", self.name)
    def join(self, timeout_s): print("join", self.name, 0 < timeout_s <= 5)
def fails(): raise ValueError("this is reported")
owners = [Owner(name) for name in "abc"]
close_on_exit(owners[0], owners[0].stop, join=owners[0].join)
close_on_exit(owners[1], lambda: print("close b"))
close_on_exit(owners[1], fails)
close_on_exit(owners[2], lambda: print("close c"))
"""
    told = printed(script)
    assert "ValueError: this is reported" in told
    assert [line for line in told.splitlines() if line.startswith(("stop", "join", "close"))] == [
        *("close c", "close b", "stop a", "join a True")
    ]


def test_a_child_closes_what_it_may_and_never_what_is_its_parents() -> None:
    script = """
import os, sys
from millstream.stages import close_on_exit
class Owner: pass
owners = [Owner() for _ in range(4)]
for owner, name in zip(owners, ("parent", "both", "collected", "collected in both")):
    close_on_exit(owner, lambda name=name: print(name, flush=True), in_children="both" in name)
del owner
if child := os.fork():
    os.waitpid(child, 0)
    print("the parent:", flush=True)
else:
    del owners[2:]
    mine = Owner()
    close_on_exit(mine, lambda: print("the child's", flush=True))
"""
    child, parent = printed(script).split("the parent:\n")
    assert child.splitlines() == ["collected in both", "the child's", "both"]
    assert parent.splitlines() == ["collected in both", "collected", "both", "parent"]


def test_a_child_calls_the_methods_of_what_lives_and_one_that_fails_keeps_none_back() -> None:
    called: list[str] = []

    class Forked:
        def __init__(self, name: str) -> None:
            self.name = name

        def forget(self) -> None:
            called.append(self.name)
            if self.name == "fails":
                raise ValueError(self.name)

    objects = [Forked(name) for name in ("a", "gone", "fails", "b")]
    for each in objects:
        after_fork(each.forget)
    del each, objects[1]
    gc.collect()
    assert in_child(lambda: called)() == ["a", "fails", "b"]
    assert not called


def test_a_lock_that_another_thread_has_is_free_in_a_child() -> None:
    lock, home = ForkLock(), HomeProcess()
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    def take() -> bool:
        with lock:
            return home.left

    child = in_child(take)
    over.set()
    thread.join()
    assert child()
    assert not home.left


def test_ctrl_c_waits_and_is_answered_as_it_would_have_been() -> None:
    heard = list[int]()
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        with defer_sigint():
            with defer_sigint():
                signal.raise_signal(signal.SIGINT)
            assert heard == []
        assert heard == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_threads_that_hear_no_ctrl_c_are_left_alone() -> None:
    done = list[bool]()

    def work() -> None:
        with defer_sigint():
            done.append(signal.getsignal(signal.SIGINT) is signal.default_int_handler)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


def test_what_the_garbage_collector_finds_is_closed_without_waiting_for_a_lock_of_its_thread() -> None:
    """It may run in a thread of the owner, which holds the lock that closing needs."""

    class Owner:
        itself: object

    lock, closed = threading.Lock(), threading.Event()

    def close() -> None:
        with lock:
            closed.set()

    owner = Owner()
    owner.itself = owner
    close_on_exit(owner, close)
    del owner

    def collect() -> None:
        with lock:
            gc.collect()
            assert not closed.is_set()

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and closed.wait(60)
