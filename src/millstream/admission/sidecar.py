"""The sidecar of a state: everything that admission holds, in a file beside the checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from millstream.admission.memory import AdmissionState
from millstream.errors import StateError
from millstream.rollouts.codec import decode_all, encode_parts
from millstream.storage import compact, sidecar

MAGIC = b"MLSADMIT"
ALIGN = 64
KIND = "admission"


def save(folder: str | os.PathLike[str], state: AdmissionState) -> dict[str, Any]:
    """Write a state into a folder; gives what the checkpoint says of it. The same state is the same file."""
    return sidecar.save(folder, KIND, _parts(state))


def _parts(state: AdmissionState) -> Iterable[bytes | memoryview]:
    fields = compact(state.fields)
    head = MAGIC + len(fields).to_bytes(8, "little") + fields
    yield head + bytes(-len(head) % ALIGN)
    for block in state.blocks:
        yield from encode_parts(block)


def load(folder: str | os.PathLike[str], named: Mapping[str, Any]) -> AdmissionState:
    """Read the state that a checkpoint names."""
    data = sidecar.load([folder], KIND, named)
    where = Path(folder, str(named["file"]))
    if not data.startswith(MAGIC):
        raise StateError(f"{where}: the sidecar of the state is damaged", hint=sidecar.ELSEWHERE)
    stop = 16 + int.from_bytes(data[8:16], "little")
    found = decode_all(memoryview(data)[stop + -stop % ALIGN :])
    if found.torn is not None:
        raise StateError(f"{where}: {found.torn}", hint=sidecar.ELSEWHERE)
    return AdmissionState(json.loads(data[16:stop]), found.blocks)


def release(folder: str | os.PathLike[str], keep: Iterable[Mapping[str, Any]]) -> int:
    """Remove the sidecars that none of the named states needs; gives how many these were."""
    return sidecar.release(folder, KIND, keep)
