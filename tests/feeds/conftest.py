"""All transports, each fresh for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from feeds.redis_server import RedisServer
from feeds.transports import Http, Memory, RedisStream, Spool, Transport


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


def _made(name: str, folder: Path, request: pytest.FixtureRequest) -> Transport:
    if name == "redis":
        return RedisStream(request.getfixturevalue("redis_server"))
    return {"memory": lambda _: Memory(), "spool": Spool, "http": Http}[name](folder)


@pytest.fixture(params=["memory", "spool", "redis", "http"])
def transport(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Transport]:
    made = _made(request.param, tmp_path / "spool", request)
    yield made
    made.close()


@pytest.fixture(params=["spool", "redis", "http"])
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Transport]:
    """What outlives a process."""
    made = _made(request.param, tmp_path / "spool", request)
    yield made
    made.close()
