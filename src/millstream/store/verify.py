"""Verification: read everything, compare it with its checksums, and name what is damaged.

Bodies are read in runs of whole blocks, not mapped: a bad disk then gives an error with a name, not a signal that ends
the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream.errors import StoreError
from millstream.storage import disk
from millstream.store.compressed_blocks import Damage, PackedTokens
from millstream.store.foreign import megatron_arrays
from millstream.store.frames import (
    FRAME_BYTES,
    SHRUNK,
    Words,
    hash_blocks,
    index_kind,
    open_body,
    read_frame,
    token_dtype,
    words_of_an_end,
    xxh64,
)
from millstream.store.layout import BOUND, TAG, TOKENS, Layout, total
from millstream.store.shard_files import check_index, check_tokens, open_tokens
from millstream.store.weighted_tokens import ids_in

NO_SUMS = "no checksums (.sum): only counts, order and the range of ids can be checked"

Progress = Callable[[int, int], None]


def verify_store(layout: Layout, progress: Progress | None = None) -> Report:
    """Check every file of a store."""
    report, width = Report(), token_dtype(layout.dtype).itemsize
    whole = total(layout.table, TOKENS) * width
    done = 0
    for shard in range(len(layout.table)):
        for size in verify_shard(layout, shard, report):
            done += size
            if progress is not None:
                progress(done, whole)
    return report


def verify_shard(layout: Layout, shard: int, report: Report) -> Iterator[int]:
    """Check one shard; yields the bytes of tokens checked. A file that cannot be read is a damage."""
    path = layout.path_of(shard)
    try:
        if layout.index == "megatron":
            verify_megatron(layout, report)
        if layout.header_bytes:
            yield from verify_ours(layout, shard, report)
        else:
            report.unchecked.append(f"{path}: {NO_SUMS}")
            yield from scan(TokenBody(path, report, dtype=layout.dtype), 0)
    except StoreError as error:
        report.damages.append(Damage(str(path), error.message))
    except OSError as error:
        report.damages.append(Damage(str(path), f"cannot be read: {error}"))


def verify_ours(layout: Layout, shard: int, report: Report) -> Iterator[int]:
    """Check frames, tags, blocks, ids and document ends of one of our shards."""
    path, row = layout.path_of(shard), layout.table[shard]
    frame, tokens = open_tokens(path)
    check_tokens(path, frame, layout, shard)
    sums, size = load_sums(layout, shard, report)
    cut = -(-frame.count * frame.entry.itemsize // size)  # blocks of tokens; then come those of the index
    of_tokens, of_ends = (None, None) if sums is None else (sums[:cut], sums[cut:])
    body = TokenBody(path, report, of_tokens, size, layout.dtype, int(row[BOUND]))
    yield from scan_packed(body, tokens) if isinstance(tokens, PackedTokens) else scan(body, FRAME_BYTES)
    if layout.index != "ends":
        return
    path = layout.path_of(shard, ".idx")
    check_index(path, read_frame(path, index_kind(layout.dtype)), layout, shard)
    ends = EndsBody(path, report, of_ends, size, words=words_of_an_end(layout.dtype))
    for _ in scan(ends, FRAME_BYTES):
        pass
    if ends.last != int(row[TOKENS]):
        what = f"the last document ends at {ends.last}, the shard at {row[TOKENS]}"
        report.damages.append(Damage(str(path), what))


def load_sums(layout: Layout, shard: int, report: Report) -> tuple[Words | None, int]:
    """Read the checksums of a shard; a list that is damaged or not there is reported."""
    path = layout.path_of(shard, ".sum")
    if layout.file and not path.exists():
        report.unchecked.append(f"{path.with_suffix('.bin')}: {NO_SUMS}")
        return None, RUN_BYTES
    try:
        frame, body = open_body(path, "C")
        sums: Words = body.read(range(len(body)))
    except StoreError as error:
        report.damages.append(Damage(str(path), error.message))
        return None, RUN_BYTES
    if frame.tag != int(layout.table[shard, TAG]) or xxh64(sums) != frame.tag:
        report.damages.append(Damage(str(path), "the list of checksums is damaged or of another shard"))
        return None, RUN_BYTES
    return sums, frame.bound


def verify_megatron(layout: Layout, report: Report) -> None:
    """Check that Megatron's lengths, pointers and boundaries describe one run of tokens, in order."""
    lengths, pointers, boundaries = megatron_arrays(layout)
    width, step, start = token_dtype(layout.dtype).itemsize, RUN_BYTES // 8, 0
    for first in range(0, layout.sequences, step):
        here = range(first, min(first + step, layout.sequences))
        sizes = lengths.read(here).astype(np.int64) * width
        wanted = start + np.cumsum(sizes) - sizes
        bad = np.flatnonzero((sizes < 0) | (pointers.read(here) != wanted))
        if bad.size:
            what = f"sequence {first + int(bad[0])} does not start where the one before it ends"
            report.damages.append(Damage(layout.index_file, what))
            return
        start += int(sizes.sum())
    for first in range(0, layout.boundaries - 1, step):
        part = boundaries.read(range(first, min(first + step + 1, layout.boundaries)))
        bad = np.flatnonzero((part[1:] < part[:-1]) | (part[1:] > layout.sequences))
        if bad.size:
            what = f"document {first + int(bad[0])} ends before it starts, or beyond the last sequence"
            report.damages.append(Damage(layout.index_file, what))
            return


