"""AdmissionState <-> the bytes of a sidecar: everything that admission holds, in a file beside the checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator

from millstream.admission.memory import AdmissionState
from millstream.errors import StateError
from millstream.rollouts import decode_all, encode_parts
from millstream.storage import RESTORE_SIDECAR, compact

MAGIC = b"MLSADMIT"
ALIGN = 64
ADMISSION_SIDECAR = "admission"


def encode_admission(state: AdmissionState) -> Iterator[bytes | memoryview]:
    """The content of the sidecar of a state, in parts. The same state is the same content."""
    fields = compact(state.fields)
    head = MAGIC + len(fields).to_bytes(8, "little") + fields
    yield head + bytes(-len(head) % ALIGN)
    for block in state.blocks:
        yield from encode_parts(block)


def decode_admission(data: bytes, where: object) -> AdmissionState:
    """Read it back; `where` is the file, for messages."""
    if not data.startswith(MAGIC):
        raise StateError(f"{where}: the sidecar of the state is damaged", hint=RESTORE_SIDECAR)
    stop = 16 + int.from_bytes(data[8:16], "little")
    found = decode_all(memoryview(data)[stop + -stop % ALIGN :])
    if found.torn is not None:
        raise StateError(f"{where}: {found.torn}", hint=RESTORE_SIDECAR)
    return AdmissionState(json.loads(data[16:stop]), found.blocks)
