"""The endpoint: who may put what, and that an answer means that it is durable."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from feeds.transports import SMALL, numbers_of, receive_all, receive_some, record
from millstream.errors import BusyError, ClosedError, LoaderError
from millstream.feeds import Control, HttpFeed, SpoolFeed, open_source
from millstream.feeds.http_feed import Inbox, _status_of
from millstream.feeds.http_source import HttpSource
from millstream.rollouts import block_of, encode

BLOCKS = "application/octet-stream"
ODD = json.dumps(record(0, rollout_id="odd", loss_mask=[True])).encode()


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[HttpFeed]:
    opened = HttpFeed(tmp_path, token="secret", most_bytes=100_000)
    yield opened
    opened.close()


def asked(
    feed: HttpFeed, target: str, body: bytes = b"", kind: str = BLOCKS, token: str = "secret", method: str = "POST"
) -> tuple[int, Any]:
    connection = HTTPConnection(feed.url.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, target, body, {"Authorization": f"Bearer {token}", "Content-Type": kind})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_json_json_lines_and_blocks_are_taken_and_durable_when_answered(feed: HttpFeed, tmp_path: Path) -> None:
    lines = b"".join(json.dumps(record(number)).encode() + b"\n\n" for number in (1, 2))
    for body, kind, count in (
        (json.dumps(record(0)).encode(), "application/json", 1),
        (lines, "application/jsonl; charset=utf-8", 2),
        (json.dumps([record(3), record(4)]).encode(), "application/json", 2),
        (encode(block_of([record(5)])) + encode(block_of([record(6)])), BLOCKS, 2),
    ):
        assert asked(feed, "/rollouts?producer=curl", body, kind) == (200, {"rollouts": count})
    feed.close()  # nothing that was answered lies in the process alone
    again = SpoolFeed(tmp_path)
    assert numbers_of(receive_some(again, 7)) == list(range(7))
    again.close()


def test_who_does_not_know_the_token_puts_and_sees_nothing(feed: HttpFeed) -> None:
    body = json.dumps(record(0)).encode()
    for token in ("", "secret ", "Secret", "secre", "sécret"):
        for method, target in (("POST", "/rollouts"), ("POST", "/open"), ("GET", "/control"), ("GET", "/nowhere")):
            status, said = asked(feed, target, body, "application/json", token, method)
            assert (status, "token" in said["error"]) == (401, True)
    assert feed.receive(timeout_s=0) == []
    with pytest.raises(LoaderError, match="token"):
        HttpSource(feed.url, "wrong")


@pytest.mark.parametrize(
    ("target", "body", "kind", "status", "said"),
    [
        ("/rollouts", b"x" * 100_001, BLOCKS, 413, "100001 bytes"),
        ("/rollouts", b"nonsense", BLOCKS, 400, ""),
        ("/rollouts", encode(block_of([record(0)]))[:-3], BLOCKS, 400, ""),
        ("/rollouts", b"{", "application/json", 400, "JSON"),
        ("/rollouts", b"[" * 50_000, "application/json", 400, "JSON"),
        (
            "/rollouts",
            json.dumps(record(0, rollout_id="odd", loss_mask=[True])).encode(),
            "application/json",
            400,
            "odd",
        ),
        ("/rollouts", b"", "text/plain", 415, "text/plain"),
        ("/rollouts?producer=../etc", encode(block_of([record(0)])), BLOCKS, 400, "name of a producer"),
        ("/rollouts?number=-1", encode(block_of([record(0)])), BLOCKS, 400, "number"),
        ("/nowhere", b"", BLOCKS, 404, ""),
    ],
)
def test_what_cannot_be_taken_is_refused_with_a_reason(
    feed: HttpFeed, target: str, body: bytes, kind: str, status: int, said: str
) -> None:
    found, answer = asked(feed, target, body, kind)
    assert found == status
    assert said in answer["error"]
    assert feed.receive(timeout_s=0) == []


def test_a_request_that_breaks_off_or_has_no_length_leaves_nothing(feed: HttpFeed) -> None:
    body = encode(block_of([record(0)]))
    host, port = feed.url.removeprefix("http://").split(":")
    for length in (f"Content-Length: {len(body)}\r\n", ""):
        with socket.create_connection((host, int(port))) as client:
            head = f"POST /rollouts HTTP/1.1\r\nAuthorization: Bearer secret\r\nContent-Type: {BLOCKS}\r\n{length}\r\n"
            client.sendall(head.encode() + body[: len(body) // 2])
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1000).split()[1] in (b"400", b"411")
    assert feed.receive(timeout_s=0) == []


def test_what_goes_wrong_in_the_server_is_said(feed: HttpFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inbox, "take", lambda *_: 1 // 0)
    assert asked(feed, "/rollouts", b"") == (
        500,
        {"error": "ZeroDivisionError: integer division or modulo by zero", "hint": None},
    )


def test_a_piece_that_is_sent_again_is_taken_once_also_behind_a_restart(tmp_path: Path) -> None:
    feed = HttpFeed(tmp_path, token="secret")
    session = asked(feed, "/open?producer=one")[1]["session"]
    target, body = f"/rollouts?producer=one&session={session}&number=", encode(block_of([record(0)]))
    for _ in range(2):
        assert asked(feed, target + "0", body)[0] == 200
    assert numbers_of(receive_some(feed, 1)) == [0]
    assert asked(feed, target + "0", body)[0] == 200
    feed.release(feed.cursor)
    feed.close()
    again = HttpFeed(tmp_path, token="secret")
    assert asked(again, target + "0", body)[0] == 200
    assert asked(again, target + "1", encode(block_of([record(1)])))[0] == 200
    assert asked(again, f"/close?producer=one&session={session}")[0] == 200
    assert numbers_of(receive_all(again)) == [1]
    again.close()


def test_of_two_producers_of_one_name_the_later_one_goes_on(feed: HttpFeed) -> None:
    old = HttpSource(feed.url, "secret", producer="one", gather=SMALL)
    with HttpSource(feed.url, "secret", producer="one") as new:
        old.put(record(0))
        with pytest.raises(BusyError, match="another producer of this name"):
            old.flush()
        new.put(record(1))
    assert numbers_of(receive_all(feed)) == [1]
    with pytest.raises(BusyError, match=r"another producer of this name .* 1 rollout in it did not arrive") as told:
        old.close()
    assert told.value.hint == "give each producer its own name, and put them again"
    old.close()


@pytest.mark.parametrize("settings", [{}, {"token": None}, {"token": ""}, {"token": "a\n"}])
def test_a_producer_without_a_token_hears_where_to_get_one(feed: HttpFeed, settings: dict[str, Any]) -> None:
    with pytest.raises(LoaderError, match="token") as refused:
        open_source(feed.url, **settings)
    assert refused.value.hint


def test_it_listens_to_this_machine_only_unless_asked(tmp_path: Path) -> None:
    with pytest.raises(LoaderError, match="remote=True"):
        HttpFeed(tmp_path, host="0.0.0.0")
    assert not any(tmp_path.iterdir())


def test_a_trainers_word_is_json(feed: HttpFeed) -> None:
    feed.tell(Control(2, 5))
    assert asked(feed, "/control", method="GET") == (200, asdict(Control(2, 5)))


def test_a_request_that_outlives_its_feed_takes_nothing_from_the_next_one(tmp_path: Path) -> None:
    body = encode(block_of([record(1)]))
    feed = HttpFeed(tmp_path, token="secret")
    server, inbox = feed._server, feed._server.inbox
    session = inbox.open("engine")
    feed.close()
    with pytest.raises(ClosedError):  # its thread was slow
        inbox.take("engine", BLOCKS, body, session, 0)
    assert _status_of(ClosedError("closed")) == 503  # so the producer waits, and asks again
    with closing(HttpFeed(tmp_path, token="secret", port=server.server_address[1])) as again:
        assert again._server.inbox.take("engine", BLOCKS, body, session, 0) == 1


def test_what_is_no_request_of_ours_is_answered_in_json(feed: HttpFeed) -> None:
    status, said = asked(feed, "/rollouts", method="DELETE")
    assert status == 501 and "DELETE" in said["error"] and "POST" in said["hint"]
    host, port = feed.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(b"one two three four five\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(1000), b""))
    assert json.loads(answer[answer.index(b"{") :])["error"]


@pytest.mark.parametrize(
    ("body", "said"),
    [(b'{"reward": ' + b"1" * 5001 + b"}", "too many digits"), (b"[" * 50_000, "nested too deep")],
    ids=["digits", "nested"],
)
def test_limits_of_the_parser_are_told_in_plain_words(feed: HttpFeed, body: bytes, said: str) -> None:
    status, answer = asked(feed, "/rollouts", body, "application/json")
    assert status == 400 and said in answer["error"] and "sys." not in answer["error"]
