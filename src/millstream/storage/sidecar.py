"""Sidecars: files beside a checkpoint that hold what does not fit into a state, named by their content.

The file is written and synced before the state that names it. `commit` releases it when no later state needs it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from millstream.errors import StateError
from millstream.storage import disk

NAME_BYTES = 16
FREE_SPACE = "free some space: without its sidecar a state cannot be gone on from"
ELSEWHERE = "restore the file, or take another checkpoint; commit() removes the files of states older than its own"


def file_of(kind: str, data: disk.Bytes) -> str:
    """The name of the file with this content."""
    return f"{kind}-{hashlib.blake2b(data, digest_size=NAME_BYTES).hexdigest()}.bin"


def save(
    folder: str | os.PathLike[str], kind: str, parts: Iterable[disk.Bytes], *, writer: int | str = 0
) -> dict[str, Any]:
    """Write parts into a file of a folder; gives what the state says of it. The same content is the same file.

    Writers with different names, such as ranks, may save at the same time.
    """
    folder = Path(folder)
    beside, digest, size = (
        folder / (f"{kind}.{writer}.tmp" if writer else f"{kind}.tmp"),
        hashlib.blake2b(digest_size=NAME_BYTES),
        0,
    )
    with disk.reported(folder, full=FREE_SPACE):
        disk.make_directory(folder)
        fd = disk.create(beside)
        try:
            for part in parts:
                disk.write(fd, part, size)
                digest.update(part)
                size += memoryview(part).nbytes
            disk.sync(fd)
        except BaseException:
            disk.remove(beside)
            raise
        finally:
            os.close(fd)
        name = f"{kind}-{digest.hexdigest()}.bin"
        disk.rename(beside, folder / name)
        disk.sync_directory(folder)
    return {"file": name, "bytes": size}


def load(folders: Sequence[str | os.PathLike[str]], kind: str, named: Mapping[str, Any]) -> bytes:
    """Read the file that a state names from the first of these folders that has it, and check that it is that one."""
    name = named.get("file")
    if not isinstance(name, str) or Path(name).name != name or not name.startswith(f"{kind}-"):
        raise StateError(f"the state names {name!r} as its sidecar", hint="it was changed by hand or damaged")
    path = next((path for path in (Path(folder, name) for folder in folders) if path.is_file()), None)
    if path is None:
        raise StateError(f"{Path(folders[0], name)}: the sidecar of the state is missing", hint=ELSEWHERE)
    with disk.reported(path):
        data = path.read_bytes()
    if name != file_of(kind, data):
        raise StateError(f"{path}: the sidecar of the state is damaged", hint=ELSEWHERE)
    return data


def release(folder: str | os.PathLike[str], kind: str, keep: Iterable[Mapping[str, Any]]) -> int:
    """Remove the sidecars that no named state needs; gives how many were removed."""
    needed = {named.get("file") for named in keep}
    gone = [path for path in Path(folder).glob(f"{kind}-*.bin") if path.name not in needed]
    with disk.reported(Path(folder), full="free some space, then commit the state again"):
        for path in gone:
            disk.remove(path)
    return len(gone)
