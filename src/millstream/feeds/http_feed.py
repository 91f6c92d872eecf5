"""HttpFeed: an endpoint in the trainer's process. What is acknowledged is durable in a spool, and outlives the process.

    POST /rollouts?producer=NAME     records as JSON or JSON lines, or encoded blocks; answers when they are durable
    POST /open?producer=NAME         begins a session, whose pieces are numbered (&session=…&number=…)
    POST /close?producer=NAME        nothing more comes from this producer
    GET /control                     the trainer's word

Every request carries `Authorization: Bearer TOKEN`.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from millstream.errors import BusyError, ClosedError, LoaderError, MillstreamError, RecordError, StoreError
from millstream.feeds.gathering import log
from millstream.feeds.http_source import BLOCKS
from millstream.feeds.shards import ProducerFolder, shard_name
from millstream.feeds.spool import SpoolControl, SpoolFeed
from millstream.rollouts import block_of, encode_parts, iter_blocks
from millstream.sources import wording
from millstream.storage import Bytes

_AT_ONCE = 16
_WAIT_S = 30.0
JSON = ("application/json",)
JSON_LINES = ("application/jsonl", "application/x-jsonl", "application/jsonlines", "application/x-ndjson")
KINDS = (BLOCKS, "application/octet-stream", *JSON, *JSON_LINES)


class HttpFeed(SpoolFeed):
    """Where the trainer takes out what comes over HTTP, by way of a spool.

    Args:
        directory: The spool's folder.
        host: Where to listen; only loopback, unless `remote=True`.
        port: 0: a free one; `url` says which.
        token: What producers must know; by default a new one in `token`.
        remote: Listen to other machines, too. There is no encryption here: put a proxy that has it in front.
        most_bytes: The largest body that is taken.
        keep: Do not remove shards when they are released.
        on_bad: What happens with damaged shards, as `SpoolFeed` says.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        remote: bool = False,
        most_bytes: int = 64 << 20,
        keep: bool = False,
        on_bad: Literal["skip", "error"] = "skip",
    ) -> None:
        if not remote and not _is_loopback(host):
            raise LoaderError(f"{host} can be reached from elsewhere", hint="pass remote=True if that is meant")
        super().__init__(directory, keep=keep, on_bad=on_bad)
        self.token = token or secrets.token_urlsafe(32)
        try:
            self._server = _HttpFeedServer((host, port), self, most_bytes)
        except OSError as error:
            super().close()
            raise LoaderError(f"{host}:{port}: {error.strerror}", hint="pass port=0 for one that is free") from error
        self.url = f"http://{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and let another consumer take over; what was not released stays."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server.inbox.close()
        super().close()


class _HttpFeedServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], feed: HttpFeed, most_bytes: int) -> None:
        super().__init__(address, _HttpFeedHandler)
        self.token, self.most_bytes = feed.token.encode(), most_bytes
        self.control = SpoolControl(feed.directory)
        self.inbox = Inbox(feed.directory, feed.taken)
        self.bodies = threading.BoundedSemaphore(_AT_ONCE)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request broke off", exc_info=True)


class _Refused(Exception):  # noqa: N818 - reads as a claim
    def __init__(self, status: HTTPStatus, error: str, hint: str | None = None) -> None:
        super().__init__(error)
        self.status, self.hint = status, hint


