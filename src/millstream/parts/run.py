"""All chunks of all files -> their parts, in order, each made once: by a worker now, or by an earlier run."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from millstream.errors import SourceError
from millstream.parts.part import Part, PartCache
from millstream.parts.process import Job, make_part
from millstream.sources import Chunk, FoundFile, digesting, format_named
from millstream.stages import Threads, in_order
from millstream.storage import key_of

Make = Callable[[Job, FoundFile, Chunk], Part]


@dataclass(frozen=True, slots=True)
class Made:
    """A part, the number of its file, and the name under which it can be found again, if it has one."""

    file: int
    part: Part
    key: str | None


@dataclass(slots=True)
class Counts:
    """How many parts were made, and how many were found."""

    made: int = 0
    found: int = 0


class Run:
    """One pass over all files. `digests` holds the hash of each file that was begun."""

    def __init__(
        self, job: Job, files: Sequence[FoundFile], cache: PartCache | None, workers: Threads, make: Make = make_part
    ) -> None:
        self.job, self.files, self.cache, self.workers, self.make = job, files, cache, workers, make
        self.digests: list[str] = []
        self.counts = Counts()
        self._lock = threading.Lock()

    def parts(self, *, ahead: int, skip: int = 0) -> Iterator[Made]:
        """Give the parts of all chunks but the first `skip` in the order of the files; at most `ahead` are held."""
        return in_order(self.workers, self._obtain, islice(self._tasks(), skip, None), ahead=ahead)

    def _tasks(self) -> Iterator[tuple[int, Chunk, str | None]]:
        for number, digest in enumerate(digested(self.files, self.cache, self.workers)):
            self.digests.append(digest)
            file = self.files[number]
            for chunk in self._chunks(file, digest):
                yield number, chunk, self.job.key(file, digest, chunk.number)

    def _obtain(self, number: int, chunk: Chunk, key: str | None) -> Made:
        """Find a part or make it; in a worker."""
        part = None if key is None or self.cache is None else self.cache.get(key)
        found = part is not None
        if part is None:
            file = self.files[number]
            part = self.make(self.job, file, self._cut_again(file, chunk) if chunk.context is _KNOWN else chunk)
            key = key if part.lasts else None
            if key is not None and self.cache is not None:
                self.cache.put(key, part)
        with self._lock:
            self.counts.found += found
            self.counts.made += not found
        return Made(number, part, key)

    def _cut_again(self, file: FoundFile, known: Chunk) -> Chunk:
        """The chunk whose part was thought to be in the cache, and was damaged or left it meanwhile."""
        cut = format_named(file.format).chunks(file, self.job.reading)
        chunk = next((each for each in cut if each.number == known.number), None)
        if chunk is None:
            raise SourceError(f"{file.name}: the file has changed while it was read", hint="run again")
        return chunk

    def _chunks(self, file: FoundFile, digest: str) -> Iterator[Chunk]:
        """The chunks of a file; if all their parts are known, without reading it. What has no digest is not known."""
        if not digest or self.job.identity is None or self.cache is None:
            yield from format_named(file.format).chunks(file, self.job.reading)
            return
        key = key_of("chunks", self.job.identity[1], file.format, digest)
        plan = self.cache.note(key)
        if _is_plan(plan) and all(self.cache.has(self.job.key(file, digest, number)) for number in range(len(plan))):
            yield from (Chunk(number, start, stop, context=_KNOWN) for number, (start, stop) in enumerate(plan))
            return
        cut = []
        for chunk in format_named(file.format).chunks(file, self.job.reading):
            cut.append((chunk.start, chunk.stop))
            yield chunk
        self.cache.put_note(key, cut)


def digested(files: Sequence[FoundFile], cache: PartCache | None, workers: Threads) -> Iterator[str]:
    """The digest of each file, in order; files that come next are hashed meanwhile."""

    def begun(call: Callable[..., bytes], *arguments: object) -> Callable[[], bytes]:
        return workers.submit(call, *arguments).result

    waiting: deque[Callable[[], str]] = deque()
    for file in files:
        waiting.append(digesting(file, cache, begun))
        if len(waiting) > workers.count:
            yield waiting.popleft()()
    while waiting:
        yield waiting.popleft()()


_KNOWN = object()  # marks a chunk whose part is in the cache: nothing was read for it


def _is_plan(plan: object) -> bool:
    return isinstance(plan, list) and all(isinstance(each, list) and len(each) == 2 for each in plan)
