"""A chunk -> its part: read, take the records through the recipe, encode. Pure: the same chunk gives the same part.

This is all that a worker does, whether it is a thread here or a process on another machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from millstream import _core
from millstream.errors import TokenizerError
from millstream.preparation.part import VERSION, Part, Rejected
from millstream.sources import BadRecord, Chunk, ChunkRead, FoundFile, Reading, RecordBlock, format_named
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
        """Who encodes the texts, if that can be told."""
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


def _examples(done: PipelineResult, *, everything: bool) -> list[Rejected]:
    kept: list[Rejected] = []
    seen: Counter[str] = Counter()
    for dropped in done.rejected:
        for place, reason in enumerate(dropped.reasons):
            seen[reason] += 1
            if not everything and seen[reason] > EXAMPLES:
                continue
            raw = dropped.block.bytes_of(place)
            text = (raw if everything else raw[:EXAMPLE_BYTES]).decode(errors="ignore")
            row, start, stop = dropped.block.origin(place)
            kept.append(Rejected(reason, row, start, stop, text))
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
