"""`millstream watch`: a pipeline at work, stage by stage and queue by queue."""

from __future__ import annotations

import argparse
import importlib
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from millstream.cli.saying import say
from millstream.cli.watch_table import TextTables, tables
from millstream.errors import ClosedError, LoaderError, RecipeError, StageError
from millstream.stages import Pipeline, serve_metrics

DESCRIPTION = """\
Run the pipeline of a recipe and take what comes out of it, or look at one that runs elsewhere on this
machine and serves its numbers. Shows for each stage how busy it is, how fast, what it drops and why, and
for each queue how full it is and how fast it moves. The stage whose bar is full is the one that the others
wait for. Ctrl-C ends it."""
EPILOG = """\
examples:
  millstream watch mill.yaml
  millstream watch mill.yaml --batches 1000 --json | jq '.stages.reader.last.busy'
  millstream watch mill.yaml --serve 9100            for Prometheus, and for others who watch
  millstream watch --metrics 9100                    what runs behind that port
"""
_TIMEOUT_S = 5.0
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
    """Watch until the end, or until somebody has seen enough."""
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
    shown = _JsonLines() if arguments.json else tables()
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


class _JsonLines(TextTables):
    every_s = 1.0

    def show(self, statistics: Any) -> None:
        """One line for all numbers of now."""
        print(json.dumps(statistics), flush=True)


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

    look()  # a wrong address is told at once
    return look


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise RecipeError(f"--import {module}: {error}", hint="is its folder in PYTHONPATH?") from error
