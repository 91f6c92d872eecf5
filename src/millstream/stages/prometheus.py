"""Counters of a pipeline in Prometheus' text format, and a small server for them on this machine.

# HELP millstream_stage_items_in_total Items that a stage took.
# TYPE millstream_stage_items_in_total counter
millstream_stage_items_in_total{stage="reader"} 1024
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Protocol

from millstream.errors import LoaderError
from millstream.stages.lifetime import HomeProcess

logger = logging.getLogger("millstream.stages")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "millstream"
PATIENCE_S = 5.0
"""How long a client may keep silent in the middle of a request."""
HANG_UP_S = 1.0
"""How long closing waits for answers that are being made."""


class _Metric(NamedTuple):
    """A metric, and the name of the counter that it shows."""

    name: str
    kind: str
    help: str
    counter: str


_STAGE = (
    _Metric("stage_threads", "gauge", "Threads of a stage.", "threads"),
    _Metric("stage_items_in_total", "counter", "Items that a stage took.", "in"),
    _Metric("stage_items_out_total", "counter", "Items that a stage gave.", "out"),
    _Metric("stage_busy_seconds_total", "counter", "Seconds of work, summed over threads.", "busy_s"),
    _Metric("stage_input_wait_seconds_total", "counter", "Seconds of waiting for input.", "input_wait_s"),
    _Metric(
        "stage_output_wait_seconds_total", "counter", "Seconds of waiting for room in the output.", "output_wait_s"
    ),
)
_DROPS = _Metric("stage_dropped_total", "counter", "What a stage left out, by reason.", "drops")
_GAUGES = _Metric("stage_gauge", "gauge", "What else a stage has to say.", "gauges")
_QUEUE = (
    _Metric("queue_size", "gauge", "Items in a queue.", "size"),
    _Metric("queue_capacity", "gauge", "Most items in a queue.", "capacity"),
    _Metric("queue_put_total", "counter", "Items that were put into a queue.", "put"),
    _Metric("queue_got_total", "counter", "Items that were taken from a queue.", "got"),
    _Metric("queue_dropped_total", "counter", "Items that a full queue dropped.", "dropped"),
    _Metric("queue_full_seconds_total", "counter", "How full a queue was, as seconds of being full.", "fill_s"),
    _Metric("queue_put_wait_seconds_total", "counter", "Seconds in which producers waited for room.", "put_wait_s"),
    _Metric("queue_get_wait_seconds_total", "counter", "Seconds in which consumers waited for items.", "get_wait_s"),
)


def metrics_text(counters: Mapping[str, Any]) -> str:
    r"""Counters of a pipeline, as Prometheus reads them.

    >>> from millstream.stages.stage_kinds import IterableStage

    >>> from millstream.stages.pipeline import Pipeline
    >>> text = metrics_text(Pipeline({"numbers": IterableStage([1])}).counters())
    >>> print(text[text.index("# HELP millstream_queue_capacity"):text.index("# HELP millstream_queue_put_total")])
    # HELP millstream_queue_capacity Most items in a queue.
    # TYPE millstream_queue_capacity gauge
    millstream_queue_capacity{queue="numbers"} 16
    <BLANKLINE>
    """
    return "".join(_lines(counters))


def _lines(counters: Mapping[str, Any]) -> Iterator[str]:
    stages, queues = counters["stages"], counters["queues"]
    yield from _family(_Metric("seconds_total", "counter", "Seconds since the start.", ""), [({}, counters["seconds"])])
    for metric in _STAGE:
        yield from _family(metric, [({"stage": name}, each[metric.counter]) for name, each in stages.items()])
    for metric, label in ((_DROPS, "reason"), (_GAUGES, "name")):
        rows = [
            ({"stage": stage, label: name}, value)
            for stage, each in stages.items()
            for name, value in each[metric.counter].items()
        ]
        yield from _family(metric, rows)
    for metric in _QUEUE:
        yield from _family(metric, [({"queue": name}, each[metric.counter]) for name, each in queues.items()])


def _family(metric: _Metric, rows: list[tuple[dict[str, str], float]]) -> Iterator[str]:
    if not rows:
        return
    name = f"{_PREFIX}_{metric.name}"
    yield f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n"
    for labels, value in rows:
        inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{{{inner}}} {_number(value)}\n" if inner else f"{name} {_number(value)}\n"


def _escaped(text: str) -> str:
    r"""A label's value between its quotes.

    >>> print(_escaped('a "b"\\' + "\n"))
    a \"b\"\\\n
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(float(value)) if isinstance(value, float) else str(int(value))


