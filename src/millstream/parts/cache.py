"""A folder of parts, each under a name that says what it was made from: the cache, and the spool of a run.

A name is a hash of everything that decides the bytes, so what is found is right, and what is not is made. Files are
written beside and renamed; a file that does not read as a part is removed and counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

from millstream.compression import LEVEL
from millstream.errors import LoaderError
from millstream.parts.part import DamagedPart, Part, decode_part, encode_part
from millstream.settings import local_path

log = logging.getLogger("millstream.parts")


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


class PartCache:
    """Parts by name, and small JSON notes by name.

    >>> cache = PartCache(Path(tempfile.mkdtemp()))
    >>> cache.put_note("0" * 32, {"chunks": 3}), cache.note("0" * 32), cache.note("1" * 32)
    (None, {'chunks': 3}, None)
    """

    def __init__(self, folder: Path, *, level: int | None = LEVEL) -> None:
        self.folder, self.level = folder, level
        self.bytes_written = 0

    def get(self, key: str) -> Part | None:
        """Find a part, or None."""
        path = self._path(key, ".part")
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            part = decode_part(data)
        except DamagedPart as error:
            log.warning("%s: %s; it is made again", path, error.message)
            path.unlink(missing_ok=True)
            return None
        os.utime(path)  # what was used last is pruned last
        return part

    def has(self, key: str | None) -> bool:
        """Whether a part is here (it may still turn out to be damaged)."""
        return key is not None and self._path(key, ".part").exists()

    def put(self, key: str, part: Part) -> None:
        """Keep a part."""
        self.bytes_written += self._write(self._path(key, ".part"), encode_part(part, self.level))

    def note(self, key: str) -> Any:
        """Find a note, or None."""
        try:
            return json.loads(self._path(key, ".json").read_bytes())
        except (FileNotFoundError, ValueError):
            return None

    def put_note(self, key: str, note: object) -> None:
        """Keep a note."""
        self._write(self._path(key, ".json"), json.dumps(note, separators=(",", ":")).encode())

    def prune(self, most_bytes: int) -> int:
        """Remove what was not used for longest until `most_bytes` are left; say how many bytes went."""
        files = [(stat.st_mtime, stat.st_size, path) for path in self.folder.rglob("*.*") if (stat := _stat(path))]
        left = sum(size for _, size, _ in files)
        removed = 0
        for _, size, path in sorted(files):
            if left <= most_bytes:
                break
            path.unlink(missing_ok=True)
            left, removed = left - size, removed + size
        return removed

    def _path(self, key: str, suffix: str) -> Path:
        return self.folder / key[:2] / (key + suffix)

    def _write(self, path: Path, data: bytes) -> int:
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
