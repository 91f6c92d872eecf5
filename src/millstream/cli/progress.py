"""Progress of long jobs on stderr: bars where `rich` and a terminal are at hand, else a line now and then.

For machines each line is a JSON object.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millstream.stats import OnProgress, Progress, count, duration, resident_bytes, size

_LINE_EVERY_S = 5.0
_BAR_EVERY_S = 0.1


@contextmanager
def shown_progress(*, quiet: bool = False, machine: bool = False) -> Iterator[OnProgress]:
    """Give a callback that shows the progress it receives until the block ends."""
    display: _Lines = _Quiet() if quiet else _JsonProgress() if machine else _Bars() if _can_draw() else _Lines()
    try:
        yield display
    finally:
        display.close()


class _Lines:
    """At most one line every few seconds, and one at the end of each task."""

    every_s = _LINE_EVERY_S

    def __init__(self) -> None:
        self._task = ""
        self._begun = self._shown = self._reported = 0.0
        self._last: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.task != self._task or (self._last is not None and progress.done < self._last.done):
            self._finish()  # another task, or the same once more
            self.begin(progress)
            self._task, self._begun, self._shown = progress.task, now, now
        self._last, self._reported = progress, now
        if now - self._shown >= self.every_s:
            self._shown = now
            self.show(progress, describe(progress, self.seconds))

    @property
    def seconds(self) -> float:
        """How long the task took until its last report; time after that is not counted."""
        return self._reported - self._begun

    def begin(self, progress: Progress) -> None:
        """Make room for one more task."""

    def show(self, progress: Progress, text: str) -> None:
        """Show the state of a task."""
        print(f"{progress.task}: {text}", file=sys.stderr, flush=True)

    def _finish(self) -> None:
        if self._last is not None:
            self.show(self._last, describe(self._last, self.seconds))
            self._last = None

    def close(self) -> None:
        """Show the last state."""
        self._finish()


class _Quiet(_Lines):
    def show(self, progress: Progress, text: str) -> None:
        """Show nothing."""


class _JsonProgress(_Lines):
    def show(self, progress: Progress, text: str) -> None:
        """Show all numbers as JSON."""
        line = {**dataclasses.asdict(progress), "seconds": round(self.seconds, 3), "memory_bytes": resident_bytes()}
        print(json.dumps(line), file=sys.stderr, flush=True)


class _Bars(_Lines):
    """Bars drawn by rich."""

    every_s = _BAR_EVERY_S

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._rich = RichProgress(
            TextColumn("{task.description:<16}"),
            BarColumn(bar_width=28),
            TextColumn("{task.fields[text]}"),
            console=Console(stderr=True),
        )
        self._rich.start()
        self._bar: Any = None

    def begin(self, progress: Progress) -> None:
        """Add a bar."""
        self._bar = self._rich.add_task(progress.task, total=progress.total, text="")

    def show(self, progress: Progress, text: str) -> None:
        """Move the bar of this task."""
        self._rich.update(self._bar, completed=progress.done, total=progress.total, text=text)

    def close(self) -> None:
        """Draw the last state and give the terminal back."""
        super().close()
        self._rich.stop()


def describe(progress: Progress, seconds: float) -> str:
    """How far, how fast, and when it will be done.

    >>> describe(Progress("prepare", 50_000_000, 200_000_000, "bytes", "12 tokens"), 0.0)
    '25%  50.0 MB  12 tokens'
    >>> describe(Progress("train", 300, 300, "steps"), 10.0)
    '100%  300 steps  30 steps/s  in 10.0 s'
    """
    parts = [] if progress.fraction is None else [f"{progress.fraction:.0%}"]
    parts.append(_amount(progress.done, progress.unit))
    if seconds > 0 and progress.done:
        rate = progress.done / seconds
        parts.append(f"{_amount(rate, progress.unit)}/s")
        if progress.total is not None and progress.done < progress.total:
            left = (progress.total - progress.done) / rate
            clock = time.strftime("%H:%M:%S", time.localtime(time.time() + left))
            parts.append(f"{duration(left)} left, done at {clock}")
        else:
            parts.append(f"in {duration(seconds)}")
    if progress.tokens is not None and seconds > 0:
        parts.append(f"{count(progress.tokens / seconds)} tokens/s")
        parts.append(f"{size(resident_bytes())} of memory")
    return "  ".join(part for part in [*parts, progress.detail] if part)


def _amount(number: float, unit: str) -> str:
    return size(number) if unit == "bytes" else f"{count(number)} {unit}"


def _can_draw() -> bool:
    if not sys.stderr.isatty():
        return False
    try:
        import rich.progress  # noqa: F401
    except ImportError:
        return False
    return True
