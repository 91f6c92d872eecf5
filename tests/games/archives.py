"""Small files of games: frames that are zero but for their version, and archives of every kind that Python writes."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

from millstream.games.chunk_source import FRAME_BYTES


def raw_game(frames: int, version: int = 6, mark: int = 0) -> bytes:
    """So many frames, whose `rule50_count` is `mark` in version 6."""
    frame = bytearray(FRAME_BYTES[version])
    frame[:4] = version.to_bytes(4, "little")
    frame[4] = 1
    if version == 6:
        frame[8277] = mark
    return bytes(frame) * frames


def packed_game(frames: int, version: int = 6, mark: int = 0) -> bytes:
    return gzip.compress(raw_game(frames, version, mark), 1, mtime=0)


def write_tar(
    path: Path, members: Iterable[tuple[str, bytes]], form: int = tarfile.GNU_FORMAT, pax: dict[str, str] | None = None
) -> Path:
    with tarfile.open(path, "w", format=form, pax_headers=pax or {}) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def write_games(path: Path, games: int, frames: int = 2) -> Path:
    """An archive of games, the i-th of which has the mark i."""
    return write_tar(path, ((f"games/{i:06d}.gz", packed_game(frames, mark=i % 256)) for i in range(games)))