class _HttpFeedHandler(BaseHTTPRequestHandler):
    server: _HttpFeedServer
    protocol_version = "HTTP/1.1"
    timeout = _WAIT_S

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)

    def _answer(self, act: Any) -> None:
        try:
            self._check_token()
            status, said = HTTPStatus.OK, act()
        except _Refused as error:
            status, said = error.status, {"error": str(error), "hint": error.hint}
        except MillstreamError as error:
            status, said = _status_of(error), {"error": error.message, "hint": error.hint}
        except Exception as error:  # the client must hear of it, and the next request is unaffected
            log.exception("%s", self.path)
            status, said = HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}: {error}", "hint": None}
        self._say(status, said)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Say what is wrong with a request that is malformed, or has another method, in the form of every answer."""
        self._say(
            HTTPStatus(code), {"error": message or HTTPStatus(code).phrase, "hint": "GET /control, POST /rollouts"}
        )

    def _say(self, status: HTTPStatus, said: dict[str, Any]) -> None:
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        # What was refused may not have been read: the connection cannot be used for another request.
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.close_connection = True

    def _check_token(self) -> None:
        given = self.headers.get("Authorization", "").encode("latin-1", "replace")
        if not hmac.compare_digest(given, b"Bearer " + self.server.token):
            raise _Refused(HTTPStatus.UNAUTHORIZED, "no token, or a wrong one", "Authorization: Bearer TOKEN")

    def _get(self) -> dict[str, Any]:
        if urlsplit(self.path).path != "/control":
            raise _Refused(HTTPStatus.NOT_FOUND, "there is nothing here", "GET /control, POST /rollouts")
        return asdict(self.server.control.read())

    def _post(self) -> dict[str, Any]:
        target = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(target.query).items()}
        producer, inbox = query.get("producer", "http"), self.server.inbox
        session, number = _number(query, "session"), _number(query, "number")
        if target.path == "/open":
            return {"session": inbox.open(producer)}
        if target.path == "/close":
            inbox.end(producer, session)
            return {}
        if target.path != "/rollouts":
            raise _Refused(HTTPStatus.NOT_FOUND, "there is nothing here", "POST /rollouts, /open or /close")
        kind = self.headers.get_content_type()
        if kind not in KINDS:
            raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a body of {kind}", f"one of {', '.join(KINDS)}")
        if not self.server.bodies.acquire(timeout=_WAIT_S):
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests at once", "try again")
        try:
            return {"rollouts": inbox.take(producer, kind, self._body(), session, number)}
        finally:
            self.server.bodies.release()

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "a body without Content-Length")
        if int(length) > self.server.most_bytes:
            raise _Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"a body of {length} bytes; at most {self.server.most_bytes} are taken",
                "send fewer rollouts at once",
            )
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise _Refused(HTTPStatus.BAD_REQUEST, f"the body ends after {len(body)} of {length} bytes")
        return body


def _status_of(error: MillstreamError) -> HTTPStatus:
    if isinstance(error, ClosedError):
        return HTTPStatus.SERVICE_UNAVAILABLE
    if isinstance(error, BusyError):
        return HTTPStatus.CONFLICT
    return HTTPStatus.INSUFFICIENT_STORAGE if isinstance(error, StoreError) else HTTPStatus.BAD_REQUEST


def _number(query: dict[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 8):
        raise _Refused(HTTPStatus.BAD_REQUEST, f"{name}={text} is no number")
    return int(text)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Inbox:
    """Takes rollouts for a spool in the name of producers that cannot write there themselves. For many threads.

    Args:
        spool: The spool's folder.
        taken: Gives the last shard of a producer that its consumer has taken.
    """

    def __init__(self, spool: Path, taken: Callable[[str], str]) -> None:
        self._spool, self._taken = spool, taken
        self._folders: dict[str, ProducerFolder] = {}
        self._lock = threading.Lock()
        self._closed = False

    def open(self, producer: str) -> int:
        """Begin a session of a producer, and give its number."""
        with self._lock:
            if producer in self._folders:
                self._folders[producer].begin_again()
            return self._folder(producer, None).session

    def take(self, producer: str, kind: str, body: bytes, session: int | None, number: int | None) -> int:
        """Make rollouts durable, and say how many they are. With a number, doing it twice is the same as once."""
        parts, rollouts = _checked(kind, body)
        with self._lock:  # one at a time: the disk would not be faster with more
            folder = self._folder(producer, session)
            known = number is not None and shard_name(folder.session, number) <= self._taken(producer)
            if rollouts and not known:
                folder.write(parts, number)
        return rollouts

    def end(self, producer: str, session: int | None) -> None:
        """Note that nothing more comes from a producer."""
        with self._lock:
            folder = self._folder(producer, session)
            folder.end()
            folder.close()
            del self._folders[producer]

    def close(self) -> None:
        """Let others write for these producers; a request that is still under way comes too late."""
        with self._lock:
            self._closed = True
            for folder in self._folders.values():
                folder.close()
            self._folders.clear()

    def _folder(self, producer: str, session: int | None) -> ProducerFolder:
        if self._closed:
            raise ClosedError("this feed was closed", hint="try again: another one may take its place")
        folder = self._folders.get(producer)
        if folder is None:
            folder = self._folders[producer] = ProducerFolder(self._spool, producer, session)
        folder.expect(session)
        return folder


def _checked(kind: str, body: bytes) -> tuple[Sequence[Bytes], int]:
    """A body as encoded blocks, checked, and how many rollouts they hold."""
    if kind not in (*JSON, *JSON_LINES):
        return [body], sum(len(block_of(block)) for block, _ in iter_blocks(body))
    records = _records(body, lines=kind in JSON_LINES)
    if not records:
        return [], 0
    block = block_of(records)
    return encode_parts(block), len(block)


def _records(body: bytes, *, lines: bool) -> list[Any]:
    try:
        if lines:
            return [json.loads(line) for line in body.splitlines() if line.strip()]
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RecordError("not JSON", wording(error), hint="one JSON object, a list of them, or one per line") from None
    return found if isinstance(found, list) else [found]
