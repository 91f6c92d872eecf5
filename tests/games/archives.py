"""Small files of games: frames that are zero but for their version, and archives of every kind that Python writes."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

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


def varied_game(frames: int, seed: int) -> bytes:
    """A packed game of version 6 in which no two frames are alike; it is no chess."""
    rng = np.random.default_rng(seed)
    raw = np.zeros((frames, FRAME_BYTES[6]), np.uint8)
    raw[:, :8].view("<u4")[:] = 6, 1
    raw[:, 8:7440].view("<f4")[:] = -1
    raw[:, 8:72].view("<f4")[:] = rng.random((frames, 16))
    raw[:, 7440:8272] = rng.integers(0, 256, (frames, 832))
    raw[:, 8277] = rng.integers(0, 100, frames)
    raw[:, 8280:8340].view("<f4")[:] = rng.random((frames, 15))
    return gzip.compress(raw.tobytes(), 1, mtime=0)


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
