"""A folder of files, each under a name that says what it was made from: the cache, and the spool of a run.

A name is a hash of everything that decides the bytes, so a file that is found is right. Files are written beside and
renamed, so a reader sees whole files only.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from millstream.errors import LoaderError
from millstream.settings import local_path


def default_cache_dir() -> Path:
    """Where parts are kept unless told otherwise: $MILLSTREAM_CACHE, or the user's cache folder."""
    if chosen := os.environ.get("MILLSTREAM_CACHE"):
        return local_path(chosen, "a cache ($MILLSTREAM_CACHE)", LoaderError)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millstream"


def key_of(*made_from: object) -> str:
    """Name something by what it was made from.

    >>> key_of("a.txt", {"b": 1}) == key_of("a.txt", {"b": 1}) != key_of("a.txt", {"b": 2})
    True
    """
    text = json.dumps(made_from, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class FileCache:
    """Files by name, and small JSON notes by name.

    >>> cache = FileCache(Path(tempfile.mkdtemp()))
    >>> cache.put_note("0" * 32, {"chunks": 3}), cache.note("0" * 32), cache.note("1" * 32)
    (None, {'chunks': 3}, None)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bytes_written = 0

    def note(self, key: str) -> Any:
        """Find a note, or None."""
        try:
            return json.loads(self.path_of(key, ".json").read_bytes())
        except (FileNotFoundError, ValueError):
            return None

    def put_note(self, key: str, note: object) -> None:
        """Keep a note."""
        self.write(self.path_of(key, ".json"), json.dumps(note, separators=(",", ":")).encode())

    def prune(self, most_bytes: int) -> int:
        """Remove the least recently used files until `most_bytes` are left; gives how many bytes were removed."""
        files = [(stat.st_mtime, stat.st_size, path) for path in self.folder.rglob("*.*") if (stat := _stat(path))]
        left = sum(size for _, size, _ in files)
        removed = 0
        for _, size, path in sorted(files):
            if left <= most_bytes:
                break
            path.unlink(missing_ok=True)
            left, removed = left - size, removed + size
        return removed

    def path_of(self, key: str, suffix: str) -> Path:
        """Where the file of a name lies."""
        return self.folder / key[:2] / (key + suffix)

    def write(self, path: Path, data: bytes) -> int:
        """Put a file in its place, whole; gives its bytes."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, beside = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".tmp")
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            Path(beside).replace(path)
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise
        return len(data)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat() if path.is_file() else None
    except FileNotFoundError:
        return None
