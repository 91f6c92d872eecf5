"""A disk that stops at the n-th operation, and what is on it afterwards.

`Crash` is a kill: all that reached the system stays. `blackout` is a cut of the power at that moment, in its
worst form: bytes that were not synced are gone, and so is every name whose directory was not synced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from millstream.storage import Bytes, disk


class Crash(BaseException):
    """The process is dead from here on."""


class FailingDisk:
    """Counts what the writer does to the disk, and lets it die at operation `limit`."""

    def __init__(self, root: Path, limit: int) -> None:
        self.root, self.limit, self.count = root, limit, 0
        self.names: dict[Path, dict[str, int]] = {}  # directory -> names that last
        self.content: dict[int, bytes] = {}  # inode -> bytes that last

    def remember(self) -> None:
        """Take what is there now for what lasts."""
        for path in [self.root, *self.root.rglob("*")]:
            if path.is_dir():
                self.names[path] = {each.name: each.stat().st_ino for each in path.iterdir() if each.is_file()}
            else:
                self.content[path.stat().st_ino] = path.read_bytes()

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in ("create", "write", "truncate", "rename", "remove", "remove_tree"):
            patch.setattr(disk, name, self._counted(getattr(disk, name)))
        patch.setattr(disk, "sync", self._sync)
        patch.setattr(disk, "write_synced", self._write_synced)

    def _write_synced(self, fd: int, parts: Sequence[Bytes]) -> None:
        """Both steps of it: who dies in between has written, and nothing of it lasts."""
        disk.write(fd, b"".join(parts), 0)
        disk.sync(fd)

    def _step(self) -> None:
        self.count += 1
        if self.count >= self.limit:
            raise Crash

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any) -> Any:
            if real.__name__ == "write" and self.count + 1 == self.limit:
                fd, data, offset = arguments
                real(fd, memoryview(data)[: len(data) // 2], offset)  # killed in mid-write
            self._step()
            if real.__name__ == "rename" and arguments[0].is_dir():
                self._moved(*arguments)
            return real(*arguments)

        return act

    def _moved(self, old: Path, new: Path) -> None:
        """A directory takes the names in it along. (That it moved is taken to last at once.)"""
        for path in [each for each in self.names if each.is_relative_to(old)]:
            self.names[new / path.relative_to(old)] = self.names.pop(path)

    def _sync(self, fd: int) -> None:
        self._step()
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.is_dir():
            self.names[path] = {each.name: each.stat().st_ino for each in path.iterdir() if each.is_file()}
        else:
            self.content[os.fstat(fd).st_ino] = path.read_bytes()

    def blackout(self) -> None:
        """Leave only what was synced."""
        for directory in [self.root, *(each for each in self.root.rglob("*") if each.is_dir())]:
            for each in directory.iterdir():
                if each.is_file():
                    each.unlink()
            for name, inode in self.names.get(directory, {}).items():
                (directory / name).write_bytes(self.content.get(inode, b""))
