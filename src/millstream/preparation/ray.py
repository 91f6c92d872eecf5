"""Parts made on a Ray cluster. The only file that imports Ray.

Each chunk is one task: the same function as here, on whichever node is free. A task whose node dies is made again
elsewhere. Files lie on a disk that all nodes share, under the same paths; chunks of compressed files are decoded here
and sent.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from functools import lru_cache
from typing import Any

from millstream.errors import MissingExtra, RecipeError, SourceError
from millstream.preparation.part import Part, decode_part, encode_part
from millstream.preparation.process import Job, make_part
from millstream.sources import Chunk, Format, FoundFile, format_named, register_format

RETRIES = 5


class RayCluster:
    """Makes parts on the cluster that this process is connected to, on that of $RAY_ADDRESS, or on one started here."""

    def __init__(self) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingExtra.of("ray", "ray") from error
        self._ray = ray
        if not ray.is_initialized():
            ray.init(log_to_driver=False, logging_level=logging.WARNING)
        self._make = ray.remote(max_retries=RETRIES, num_cpus=1)(_make_encoded)
        self._sharing = threading.Lock()
        self._shared: tuple[Job, Any] | None = None

    @property
    def processors(self) -> int:
        """How many parts the cluster makes at once."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def make_part(self, job: Job, file: FoundFile, chunk: Chunk) -> Part:
        """Let a worker of the cluster make a part; what it raises is raised here."""
        there = replace(file, path=file.path.absolute(), data=None)  # of an object, the chunk holds all that is needed
        task = self._make.remote([self._share(job)], format_named(file.format), there, chunk)
        try:
            encoded: bytes = self._ray.get(task)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self._ray.exceptions.RayError as error:
            raise SourceError(
                f"{file.name}: chunk {chunk.number}: {RETRIES + 1} workers of the cluster died of it",
                hint="look for the reason in Ray's logs: the memory of a node, or a step of the recipe that crashes",
            ) from error
        return decode_part(encoded)

    def _share(self, job: Job) -> Any:
        """Send a job to the cluster once: its tokenizer may be large."""
        with self._sharing:
            if self._shared is None or self._shared[0] is not job:
                self._shared = (job, self._put(job))
            return self._shared[1]

    def _put(self, job: Job) -> Any:
        try:
            return self._ray.put(job)
        except TypeError as error:
            raise RecipeError(
                f"the recipe or the tokenizer cannot be sent to the cluster: {str(error).splitlines()[0]}",
                hint="locks, open files and connections cannot travel: let a function make them at its first call",
            ) from error


def _make_encoded(shared: list[Any], format: Format, file: FoundFile, chunk: Chunk) -> bytes:
    """In a process of the cluster: make a part and write it down."""
    register_format(format)  # it may be one that only the user's process knows
    return encode_part(make_part(_fetched(shared[0]), file, chunk))


@lru_cache(maxsize=1)
def _fetched(job: Any) -> Job:
    """The job of a reference: fetched once, since a tokenizer is proven anew where it arrives."""
    import ray

    fetched: Job = ray.get(job)
    return fetched
