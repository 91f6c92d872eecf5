"""How fast batches are delivered, how far a long job is, and how much memory the process holds.

Library code calls back with progress and never prints.
"""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


class Counts(Protocol):
    """What an engine counts (in nanoseconds where it is time)."""

    batches: int
    fill_ns: int
    room_wait_ns: int
    take_wait_ns: int


@dataclass
class Profile:
    """Measures from `start()` on; before that it only counts."""

    rows: int = 0
    batches: int = 0
    inside_ns: int = 0
    _since: int = field(default_factory=time.perf_counter_ns)
    _base: tuple[int, int, int] = (0, 0, 0)

    def start(self, counts: Counts) -> None:
        """Forget what was measured so far."""
        self.rows = self.batches = self.inside_ns = 0
        self._since = time.perf_counter_ns()
        self._base = (counts.fill_ns, counts.room_wait_ns, counts.take_wait_ns)

    def delivered(self, rows: int, inside_ns: int) -> None:
        """Count a batch; `inside_ns` is how long the trainer was inside `next()`."""
        self.rows += rows
        self.batches += 1
        self.inside_ns += inside_ns

    def results(self, counts: Counts) -> dict[str, Any]:
        """Sum up.

        `wait_fraction` is the share of the time that the trainer spent inside the loader; near 0 the loader keeps up.
        Of `waits`, `trainer_on_batch` is the trainer waiting for a batch that was not ready, `threads_on_trainer` the
        loader's threads waiting because everything was ready.
        """
        elapsed = max(1, time.perf_counter_ns() - self._since)
        fill, room, take = (
            now - base
            for now, base in zip((counts.fill_ns, counts.room_wait_ns, counts.take_wait_ns), self._base, strict=True)
        )
        return {
            "batches": self.batches,
            "samples": self.rows,
            "seconds": elapsed / 1e9,
            "throughput_samples_per_sec": self.rows / (elapsed / 1e9),
            "avg_batch_time_ms": self.inside_ns / max(1, self.batches) / 1e6,
            "wait_fraction": min(1.0, self.inside_ns / elapsed),
            "waits": {
                "trainer_on_batch": take / 1e9,
                "threads_on_trainer": room / 1e9,
                "threads_filling": fill / 1e9,
            },
        }


def as_pipeline(name: str, results: Mapping[str, Any], threads: int) -> dict[str, Any]:
    """Results, with `memory` and `losses`, as the counters of a pipeline of one stage."""
    waits, memory = results["waits"], {f"{owner}_bytes": held for owner, held in results["memory"].items()}
    gauges = {"wait_fraction": results["wait_fraction"], "trainer_wait_s": waits["trainer_on_batch"], **memory}
    if "ready_batches" in results:
        gauges["ready_batches"] = results["ready_batches"]
    stage = {
        "threads": threads,
        "in": results["samples"],
        "out": results["batches"],
        "busy_s": waits["threads_filling"],
        "input_wait_s": 0.0,
        "output_wait_s": waits["threads_on_trainer"],
        "drops": results["losses"],
        "gauges": gauges,
    }
    return {"seconds": results["seconds"], "stages": {name: stage}, "queues": {}}


@dataclass(frozen=True, slots=True)
class Progress:
    """One report: `done` of `total` units of a task; what has come out of it so far is in `detail`, and in `tokens`.

    >>> Progress("prepare", done=50, total=200, unit="bytes").fraction
    0.25
    """

    task: str
    done: int
    total: int | None
    unit: str
    detail: str = ""
    tokens: int | None = None

    @property
    def fraction(self) -> float | None:
        """How much is done, from 0 to 1, if the total is known."""
        return None if self.total is None else self.done / max(self.total, 1)


OnProgress = Callable[[Progress], None]


def resident_bytes() -> int:
    """The memory that this process holds now; where the system does not say, the most it ever held.

    >>> 1 << 20 < resident_bytes() <= peak_bytes() * 2
    True
    """
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return peak_bytes()
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """The most memory that this process ever held."""
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
