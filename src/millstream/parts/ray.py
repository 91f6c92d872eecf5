"""Parts made on a Ray cluster. The only file that imports Ray.

Each chunk is one task: the same function as here, on whichever node is free. A task whose node dies is made again
elsewhere. Files must lie under the same paths on every node; chunks of compressed files are decoded here and sent.
"""

from __future__ import annotations

import threading
from typing import Any

from millstream.errors import MissingExtra
from millstream.parts.part import Part, decode_part, encode_part
from millstream.parts.process import Job, make_part
from millstream.sources import Chunk, FoundFile

try:
    import ray
except ImportError as error:
    raise MissingExtra.of("ray", "ray") from error

RETRIES = 5
_sharing = threading.Lock()
_shared: dict[int, tuple[Job, Any]] = {}


def make_part_on_ray(job: Job, file: FoundFile, chunk: Chunk) -> Part:
    """Let a worker of the cluster make a part; connects to the cluster of $RAY_ADDRESS, or starts one here."""
    encoded: bytes = ray.get(_make.remote(_share(job), file, chunk))
    return decode_part(encoded)


@ray.remote(max_retries=RETRIES, num_cpus=1)
def _make(job: Job, file: FoundFile, chunk: Chunk) -> bytes:
    return encode_part(make_part(job, file, chunk))


def _share(job: Job) -> Any:
    """Send a job to the cluster once: its tokenizer may be large."""
    with _sharing:
        if not ray.is_initialized():
            ray.init(log_to_driver=False)
        if id(job) not in _shared:
            _shared.clear()
            _shared[id(job)] = (job, ray.put(job))
        return _shared[id(job)][1]
