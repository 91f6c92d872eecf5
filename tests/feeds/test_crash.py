"""Producers and trainers that are killed in the middle of what they do (SIGKILL), and servers that go and come back."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from feeds.redis_server import RedisServer
from feeds.transports import SMALL, Http, Spool, Transport, numbers_of, receive_all, receive_some, record
from millstream.errors import WaitTimeout
from millstream.feeds import open_feed, open_source

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _slow_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may take long to come back where much else is at work, and a warning of that is an error here."""
    monkeypatch.setattr("millstream.stages.wait.WORTH_SAYING_S", 600.0)


class Nursery:
    """Starts processes and kills them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._started = folder, 0
        environment = {**os.environ, "PYTHONPATH": os.fspath(HERE.parent)}
        command = [sys.executable, os.fspath(HERE / "nursery.py")]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def killed_after(self, lines: int, pause_s: float, what: str, *arguments: Any) -> list[str]:
        """What a process said before it was killed: after so many lines, and a moment."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._started += 1
        file = self._folder / str(self._started)
        file.touch()
        print(json.dumps([what, os.fspath(file), arguments]), file=self.process.stdin, flush=True)
        child = int(self.process.stdout.readline())
        while file.read_text().count("\n") < lines:
            os.kill(child, 0)  # it is still alive
            time.sleep(0.002)
        time.sleep(pause_s)
        os.kill(child, signal.SIGKILL)
        with suppress(ProcessLookupError):
            while True:
                os.kill(child, 0)
                time.sleep(0.002)
        whole, _, _torn = file.read_text().rpartition("\n")
        return whole.splitlines()


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    made = Nursery(tmp_path_factory.mktemp("nursery"))
    with made.process:
        yield made


def test_a_killed_producer_loses_nothing_that_was_flushed_and_leaves_no_half_record(
    lasting: Transport, nursery: Nursery
) -> None:
    chance, feed, first = random.Random(1), lasting.feed(), 0
    where, settings = lasting.address()
    settings["producer"] = "one"
    for _ in range(5):
        said = nursery.killed_after(2, chance.uniform(0, 0.03), "produce", where, settings, first)
        found = numbers_of(receive_some(feed, int(said[-1]) + 1 - first))
        while more := feed.receive(timeout_s=0.05):
            found += numbers_of(more)
        assert found == list(range(first, first + len(found)))
        first += len(found)
    open_source(where, **settings).close()
    assert receive_all(feed) == []
    feed.close()


def test_a_killed_trainer_receives_the_rest_at_its_last_state(
    tmp_path: Path, redis_server: RedisServer, nursery: Nursery
) -> None:
    for where in (os.fspath(tmp_path), redis_server.url("killed")):
        with open_source(where, gather=SMALL) as source:
            for number in range(300):
                source.put(record(number))
        first = nursery.killed_after(5, 0, "consume", where, {}, None)
        (_, cursor), before = json.loads(first[3]), [number for line in first[:4] for number in json.loads(line)[0]]
        feed = open_feed(where)
        feed.release(cursor)
        feed.close()
        second = nursery.killed_after(3, 0, "consume", where, {}, cursor)
        feed = open_feed(where)
        feed.seek(cursor)
        rest = receive_all(feed)
        assert before + numbers_of(rest) == list(range(300))
        assert [json.loads(line) for line in second[:3]] == [[numbers_of([each]), each.cursor] for each in rest[:3]]
        feed.close()


def put_in_background(transport: Transport, count: int) -> threading.Thread:
    def put() -> None:
        with transport.source(patience_s=60) as source:
            for number in range(count):
                source.put(record(number))
                time.sleep(0.002)

    thread = threading.Thread(target=put)
    thread.start()
    return thread


def test_a_redis_that_goes_away_and_comes_back_is_gone_on_with(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, durable=True)
    server.start()
    try:
        feed = open_feed(server.url("feed"), patience_s=60)
        transport = _At(server.url("feed"))
        thread = put_in_background(transport, 200)
        found = numbers_of(receive_some(feed, 20))
        server.kill()
        while came := feed.receive(timeout_s=0.1):
            found += numbers_of(came)
        assert not feed.ended
        server.start()
        found += numbers_of(receive_all(feed))
        thread.join()
        assert found == list(range(200))
        assert feed.counters()["reconnected"] == 1
        assert feed.counters()["begun_anew"] == 0
    finally:
        server.kill()


def test_a_redis_that_forgot_everything_is_begun_anew_and_that_is_counted(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    server.start()
    try:
        feed = open_feed(server.url("feed"), patience_s=60)
        source = open_source(server.url("feed"), gather=SMALL)
        source.put(record(0))
        source.flush()
        assert numbers_of(receive_some(feed, 1)) == [0]
        cursor = feed.cursor
        server.kill()
        server.start()
        source.put(record(1))
        source.close()
        assert numbers_of(receive_all(feed)) == [1]
        feed.seek(cursor)
        assert numbers_of(receive_all(feed)) == [1]
        assert feed.counters()["begun_anew"] == 2
    finally:
        server.kill()


def test_an_endpoint_that_goes_away_and_comes_back_is_gone_on_with(tmp_path: Path) -> None:
    transport = Http(tmp_path)
    feed = transport.feed()
    thread = put_in_background(transport, 200)
    arrivals = receive_some(feed, 20)
    cursor = arrivals[-1].cursor
    feed.release(cursor)
    transport.close()
    time.sleep(0.2)
    feed = transport.feed()
    feed.seek(cursor)
    rest = receive_all(feed)
    thread.join()
    assert numbers_of(arrivals + rest) == list(range(200))
    transport.close()


@pytest.mark.parametrize("where", ["redis://127.0.0.1:1/feed", "http://127.0.0.1:1"])
def test_patience_ends_with_an_error_that_says_whom_it_waited_for(where: str) -> None:
    settings = {"token": "x"} if where.startswith("http") else {}
    with pytest.raises(WaitTimeout, match=r"127\.0\.0\.1:1.*\n.*patience_s"):
        open_source(where, patience_s=0.1, **settings)


def test_a_trainer_waits_for_redis_as_long_as_its_patience_lasts() -> None:
    feed = open_feed("redis://127.0.0.1:1/feed", patience_s=0.3)
    assert feed.receive(timeout_s=0.05) == []
    with pytest.raises(WaitTimeout, match="patience_s"):
        for _ in range(100):
            feed.receive(timeout_s=0.1)


class _At(Spool):
    def __init__(self, url: str) -> None:
        self.url = url

    def address(self) -> tuple[str, dict[str, Any]]:
        return self.url, {}
