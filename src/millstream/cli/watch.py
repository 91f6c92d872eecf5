"""`millstream watch`: a pipeline at work, stage by stage and queue by queue."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from millstream.cli.stderr import say
from millstream.errors import ClosedError, LoaderError, RecipeError, StageError
from millstream.stages import Pipeline, filling, serve_metrics
from millstream.stats import count, duration, visible

DESCRIPTION = """\
Run the pipeline of a recipe and take what comes out of it, or look at one that runs elsewhere on this
machine and serves its numbers. Shows for each stage how busy it is, how fast, what it drops and why, and
for each queue how full it is and how fast it moves. The stage whose bar is full is the one that the others
wait for. Ctrl-C ends it."""
EPILOG = """\
examples:
  millstream watch mill.yaml
  millstream watch mill.yaml --batches 1000 --json | jq '.stages.reader.last.busy'
  millstream watch mill.yaml --serve 9100            for Prometheus, and for `watch --metrics`
  millstream watch --metrics 9100                    the pipeline that serves that port
"""
_TIMEOUT_S = 5.0
_CELLS = 10
Statistics = Mapping[str, Any]
Look = Callable[[], dict[str, Any]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("recipe", nargs="?", help="a YAML or TOML file with the stages of a pipeline")
    parser.add_argument("--metrics", metavar="URL|PORT", help="look at a running pipeline instead")
    parser.add_argument("--serve", type=int, metavar="PORT", help="serve the numbers on 127.0.0.1 (0: any free port)")
    parser.add_argument(
        "--import",
        dest="modules",
        action="append",
        default=[],
        metavar="MODULE",
        help="a Python module of yours that registers stages",
    )
    parser.add_argument("--for", dest="seconds", type=float, metavar="SECONDS", help="end after so many seconds")
    parser.add_argument("--batches", type=int, metavar="N", help="end after so many items of the pipeline")
    parser.add_argument("--every", type=float, metavar="SECONDS", help="how often to show the numbers")
    parser.add_argument("--json", action="store_true", help="print the numbers as lines of JSON")


def run(arguments: argparse.Namespace) -> int:
    """Watch until the pipeline ends, or until one of the limits or Ctrl-C."""
    if (arguments.recipe is None) is (arguments.metrics is None):
        raise LoaderError("watch needs a recipe, or --metrics", hint="millstream watch mill.yaml")
    for flag, value in (("--for", arguments.seconds), ("--every", arguments.every), ("--batches", arguments.batches)):
        if value is not None and not value > 0:
            raise LoaderError(f"{flag} {value} is not possible", hint="pass a number above 0, or leave it out")
    if arguments.metrics is not None:
        _watch(arguments, _remote(arguments.metrics), threading.Event())
        return 0
    for module in arguments.modules:
        _import(module)
    with Pipeline.from_recipe(arguments.recipe) as pipeline, _served(pipeline, arguments.serve):
        drain = _Drain(pipeline, arguments.batches)
        _watch(arguments, pipeline.statistics, drain.done)
        if drain.error is not None:
            raise drain.error
    return 0


class _Drain:
    """Takes what comes out of a pipeline, on a thread for each output, and counts it."""

    def __init__(self, pipeline: Pipeline, most: int | None) -> None:
        self.done = threading.Event()
        self.error: StageError | None = None
        self._pipeline, self._most, self._taken = pipeline, most, 0
        self._lock = threading.Lock()
        self._open = max(1, len(pipeline.outputs))
        for name in pipeline.outputs or (None,):
            threading.Thread(target=self._take, args=(name,), name="millstream-watch", daemon=True).start()

    def _take(self, output: str | None) -> None:
        try:
            if output is None:
                self._pipeline.join()
            while output is not None and not self.done.is_set():
                self._pipeline.get(output)
                self._count()
        except StageError as error:
            self.error = error
            self.done.set()
        except ClosedError:  # the regular end, too
            pass
        finally:
            with self._lock:
                self._open -= 1
                if self._open == 0:
                    self.done.set()

    def _count(self) -> None:
        with self._lock:
            self._taken += 1
            if self._most is not None and self._taken >= self._most:
                self.done.set()


def _watch(arguments: argparse.Namespace, look: Look, done: threading.Event) -> None:
    """Show the numbers now and then, and a last time at the end, whatever ends it."""
    shown = _StatisticsLines() if arguments.json else tables()
    every_s = arguments.every or shown.every_s
    end = None if arguments.seconds is None else time.monotonic() + arguments.seconds
    try:
        while not done.is_set():
            left = every_s if end is None else min(every_s, end - time.monotonic())
            if left <= 0 or done.wait(left) or (end is not None and time.monotonic() >= end):
                break
            shown.show(look())
    finally:
        try:
            with suppress(LoaderError):  # a pipeline elsewhere may have ended
                shown.show(look())
        finally:
            shown.close()


@contextmanager
def _served(pipeline: Pipeline, port: int | None) -> Iterator[None]:
    if port is None:
        yield
        return
    with serve_metrics(pipeline, port) as server:
        say("note", f"metrics: {server.url}")
        yield


def _remote(place: str) -> Look:
    """The numbers of a pipeline that serves them."""
    url = f"http://127.0.0.1:{place}/metrics" if place.isdigit() else place
    if not url.startswith(("http://", "https://")):
        raise LoaderError(f"--metrics {place} is no address", hint="a port, or http://127.0.0.1:9100/metrics")
    url = url.removesuffix("/").removesuffix("/metrics") + "/statistics"

    def look() -> dict[str, Any]:
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
                numbers: dict[str, Any] = json.load(answer)
            return {name: numbers[name] for name in ("seconds", "window_s", "stages", "queues")}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LoaderError(
                f"{url} gives no numbers: {error}", hint="start the pipeline with serve_metrics(pipeline, port)"
            ) from None

    look()  # a wrong address fails at once
    return look


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise RecipeError(f"--import {module}: {error}", hint="is its folder in PYTHONPATH?") from error


class Table(NamedTuple):
    """Words in rows; the first row names the columns."""

    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in self.rows
        )


def stage_table(statistics: Statistics) -> Table:
    """One row per stage: how busy it is, how fast, what it drops, what else it says."""
    rows = [("stage", "busy", "in/s", "out/s", "dropped", "gauges")]
    for name, stage in statistics["stages"].items():
        last, counters = stage["last"], stage["counters"]
        drops = ", ".join(f"{reason} {count(number)}" for reason, number in sorted(counters["drops"].items()))
        gauges = ", ".join(_gauges(counters["gauges"]))
        words = (name, bar(last["busy"]), rate(last["in_per_s"]), rate(last["out_per_s"]), drops, gauges)
        rows.append(tuple(map(visible, words)))  # type: ignore[arg-type]
    return Table(rows)


def queue_table(statistics: Statistics) -> Table:
    """One row per queue: how full it is, how fast items leave it, how many did, how many were dropped."""
    rows = [("queue", "fill", "items/s", "items", "dropped")]
    for name, queue in statistics["queues"].items():
        last, counters = queue["last"], queue["counters"]
        dropped = count(counters["dropped"]) if counters["dropped"] else ""
        full = f"{bar(last['fill'])} of {counters['capacity']}"
        rows.append((visible(name), full, rate(last["got_per_s"]), count(counters["got"]), dropped))
    return Table(rows)


def headline(statistics: Statistics) -> str:
    """How long it has run, and below that which stages have to be filled before anything comes."""
    gauges = {visible(name): stage["counters"]["gauges"] for name, stage in statistics["stages"].items()}
    period = f"after {duration(statistics['seconds'])}, over the last {duration(statistics['window_s'])}"
    return "\n".join([period, *filling(gauges)])


def bar(share: float) -> str:
    """A share as a bar and in percent.

    >>> bar(0.42)
    '████░░░░░░  42 %'
    """
    share = min(1.0, max(0.0, share))
    filled = round(share * _CELLS)
    return f"{'█' * filled}{'░' * (_CELLS - filled)} {share:>4.0%}".replace("%", " %")


def rate(per_s: float) -> str:
    """A rate, with more places the slower it is.

    >>> rate(0), rate(0.0123), rate(3.14), rate(12345.6)
    ('0', '0.0123', '3.14', '12,346')
    """
    return count(per_s) if per_s >= 100 or per_s == 0 else f"{per_s:.3g}"


def _gauges(gauges: Mapping[str, float]) -> Iterator[str]:
    """Each with its number; what has a capacity, with how full it is.

    >>> list(_gauges({"frames": 56000, "capacity": 131072, "open": 2}))
    ['frames 43 % of 131,072', 'open 2']
    """
    full_of = gauges.get("capacity")
    for place, (name, number) in enumerate(gauges.items()):
        if full_of and place == 0:
            yield f"{name} {number / full_of:.0%} of {count(full_of)}".replace("%", " %")
        elif name != "capacity":
            yield f"{name} {_gauge(number)}"


def _gauge(number: float) -> str:
    return count(number) if abs(number) >= 100 else f"{number:g}"


class TextTables:
    """Writes the tables one below the other."""

    every_s = 5.0

    def show(self, statistics: Statistics) -> None:
        """Write the numbers of now."""
        print(f"{headline(statistics)}\n{stage_table(statistics)}\n\n{queue_table(statistics)}\n", flush=True)

    def close(self) -> None:
        """Nothing to give back."""


class LiveTables(TextTables):
    """Draws the tables over what was drawn before."""

    every_s = 0.5

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(highlight=False), auto_refresh=False)
        self._live.start()

    def show(self, statistics: Statistics) -> None:
        """Draw the numbers of now."""
        from rich.console import Group
        from rich.table import Table as RichTable
        from rich.text import Text

        def drawn(table: Table) -> RichTable:
            made = RichTable(box=None, pad_edge=False)
            for name in table.rows[0]:
                made.add_column(name, justify="right" if name.endswith("s") and "/" in name else "left")
            for row in table.rows[1:]:
                made.add_row(*(Text(cell, style=_colour(cell)) for cell in row))
            return made

        stages, queues = stage_table(statistics), queue_table(statistics)
        self._live.update(Group(Text(headline(statistics), "dim"), drawn(stages), Text(), drawn(queues)), refresh=True)

    def close(self) -> None:
        """Give the terminal back."""
        self._live.stop()


class _StatisticsLines(TextTables):
    every_s = 1.0

    def show(self, statistics: Any) -> None:
        """One line for all numbers of now."""
        print(json.dumps(statistics), flush=True)


def _colour(cell: str) -> str:
    """Bars are green; a full one is what to look at."""
    return "" if not cell.startswith(("█", "░")) else "yellow" if cell.startswith("█" * 9) else "green"


def tables() -> TextTables:
    """Drawn over if stdout is a terminal and `rich` is there, else written."""
    if not sys.stdout.isatty():
        return TextTables()
    try:
        return LiveTables()
    except ImportError:
        return TextTables()
