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

RETRIES = 5


class RayCluster:
    """Makes parts on the cluster of $RAY_ADDRESS, or on one that it starts here."""

    def __init__(self) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingExtra.of("ray", "ray") from error
        self._ray = ray
        if not ray.is_initialized():
            ray.init(log_to_driver=False)
        self._make = ray.remote(max_retries=RETRIES, num_cpus=1)(_make_encoded)
        self._sharing = threading.Lock()
        self._shared: tuple[Job, Any] | None = None

    @property
    def processors(self) -> int:
        """How many parts the cluster makes at once."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def make_part(self, job: Job, file: FoundFile, chunk: Chunk) -> Part:
        """Let a worker of the cluster make a part."""
        encoded: bytes = self._ray.get(self._make.remote(self._share(job), file, chunk))
        return decode_part(encoded)

    def _share(self, job: Job) -> Any:
        """Send a job to the cluster once: its tokenizer may be large."""
        with self._sharing:
            if self._shared is None or self._shared[0] is not job:
                self._shared = (job, self._ray.put(job))
            return self._shared[1]


def _make_encoded(job: Job, file: FoundFile, chunk: Chunk) -> bytes:
    return encode_part(make_part(job, file, chunk))
