"""Work that is done in a forked child, and what came of it."""

from __future__ import annotations

import os
import pickle
import signal
import warnings
from collections.abc import Callable
from typing import TypeVar

from millstream.errors import LoaderError

T = TypeVar("T")
HANGS_S = 60


def forked() -> int:
    """Fork. Other libraries in this process warn of their own threads, which the child does not use."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
        warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
        return os.fork()


def in_child(work: Callable[[], T]) -> Callable[[], T]:
    """Begin work in a child; calling what this gives waits for it, and gives or raises what the work did."""
    read, write = os.pipe()
    child = forked()
    if child == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a handler would wait for what hangs
            signal.alarm(HANGS_S)
            with os.fdopen(write, "wb") as file:
                file.write(_answer(work))
        finally:
            os._exit(0)
    os.close(write)

    def result() -> T:
        with os.fdopen(read, "rb") as file:
            said = file.read()
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, "the child hangs"
        did, what = pickle.loads(said)
        if not did:
            raise what
        return what  # type: ignore[no-any-return]

    return result


def _answer(work: Callable[[], object]) -> bytes:
    try:
        return pickle.dumps((True, work()))
    except LoaderError as error:
        return pickle.dumps((False, type(error)(error.message, hint=error.hint)))
    except BaseException as error:
        return pickle.dumps((False, AssertionError(repr(error))))