class MetricsServer:
    """Answers `/metrics` (text) and `/statistics` (JSON) on 127.0.0.1 until it or its pipeline is closed."""

    def __init__(self, pages: Mapping[str, tuple[str, Callable[[], str]]], port: int) -> None:
        self._server, self._process = _listening(port, _handler(pages)), HomeProcess()
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="millstream-metrics", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """What to give to Prometheus or to `millstream watch --metrics`."""
        return f"http://127.0.0.1:{self.port}/metrics"

    def close(self) -> None:
        """Stop listening, and close all connections. Idempotent."""
        if self._process.left:  # a forked child: those who are connected are the other one's
            self._server.socket.close()
            return
        if threading.current_thread() is not self._thread:
            self._server.shutdown()
            self._thread.join(HANG_UP_S)
        self._server.server_close()
        self._server.hang_up()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _MetricsHTTPServer(ThreadingHTTPServer):
    """Keeps the open connections: a client that asks for nothing would keep its thread."""

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._connected: dict[threading.Thread, socket.socket] = {}
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread of its own."""
        self._connected = {thread: each for thread, each in self._connected.items() if thread.is_alive()}
        thread = threading.Thread(
            target=self.process_request_thread,
            args=(request, client_address),
            name="millstream-metrics-answer",
            daemon=True,
        )
        thread.start()
        self._connected[thread] = request

    def hang_up(self) -> None:
        """End every connection, and wait for its thread; there must be no new ones any more."""
        for connection in self._connected.values():
            with contextlib.suppress(OSError):  # it is over
                connection.shutdown(socket.SHUT_RDWR)
        end = time.monotonic() + HANG_UP_S
        for thread in self._connected:
            if thread is not threading.current_thread():  # who answers may be the last to hold the pipeline
                thread.join(max(0.0, end - time.monotonic()))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a client that went away is no news."""
        logger.debug("an answer to %s failed", client_address, exc_info=True)


def _listening(port: int, handler: type[BaseHTTPRequestHandler]) -> _MetricsHTTPServer:
    if type(port) is not int or not 0 <= port < 1 << 16:
        raise LoaderError(
            f"port={port!r}: there is no such port", hint="pass one from 1024 to 65535, or 0 for a free one"
        )
    try:
        return _MetricsHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        hint = "pass another one, or 0 for a free one; what listens there may be an older run"
        raise LoaderError(f"port={port} cannot be had: {error.strerror}", hint=hint) from error


class Watched(Protocol):
    """What can be looked at while it runs: a pipeline, or a loader."""

    def counters(self) -> dict[str, Any]:
        """What went through since the start."""

    def statistics(self) -> dict[str, Any]:
        """How fast things go."""

    def on_close(self, call: Callable[[], None]) -> None:
        """Have something called when it is closed."""


def serve_metrics(pipeline: Watched, port: int = 0) -> MetricsServer:
    """Show a pipeline's numbers to this machine, and to no other, until it is closed; port 0: any free one.

    A loader shows its own: a `SelfPlayDataLoader` those of its stages, any other those of one stage, `loader`.

    >>> import urllib.request
    >>> from millstream.stages.stage_kinds import IterableStage
    >>> from millstream.stages.pipeline import Pipeline
    >>> with Pipeline({"numbers": IterableStage([1])}) as pipeline:
    ...     with urllib.request.urlopen(serve_metrics(pipeline).url) as answer:
    ...         b'millstream_queue_capacity{queue="numbers"} 16' in answer.read()
    True
    """
    asked = ("counters", "statistics", "on_close")
    if isinstance(pipeline, type) or not all(callable(getattr(pipeline, name, None)) for name in asked):
        what = f"the class {pipeline.__name__}" if isinstance(pipeline, type) else f"a {type(pipeline).__name__}"
        raise LoaderError(f"{what} has no numbers to serve", hint="pass a Pipeline, or a loader that was made")
    alive = weakref.ref(pipeline)  # being looked at keeps nothing alive

    def page(show: Callable[[Watched], str]) -> Callable[[], str]:
        return lambda: "" if (pipeline := alive()) is None else show(pipeline)

    server = MetricsServer(
        {
            "/metrics": (CONTENT_TYPE, page(lambda each: metrics_text(each.counters()))),
            "/statistics": ("application/json", page(lambda each: json.dumps(each.statistics()))),
        },
        port,
    )
    pipeline.on_close(server.close)
    return server


def _handler(pages: Mapping[str, tuple[str, Callable[[], str]]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE_S

        def do_GET(self) -> None:
            kind, text = pages.get(self.path.partition("?")[0], ("", None))
            if text is None:
                self.send_error(404, f"there is {' and '.join(pages)}")
                return
            body = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: only the command line prints."""

    return Handler
