"""Numbers of a running pipeline: they add up, are plain, and are to be had from this machine only."""

from __future__ import annotations

import contextlib
import gc
import json
import re
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches.threads import until
from laws import examples
from millstream.errors import WaitWarning
from millstream.stages import (
    FunctionStage,
    IterableStage,
    MapStage,
    Pipeline,
    Queue,
    SourceStage,
    prometheus,
    serve_metrics,
)
from millstream.stages.prometheus import metrics_text
from stages.test_pipeline import alive


class Odd(FunctionStage[int, int]):
    def gauges(self) -> dict[str, float]:
        return {'window "a"\\b\n': 0.5, "none": float("nan")}


def slow(item: int) -> list[int]:
    time.sleep(0.002)
    return [item]


def made(count: int = 10**9) -> Pipeline:
    numbers = IterableStage(range(count), capacity=4)
    return Pipeline({"numbers": numbers, "slow": Odd(numbers, function=slow, threads=2, capacity=4)})


def test_the_slow_stage_is_busy_and_the_queue_before_it_is_full() -> None:
    with made() as pipeline:
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            pipeline.get()
        statistics = pipeline.statistics()

    assert json.loads(json.dumps(statistics)).keys() == statistics.keys()
    assert 0.9 < statistics["window_s"] < 1.5
    for span in ("last", "since_start"):
        slow_one, fast_one = (statistics["stages"][name][span] for name in ("slow", "numbers"))
        assert slow_one["busy"] > 0.5 > fast_one["busy"]
        assert 50 < slow_one["out_per_s"] < 1100
        assert statistics["queues"]["numbers"][span]["fill"] > 0.5 > statistics["queues"]["slow"][span]["fill"]
    queue = statistics["queues"]["slow"]
    assert queue["since_start"]["got_per_s"] == pytest.approx(queue["counters"]["got"] / statistics["seconds"])


def test_the_times_of_a_stage_sum_up_to_the_life_of_its_threads() -> None:
    with made() as pipeline:
        for _ in range(50):
            pipeline.get()
        counters = pipeline.counters()
        stage = counters["stages"]["slow"]
        lived = stage["busy_s"] + stage["input_wait_s"] + stage["output_wait_s"]
        assert lived == pytest.approx(2 * counters["seconds"], abs=0.1)


_LINE = re.compile(r'^millstream_\w+(\{(\w+="(?:[^"\\\n]|\\["\\n])*",?)*\})? (NaN|[+-]Inf|[-+.e\d]+)$')


def test_the_text_is_what_prometheus_reads() -> None:
    with made(3) as pipeline:
        assert list(pipeline) == [0, 1, 2]
        text = metrics_text(pipeline.counters())

    families = re.findall(r"^# TYPE (\S+) (counter|gauge)$", text, re.MULTILINE)
    assert len(families) == len({name for name, _ in families}) == text.count("# HELP")
    assert all(name.endswith("_total") is (kind == "counter") for name, kind in families)
    assert all(_LINE.match(line) for line in text.splitlines() if not line.startswith("#"))
    assert 'millstream_stage_items_out_total{stage="slow"} 3\n' in text
    assert 'millstream_stage_gauge{stage="slow",name="window \\"a\\"\\\\b\\n"} 0.5\n' in text
    assert 'millstream_stage_gauge{stage="slow",name="none"} NaN\n' in text


@given(st.text(max_size=8), st.integers(0, 10**12) | st.floats())
@examples(50)
def test_any_reason_and_any_number_make_a_line_of_the_format(reason: str, number: float) -> None:
    counters = Pipeline({"a": IterableStage([1])}).counters()
    counters["stages"]["a"]["drops"] = {reason: number}
    lines = [line for line in metrics_text(counters).split("\n") if line.startswith("millstream_stage_dropped_total")]

    assert len(lines) == 1
    assert _LINE.match(lines[0])


def test_the_endpoint_listens_on_this_machine_only_and_closes_with_the_pipeline() -> None:
    with made() as pipeline:
        pipeline.get()
        server = serve_metrics(pipeline)
        assert server._server.server_address[0] == "127.0.0.1"
        with urllib.request.urlopen(server.url) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert b"millstream_stage_items_out_total" in answer.read()
        with urllib.request.urlopen(server.url.replace("metrics", "statistics")) as answer:
            assert set(json.load(answer)["stages"]) == {"numbers", "slow"}
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(server.url + "/else")
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=1):
        pass
    server.close()
    assert alive() == set()


def test_a_client_that_asks_for_nothing_keeps_no_thread_once_the_server_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prometheus, "PATIENCE_S", 600)
    with Pipeline({"numbers": IterableStage([1])}) as pipeline, contextlib.ExitStack() as clients:
        server = serve_metrics(pipeline)
        for begun in (b"", b"GET /metr", b"GET /metrics HTTP/1.0\r\nHost: "):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            client.sendall(begun)
        until(lambda: sum(thread.name == "millstream-metrics-answer" for thread in threading.enumerate()) == 3)
        server.close()

        until(lambda: not any("metrics" in name for name in alive()))
        assert client.recv(1) == b""


def test_a_client_that_keeps_silent_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "PATIENCE_S", 0.1)
    with Pipeline({"numbers": IterableStage([1])}) as pipeline:
        server = serve_metrics(pipeline)
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
            assert client.recv(1) == b""
        with urllib.request.urlopen(server.url) as answer:
            assert answer.status == 200


def test_a_client_that_goes_away_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with Pipeline({"numbers": IterableStage([1])}) as pipeline:
        server = serve_metrics(pipeline)
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, and no farewell
            client.sendall(b"GET /metr")
    assert capfd.readouterr() == ("", "")


def test_being_looked_at_keeps_no_pipeline_alive() -> None:
    class Waits(SourceStage[int]):
        def produce(self) -> Iterator[int]:
            self.stopping.wait(60)
            yield 1

    pipeline = Pipeline({"waits": Waits()})
    pipeline.start()
    serve_metrics(pipeline)
    assert alive()
    del pipeline
    gc.collect()

    until(lambda: not alive())
    assert alive() == set()


class Basin(MapStage[int, int]):
    """Gives nothing before it is full."""

    def process(self, item: int) -> Iterable[int]:
        return ()

    def gauges(self) -> dict[str, float]:
        return {"drops": self.inputs[0].queue.counters()["got"], "capacity": 8192}


def test_who_waits_for_a_stage_that_is_being_filled_hears_how_full_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.stages.wait.WORTH_SAYING_S", 0.2)
    queue: Queue[int] = Queue(capacity=1000)
    producer = queue.producer()
    producer.put_many(range(531))
    with Pipeline({"basin": Basin(queue)}) as pipeline:
        until(lambda: bool(pipeline.counters()["stages"]["basin"]["in"] == 531))
        with pytest.raises(WaitWarning, match=r"; basin holds 531 of 8,192 drops, and gives none before it is full$"):
            pipeline.get()
