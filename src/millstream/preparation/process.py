"""Chunks of files -> their parts: read, take the records through the recipe, encode; each part is made once.

Pure: the same chunk gives the same part. This is all that a worker does, whether it is a thread here or a process on
another machine. A run goes over all chunks of all files, in order, and finds the parts that an earlier run made.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from millstream import _core
from millstream.errors import SourceError, TokenizerError
from millstream.preparation.part import VERSION, Part, PartCache, RejectedRecord
from millstream.sources import BadRecord, Chunk, ChunkRead, FoundFile, Reading, RecordBlock, digesting, format_named
from millstream.stages import Threads, in_order
from millstream.storage import key_of
from millstream.store import codes_of, rounded, token_dtype, weigh
from millstream.tokens import Tokenizer, encode_flat, unfit_documents

if TYPE_CHECKING:
    from millstream.chats import DecidedChat
    from millstream.records import CleaningPipeline, PipelineResult, Recipe


UNFIT = "cannot be encoded"
ROUNDED = "weights rounded"
EXAMPLES = 3
EXAMPLE_BYTES = 2000
MEMORY_PER_CHUNK = 12
"""A chunk of n bytes, its records, its ids and its part take at most about this many times n bytes together."""


@dataclass(frozen=True)
class Job:
    """Everything that decides what becomes of a chunk.

    Of the records that a rule drops, each part keeps `EXAMPLES` per reason, shortened; or all of them, whole
    (`keep_rejected`).
    """

    reading: Reading
    recipe: Recipe
    tokenizer: Tokenizer
    eos_id: int | None
    dtype: str
    keep_rejected: bool = False
    before: Any = None
    after: Any = None
    chat: DecidedChat | None = None
    """Where records are rows of conversations: how they become tokens with weights."""

    @property
    def engine(self) -> str | None:
        """What encodes the texts, if that can be told."""
        return getattr(self.tokenizer, "engine", None) if self.chat is None else self.chat.encoder.engine

    @cached_property
    def pipeline(self) -> CleaningPipeline:
        """The steps of the recipe."""
        return self.recipe.pipeline(before=self.before, after=self.after)

    @cached_property
    def identity(self) -> list[Any] | None:
        """What parts depend on beside the chunk, as JSON; None if a step of the recipe cannot be identified."""
        digest = self.recipe.digest()
        if digest is None or self.before or self.after:
            return None
        settings = [self.eos_id, self.dtype, self.keep_rejected]
        chat = [] if self.chat is None else [self.chat.settings.identity]
        return [VERSION, asdict(self.reading), digest, self.tokenizer.fingerprint, *settings, *chat]

    def key(self, file: FoundFile, blake2b: str, chunk: int) -> str | None:
        """The name of a part, or None if it cannot have one."""
        return (
            None if self.identity is None or not blake2b else key_of("part", self.identity, file.format, blake2b, chunk)
        )


def make_part(job: Job, file: FoundFile, chunk: Chunk) -> Part:
    """Read a chunk, take its records through the recipe, and encode what remains."""
    return make_parts(job, [(file, chunk)])[0]


def make_parts(job: Job, chunks: Sequence[tuple[FoundFile, Chunk]]) -> list[Part]:
    """Make the parts of some chunks: the same as one by one, but all texts are encoded at once, as each call has its
    price."""
    read = [format_named(file.format).read(chunk, file, job.reading) for file, chunk in chunks]
    done = [job.pipeline.run(each.block) for each in read]
    if job.chat is None:
        made = _encoded(job, done)
    else:
        made = [_conversations(job.chat, each, file) for each, (file, _) in zip(done, chunks, strict=True)]
    return [_part(job, *each) for each in zip(chunks, read, done, made, strict=True)]


def _part(job: Job, source: tuple[FoundFile, Chunk], read: ChunkRead, done: PipelineResult, made: Documents) -> Part:
    file, chunk = source
    rows, starts, stops = (column[made.places] for column in (done.block.rows, done.block.starts, done.block.stops))
    return Part(
        tokens=made.tokens,
        ends=made.ends,
        origins=np.stack([rows, starts, stops], axis=1),
        rows=read.rows,
        source_bytes=chunk.stop - chunk.start,
        source_stop=chunk.behind(file.bytes),
        text_bytes=len(done.block.text),
        bad=sorted([*read.bad, *done.bad, *made.bad], key=lambda bad: bad.row),
        skipped=read.skipped,
        changed=dict(Counter(read.repaired) + Counter(done.notes) + made.notes),
        rejected=_examples(done, everything=job.keep_rejected),
        reasons=dict(done.counts + made.dropped),
        keys=[keys[made.places] for keys in done.keys],
    )


@dataclass(frozen=True, slots=True)
class Documents:
    """Tokens of documents end to end; document i came from record `places[i]` of the block."""

    tokens: NDArray[Any]
    ends: NDArray[np.int64]
    places: NDArray[np.int64]
    bad: list[BadRecord]
    dropped: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)


def _conversations(chat: DecidedChat, done: PipelineResult, file: FoundFile) -> Documents:
    """The tokens of all conversations, each with its weight in the loss."""
    from millstream.chats import encode_block
    from millstream.chats.parse import RowParser

    how = chat.settings
    made = encode_block(
        done.block,
        RowParser(chat.formats.of(file), how.options),
        chat.encoder,
        how.limit,
        how.kind or "chat",
        explode=how.explode,
        media=how.media,
    )
    codes = codes_of(made.weights)
    notes = made.notes + Counter({ROUNDED: rounded(made.weights, codes)})
    return Documents(weigh(made.ids, codes), made.ends, made.places, made.bad, made.dropped, notes)


def _encoded(job: Job, done: list[PipelineResult]) -> list[Documents]:
    """The tokens of all documents of some blocks; those that cannot be encoded are taken out of `done`."""
    if len(done) == 1:
        return [_encoded_alone(job, done[0])]
    blocks = [each.block for each in done]
    bytes_before = np.cumsum([0, *(len(block.text) for block in blocks)])
    text = np.concatenate([np.empty(0, np.uint8), *(block.text for block in blocks)])
    ends = [block.ends + before for block, before in zip(blocks, bytes_before[:-1].tolist(), strict=True)]
    try:
        tokens, stops = _tokens(job, text, np.concatenate([np.empty(0, np.int64), *ends]))
    except TokenizerError:
        return [_encoded_alone(job, each) for each in done]
    found, first, start = [], 0, 0
    for block in blocks:
        own = stops[first : first + len(block)]
        stop = int(own[-1]) if len(own) else start
        found.append(Documents(tokens[start:stop], own - start, np.arange(len(own)), []))
        first, start = first + len(block), stop
    return found


def _encoded_alone(job: Job, done: PipelineResult) -> Documents:
    unfit: list[BadRecord] = []
    try:
        tokens, ends = _tokens(job, done.block.text, done.block.ends)
    except TokenizerError as refusal:
        keep = np.ones(len(done.block), np.bool_)
        for document, error in unfit_documents(job.tokenizer, done.block.text, done.block.ends):
            keep[document] = False
            unfit.append(_unfit(done.block, document, error))
        if keep.all():
            raise refusal
        done.keys = [keys[keep] for keys in done.keys]
        done.block = done.block.select(keep)
        tokens, ends = _tokens(job, done.block.text, done.block.ends)
    return Documents(tokens, ends, np.arange(len(ends)), unfit)


def _tokens(job: Job, text: NDArray[np.uint8], ends: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The tokens of documents that lie end to end, each with its end token, and where each ends."""
    ids, ends = encode_flat(job.tokenizer, text, ends)
    out = np.empty(len(ids) + (0 if job.eos_id is None else len(ends)), token_dtype(job.dtype))
    _core.narrow_documents(ids, ends, job.eos_id, out)
    return out, ends if job.eos_id is None else ends + np.arange(1, len(ends) + 1)


