"""A Redis server of the tests' own: on a free port of loopback, in a temporary folder, gone when they are."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import redis

SERVICES = Path(__file__).parents[2] / "build" / "services"


class RedisServer:
    """Runs from `start` to `kill`; with `durable` it remembers what it acknowledged."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self._folder, self._durable = folder, durable
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, name: str) -> str:
        return f"redis://127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        program, environment = _program()
        persistence = ["--appendonly", "yes", "--appendfsync", "always"] if self._durable else ["--appendonly", "no"]
        place = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._folder)]
        command = [program, *place, "--save", "", *persistence]
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        client, deadline = redis.Redis(port=self.port, socket_timeout=5), time.monotonic() + 30
        while True:
            try:
                client.ping()
                break
            except redis.exceptions.ConnectionError:
                assert self._process.poll() is None, "redis-server ended at once"
                assert time.monotonic() < deadline, "redis-server does not answer"
                time.sleep(0.02)
        client.close()

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _program() -> tuple[str, dict[str, str]]:
    installed, unpacked = shutil.which("redis-server"), SERVICES / "usr/bin/redis-server"
    if installed is not None:
        return installed, dict(os.environ)
    assert unpacked.exists(), "redis-server is missing: run `make services`, or install it"
    libraries = ":".join(str(path.parent) for path in SERVICES.rglob("liblzf.so.1"))
    return str(unpacked), {**os.environ, "LD_LIBRARY_PATH": libraries}
