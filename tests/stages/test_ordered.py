"""What threads are asked to do comes back in the order in which it was asked, or fails there; nothing is lost."""

from __future__ import annotations

import gc
import random
import signal
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forks import in_child
from millstream.errors import ClosedError, WaitTimeout
from millstream.stages import Ordered, Threads, in_order


@given(numbers=st.lists(st.integers(0, 9)), threads=st.integers(1, 4), ahead=st.integers(1, 5))
def test_results_come_in_order_and_no_more_than_so_many_are_ahead(numbers: list[int], threads: int, ahead: int) -> None:
    begun = count()
    most = 0

    def square(number: int) -> int:
        next(begun)
        return number * number

    taken: list[int] = []
    asked = iter([(number,) for number in numbers])
    given_out = count()

    def arguments() -> Any:
        nonlocal most
        for each in asked:
            most = max(most, next(given_out) - len(taken))
            yield each

    with Threads(threads) as workers:
        for result in in_order(workers, square, arguments(), ahead=ahead):
            taken.append(result)  # noqa: PERF402 - looked at meanwhile
    assert taken == [number * number for number in numbers]
    assert most <= ahead
    assert next(begun) == len(numbers)


def test_a_failing_call_fails_where_its_result_would_come_and_the_others_are_there() -> None:
    with Threads(2) as threads:
        made = Ordered[float](threads)
        for number in (1, 0, 2):
            made.submit(lambda number: 1 / number, number)
        assert made.take() == 1
        with pytest.raises(ZeroDivisionError):
            made.take()
        assert made.take() == 0.5
        assert not len(made)


def test_a_result_stays_until_it_is_dropped() -> None:
    with Threads(1) as threads:
        made = Ordered[str](threads)
        for letter in "ab":
            made.submit(str, letter)
        assert [made.result(), made.result(1), made.result()] == ["a", "b", "a"]
        assert made.is_ready
        made.drop()
        assert made.take() == "b"


def test_closing_waits_for_the_call_that_is_made_and_cancels_the_others() -> None:
    threads = Threads(1, "calls")
    begun, go = threading.Event(), threading.Event()

    def first() -> int:
        begun.set()
        go.wait()
        return 1

    results = [threads.submit(first), threads.submit(lambda: 2)]
    assert begun.wait(5)
    closer = threading.Thread(target=threads.close)
    closer.start()
    with pytest.raises(CancelledError):
        results[1].result(5)
    go.set()
    closer.join()
    assert results[0].result(0) == 1
    with pytest.raises(ClosedError, match="make no more calls"):
        threads.submit(int)


def test_who_waits_while_it_is_closed_is_told_at_once_whatever_the_call_does() -> None:
    begun, go, told = threading.Event(), threading.Event(), list[ClosedError]()

    def slow() -> None:
        begun.set()
        go.wait()

    with Threads(1) as threads:
        made = Ordered[None](threads, "the slow work")
        made.submit(slow)
        begun.wait()
        with pytest.raises(WaitTimeout, match="a result of the slow work"):
            made.result(timeout_s=0)

        def take() -> None:
            with pytest.raises(ClosedError, match="the slow work was closed") as raised:
                made.take()
            told.append(raised.value)

        waiting = threading.Thread(target=take)
        waiting.start()
        made.close()
        waiting.join(60)
        assert told, "the call is still being made"
        go.set()
        with pytest.raises(ClosedError, match="was closed"):
            made.submit(slow)


def test_ctrl_c_loses_no_call_and_no_result() -> None:
    """At any moment, on the thread that submits and takes."""
    chance, numbers, taken = random.Random(7), count(), [-1]
    with Threads(1) as threads:
        made = Ordered[int](threads)
        while len(taken) < 300:
            timer = threading.Timer(chance.uniform(0, 0.002), signal.raise_signal, (signal.SIGINT,))
            with suppress(KeyboardInterrupt):
                timer.start()
                while True:
                    if len(made) < 4:
                        made.submit(next, numbers)
                    if (result := made.result()) != taken[-1]:  # else it was interrupted before it was dropped
                        taken.append(result)
                    made.drop()
            timer.join()
    assert taken == list(range(-1, len(taken) - 1))


def test_a_call_is_known_when_ctrl_c_comes_just_after_it_was_given_to_a_thread() -> None:
    class Interrupted(Threads):
        def submit(self, call: Any, *arguments: Any) -> Any:
            made = super().submit(call, *arguments)
            signal.raise_signal(signal.SIGINT)
            return made

    with Interrupted(1) as threads:
        made = Ordered[int](threads)
        with pytest.raises(KeyboardInterrupt):
            made.submit(abs, -1)
        assert len(made) == 1
        assert made.take() == 1


def test_a_child_starts_threads_anew_and_is_told_of_what_was_under_way() -> None:
    begun, go = threading.Event(), threading.Event()

    def slow() -> int:
        begun.set()
        go.wait()
        return 1

    with Threads(1) as threads:
        made = Ordered[int](threads, "the slow work")
        made.submit(slow)
        begun.wait()

        def work() -> list[int]:
            for call in (made.take, lambda: made.submit(int)):
                with pytest.raises(ClosedError, match="the slow work was at work when this process was forked"):
                    call()
            made.close()
            with threads:
                return list(in_order(threads, abs, [(-1,), (-2,)], ahead=2))

        assert in_child(work)() == [1, 2]
        go.set()
        assert made.take() == 1


def test_threads_that_are_forgotten_end() -> None:
    threads = Threads(2, "forgotten")
    threads.submit(int).result()
    ours = [each for each in threading.enumerate() if each.name == "forgotten"]
    assert ours
    del threads
    gc.collect()
    for each in ours:
        each.join(60)
        assert not each.is_alive()


@pytest.mark.parametrize(("finish", "said"), [(True, ["first", "second"]), (False, ["first"])])
def test_an_interpreter_that_exits_waits_for_calls(finish: bool, said: list[str]) -> None:
    script = f"""
import threading
from millstream.stages import Threads
threads, begun = Threads(1, finish_on_exit={finish}), threading.Event()
def first():
    begun.set()
    threading.Event().wait(0.3)
    print("first")
threads.submit(first)
threads.submit(print, "second")
begun.wait()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == said


def test_arguments_that_fail_do_so_where_they_are_asked_for() -> None:
    def arguments() -> Any:
        yield (1,)
        raise ValueError("no more")

    with Threads(1) as threads, pytest.raises(ValueError, match="no more"):
        list(in_order(threads, abs, arguments(), ahead=4))