def _unfit(block: RecordBlock, document: int, error: TokenizerError) -> BadRecord:
    return BadRecord(
        UNFIT, *block.origin(document), error.message, error.hint, block.bytes_of(document)[:EXAMPLE_BYTES]
    )


def _examples(done: PipelineResult, *, everything: bool) -> list[RejectedRecord]:
    kept: list[RejectedRecord] = []
    seen: Counter[str] = Counter()
    for dropped in done.rejected:
        for place, reason in enumerate(dropped.reasons):
            seen[reason] += 1
            if not everything and seen[reason] > EXAMPLES:
                continue
            raw = dropped.block.bytes_of(place)
            text = (raw if everything else raw[:EXAMPLE_BYTES]).decode(errors="ignore")
            row, start, stop = dropped.block.origin(place)
            kept.append(RejectedRecord(reason, row, start, stop, text))
    return kept


def without(part: Part, keep: NDArray[np.bool_]) -> Part:
    """Only the documents where `keep` is true.

    >>> ends, origins = np.array([2, 3]), np.array([[0, 0, 5], [1, 6, 9]])
    >>> part = Part(np.array([7, 8, 9], np.uint16), ends, origins, rows=2, source_bytes=9, source_stop=9, text_bytes=8)
    >>> left = without(part, np.array([False, True]))
    >>> left.tokens.tolist(), left.ends.tolist(), left.origins.tolist()
    ([9], [1], [[1, 6, 9]])
    """
    if keep.all():
        return part
    lengths = np.diff(part.ends, prepend=0)
    return replace(
        part,
        tokens=part.tokens[np.repeat(keep, lengths)],
        ends=np.cumsum(lengths[keep]),
        origins=part.origins[keep],
        keys=[keys[keep] for keys in part.keys],
    )


Make = Callable[[Job, FoundFile, Chunk], Part]


@dataclass(frozen=True, slots=True)
class Made:
    """A part, the number of its file, and the name under which it can be found again, if it has one."""

    file: int
    part: Part
    key: str | None


@dataclass(slots=True)
class PartCounts:
    """How many parts were made, and how many were found."""

    made: int = 0
    found: int = 0


class PrepareRun:
    """One pass over all files. `digests` holds the hash of each file that was begun."""

    def __init__(
        self, job: Job, files: Sequence[FoundFile], cache: PartCache | None, workers: Threads, make: Make = make_part
    ) -> None:
        self.job, self.files, self.cache, self.workers, self.make = job, files, cache, workers, make
        self.digests: list[str] = []
        self.counts = PartCounts()
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
