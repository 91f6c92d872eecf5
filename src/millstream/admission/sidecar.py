"""The sidecar of a state: everything that admission holds, in a file beside the checkpoint, named by its content.

A state that is committed names its sidecar, so the file is written before, and removed only when no state needs it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from millstream.admission.memory import AdmissionState
from millstream.errors import StateError
from millstream.rollouts.codec import decode_all, encode_parts
from millstream.store import disk
from millstream.store.manifest import compact

MAGIC = b"MLSADMIT"
ALIGN = 64
NAME_BYTES = 16
FREE_SPACE = "free some space: without its sidecar a state cannot be gone on from"
ELSEWHERE = "keep what a state names beside it; states older than the last committed one are gone: take that one"


def save(folder: str | os.PathLike[str], state: AdmissionState) -> dict[str, Any]:
    """Write a state into a folder; gives what the checkpoint says of it. The same state is the same file."""
    folder = Path(folder)
    beside, digest, size = folder / "admission.tmp", hashlib.blake2b(digest_size=NAME_BYTES), 0
    with disk.reported(folder, full=FREE_SPACE):
        disk.make_directory(folder)
        fd = disk.create(beside)
        try:
            for part in _parts(state):
                disk.write(fd, part, size)
                digest.update(part)
                size += memoryview(part).nbytes
            disk.sync(fd)
        finally:
            os.close(fd)
        name = f"admission-{digest.hexdigest()}.bin"
        disk.rename(beside, folder / name)
        disk.sync_directory(folder)
    return {"file": name, "bytes": size}


def _parts(state: AdmissionState) -> Iterable[bytes | memoryview]:
    fields = compact(state.fields)
    head = MAGIC + len(fields).to_bytes(8, "little") + fields
    yield head + bytes(-len(head) % ALIGN)
    for block in state.blocks:
        yield from encode_parts(block)


def load(folder: str | os.PathLike[str], named: Mapping[str, Any]) -> AdmissionState:
    """Read the state that a checkpoint names."""
    name = named.get("file")
    if not isinstance(name, str) or Path(name).name != name or not name.startswith("admission-"):
        raise StateError(f"the state names {name!r} as its sidecar", hint="it was changed by hand or damaged")
    path = Path(folder, name)
    if not path.is_file():
        raise StateError(f"{path}: the sidecar of the state is missing", hint=ELSEWHERE)
    with disk.reported(path):
        data = path.read_bytes()
    digest = hashlib.blake2b(data, digest_size=NAME_BYTES).hexdigest()
    if name != f"admission-{digest}.bin" or not data.startswith(MAGIC):
        raise StateError(f"{path}: the sidecar of the state is damaged", hint=ELSEWHERE)
    stop = 16 + int.from_bytes(data[8:16], "little")
    found = decode_all(memoryview(data)[stop + -stop % ALIGN :])
    if found.torn is not None:
        raise StateError(f"{path}: {found.torn}", hint=ELSEWHERE)
    return AdmissionState(json.loads(data[16:stop]), found.blocks)


def release(folder: str | os.PathLike[str], keep: Iterable[Mapping[str, Any]]) -> int:
    """Remove the sidecars that none of the named states needs; gives how many these were."""
    needed = {named.get("file") for named in keep}
    gone = [path for path in Path(folder).glob("admission-*.bin") if path.name not in needed]
    with disk.reported(Path(folder), full="free some space, then commit the state again"):
        for path in gone:
            disk.remove(path)
    return len(gone)