RUN_BYTES = 1 << 22


@dataclass
class Report:
    """What `verify()` found; `unchecked` says what could not be checked and why."""

    blocks: int = 0
    bytes: int = 0
    damages: list[Damage] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing is damaged."""
        return not self.damages

    def __str__(self) -> str:
        state = "ok" if self.ok else f"{len(self.damages)} damages"
        head = f"{state}: {self.blocks} blocks, {self.bytes} bytes checked"
        return "\n".join([head, *map(str, self.damages), *self.unchecked])


@dataclass
class Body:
    """What a body should be: its block checksums, if they are known, and what its entries may be."""

    path: Path
    report: Report
    sums: Words | None = None
    block_bytes: int = RUN_BYTES

    def check(self, offset: int, first: int, data: NDArray[np.uint8]) -> None:
        """Check a run of whole blocks that starts at block `first` and at byte `offset` of the file."""
        self.report.bytes += data.size
        if self.sums is not None:
            self._check_blocks(self.sums, offset, first, data)
        self._check_entries(offset, data)

    def _check_blocks(self, sums: Words, offset: int, first: int, data: NDArray[np.uint8]) -> None:
        found = hash_blocks(data, self.block_bytes)
        self.report.blocks += len(found)
        wanted = sums[first : first + len(found)]
        if len(wanted) != len(found):
            self._add(f"block {first} or one behind it has no checksum")
            return
        for block in np.flatnonzero(found != wanted).tolist():
            start = offset + block * self.block_bytes
            stop = min(start + self.block_bytes, offset + data.size)
            self._add("the checksum does not agree", first + block, start, stop)

    def _check_entries(self, offset: int, data: NDArray[np.uint8]) -> None:
        """Check what the entries say; each kind of body has its own rule."""

    def _add(self, what: str, *block: int) -> None:
        self.report.damages.append(Damage(str(self.path), what, *block))


@dataclass
class TokenBody(Body):
    """Token ids: each is below `limit`."""

    dtype: str = "uint16"
    limit: int = 1 << 32

    def _check_entries(self, offset: int, data: NDArray[np.uint8]) -> None:
        ids: NDArray[Any] = data.view(token_dtype(self.dtype))
        ids = ids_in(ids, self.dtype)
        if int(ids.max()) < self.limit and (ids.dtype.kind == "u" or int(ids.min()) >= 0):
            return
        place = int(((ids >= self.limit) | (ids < 0)).argmax())
        where = offset + place * ids.itemsize
        self._add(f"id {ids[place]} at byte {where} is not in 0..{self.limit - 1}")


@dataclass
class EndsBody(Body):
    """Document ends: they never fall."""

    last: int = 0
    documents: int = 0
    words: int = 1
    """Of each document; the first is its end."""

    def _check_entries(self, offset: int, data: NDArray[np.uint8]) -> None:
        ends = data.view(np.uint64)[:: self.words]
        falls = np.flatnonzero(ends < np.append(np.uint64(self.last), ends[:-1]))
        if falls.size:
            self._add(f"document {self.documents + int(falls[0])} ends before it starts")
        self.last, self.documents = int(ends[-1]), self.documents + len(ends)


def scan(body: Body, offset: int) -> Iterator[int]:
    """Read a file from `offset` to its end and check it; yields the bytes of each run."""
    run = max(RUN_BYTES, body.block_bytes)
    buffer = np.empty(run, np.uint8)
    fd = disk.open_regular(body.path)
    try:
        end, block = os.fstat(fd).st_size, 0
        while offset < end:
            data = buffer[: min(run, end - offset)]
            if os.preadv(fd, [data.data], offset) != data.size:
                raise StoreError(f"{body.path}: ends while it is read, at byte {offset}", hint=SHRUNK)
            body.check(offset, block, data)
            offset += data.size
            block += run // body.block_bytes
            yield data.size
    finally:
        os.close(fd)


def scan_packed(body: Body, packed: PackedTokens) -> Iterator[int]:
    """Decode a file and check it as if it were plain; yields the decoded bytes of each run."""
    run = max(body.block_bytes, packed.block_bytes)  # both are powers of two
    step = run // packed.block_bytes
    for number, first in enumerate(range(0, packed.blocks, step)):
        tokens, damages = packed.decode(first, min(first + step, packed.blocks))
        if damages:
            body.report.damages += damages
        else:
            body.check(number * run, number * run // body.block_bytes, tokens.view(np.uint8))
        yield tokens.nbytes
