"""CPU time and private memory of this process and all its children, alive or reaped."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

SCHEDULED = 2  # CPUCLOCK_SCHED of the kernel: the precise clock of a whole process


def children(pid: int) -> list[int]:
    """Give all living descendants of `pid`."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            direct = [int(word) for word in task.read_text().split()]
        except OSError:  # the thread ended meanwhile
            continue
        for child in direct:
            found += [child, *children(child)]
    return found


def cpu_seconds() -> float:
    """Give user and system seconds of this process, its reaped children and its living ones."""
    times = os.times()
    total = time.process_time() + times.children_user + times.children_system
    for pid in children(os.getpid()):
        try:
            total += time.clock_gettime((~pid << 3) | SCHEDULED)  # that process's own clock, in nanoseconds
        except OSError:
            continue
    return total


def end_children() -> None:
    """Kill the worker processes of a loader that was left in mid-epoch.

    The resource tracker is spared: it ends by itself and removes the shared memory others leave behind.
    """
    for pid in children(os.getpid()):
        try:
            if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def private_bytes() -> int:
    """Give anonymous and shared memory of the process and its children, each page counted once.

    Pages of files, and so the page cache, are not in it. A page shared by n processes counts 1/n in each.
    """
    total = 0
    for pid in (os.getpid(), *children(os.getpid())):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                total += 1024 * int(line.split()[1])
    return total


def best_cpu_seconds(work: Callable[[], object], rounds: int) -> float:
    """CPU time of some work, the best of some rounds: other work on the machine only adds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best
