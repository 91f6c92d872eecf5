"""HttpSource: a producer that reaches the trainer over HTTP, with nothing but the standard library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

from millstream.errors import BusyError, LoaderError
from millstream.feeds.feed import Control
from millstream.feeds.gathering import Encoded, Gather, GatheringSource
from millstream.stages import Reconnect

BLOCKS = "application/x-millstream-rollouts"
"""What encoded blocks are called on the wire."""
_ANSWER_S = 60.0


class _AwayError(Exception):
    """The server cannot be reached, or cannot do it now."""


class HttpSource(GatheringSource):
    """Where a producer puts rollouts that an `HttpFeed` takes in.

    Pieces are numbered, so one that is sent again because an answer was lost is taken once.

    Args:
        url: `http://host:port`, as `HttpFeed.url` gives it.
        token: As `HttpFeed.token` gives it.
        producer: A name that no other producer has at the same time; by default a new one.
        gather: When what was put is sent.
        patience_s: How long the server may be away.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        producer: str | None = None,
        gather: Gather | None = None,
        patience_s: float = 600.0,
    ) -> None:
        super().__init__(gather)
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError as error:
            raise LoaderError(f"{url}: {error}", hint="http://host:port") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise LoaderError(f"{url}: this is not the address of a feed", hint="http://host:port")
        if not isinstance(token, str) or not token:
            raise LoaderError(
                f"{url}: producers show a token, and none was given",
                hint="pass token=; the trainer's HttpFeed was given it, or says it in its `token`",
            )
        if not token.isascii() or not token.isprintable() or token != token.strip():
            raise LoaderError("the token holds what no header can", hint="strip the line end of what was read")
        self.url, self._token = url, token
        self.producer = producer or uuid4().hex
        self._server = Reconnect(f"the feed at {parts.netloc}", patience_s, (_AwayError,))
        self._control = Control()
        self._sent = 0
        self._session = self._ask("open", {})["session"]

    def control(self) -> Control:
        """The trainer's latest word; the one before, while it is away."""
        with suppress(_AwayError):
            self._control = Control.from_json(json.dumps(self._request("GET", "/control", b"")).encode())
        return self._control

    def _send(self, blocks: list[Encoded]) -> None:
        body = b"".join(part for block in blocks for part in block)
        try:
            self._ask("rollouts", {"session": self._session, "number": self._sent}, body)
        finally:  # also when it failed: a number that may have arrived never stands for something else
            self._sent += 1

    def _end(self) -> None:
        self._ask("close", {"session": self._session})

    def _ask(self, verb: str, numbers: Mapping[str, int], body: bytes = b"") -> Any:
        query = urlencode({"producer": self.producer, **numbers})
        return self._server.ask(lambda: self._request("POST", f"/{verb}?{query}", body))

    def _request(self, method: str, target: str, body: bytes) -> Any:
        parts = urlsplit(self.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.netloc, timeout=_ANSWER_S)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": BLOCKS, "Connection": "close"}
        try:
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            said = json.loads(answer.read())
        except (OSError, HTTPException, ValueError) as error:
            raise _AwayError(f"{type(error).__name__}: {error}") from error
        finally:
            connection.close()
        if answer.status >= 500:
            raise _AwayError(said.get("error", answer.reason))
        if answer.status >= 400:
            kind_of_error = BusyError if answer.status == 409 else LoaderError
            raise kind_of_error(f"{self.url}: {said.get('error', answer.reason)}", hint=said.get("hint"))
        return said
