"""Verification: read everything, compare it with its checksums, and name what is damaged.

Files are read, not mapped: a bad disk then gives an error with a name, not a signal that ends the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from millstream.errors import StoreError
from millstream.store.foreign import megatron_arrays
from millstream.store.format import (
    FRAME_BYTES,
    Words,
    hash_blocks,
    map_body,
    open_regular,
    token_dtype,
    xxh64,
)
from millstream.store.layout import Layout
from millstream.store.mapped import check_index, check_tokens
from millstream.store.table import BOUND, TAG, TOKENS, total

CHUNK_BYTES = 1 << 22
NO_SUMS = "no checksums (.sum): only counts, order and the range of ids can be checked"

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong: the file and, for a damaged block, its number and bytes [start, stop)."""

    file: str
    what: str
    block: int | None = None
    start: int | None = None
    stop: int | None = None

    def __str__(self) -> str:
        where = "" if self.block is None else f" block {self.block} (bytes {self.start} to {self.stop}):"
        return f"{self.file}:{where} {self.what}"


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
    """Check one shard; yields the bytes of tokens checked so far. A file that cannot be read is a damage."""
    path = layout.path_of(shard)
    try:
        if layout.index == "megatron":
            verify_megatron(layout, report)
        if layout.header_bytes:
            yield from verify_ours(layout, shard, report)
        else:
            report.unchecked.append(f"{path}: {NO_SUMS}")
            yield from scan(path, 0, Expected(path, None, report, limit=1 << 32, dtype=layout.dtype))
    except StoreError as error:
        report.damages.append(Damage(str(path), error.message))
    except OSError as error:
        report.damages.append(Damage(str(path), f"cannot be read: {error}"))


def verify_ours(layout: Layout, shard: int, report: Report) -> Iterator[int]:
    """Check frames, tags, blocks, ids and document ends of one of our shards."""
    path = layout.path_of(shard)
    frame, _ = map_body(path, "T")
    check_tokens(path, frame, layout, shard)
    sums, block_bytes = load_sums(layout, shard, report)
    blocks = -(-frame.count * frame.entry.itemsize // block_bytes)
    limit = int(layout.table[shard, BOUND])
    of_tokens = None if sums is None else sums[:blocks]
    yield from scan(path, FRAME_BYTES, Expected(path, of_tokens, report, limit, layout.dtype, block_bytes))
    if layout.index != "ends":
        return
    path = layout.path_of(shard, ".idx")
    frame, ends = map_body(path, "D")
    check_index(path, frame, layout, shard)
    of_ends = None if sums is None else sums[blocks:]
    for _ in scan(path, FRAME_BYTES, Expected(path, of_ends, report, block_bytes=block_bytes)):
        pass
    verify_ends(path, ends, int(layout.table[shard, TOKENS]), report)


def load_sums(layout: Layout, shard: int, report: Report) -> tuple[Words | None, int]:
    """Read the checksums of a shard; a list that is damaged or not there is reported."""
    path = layout.path_of(shard, ".sum")
    if layout.file and not path.exists():
        report.unchecked.append(f"{path.with_suffix('.bin')}: {NO_SUMS}")
        return None, CHUNK_BYTES
    try:
        frame, sums = map_body(path, "C")
    except StoreError as error:
        report.damages.append(Damage(str(path), error.message))
        return None, CHUNK_BYTES
    if frame.tag != int(layout.table[shard, TAG]) or xxh64(sums) != frame.tag:
        report.damages.append(Damage(str(path), "the list of checksums is damaged or of another shard"))
        return None, CHUNK_BYTES
    return sums, frame.bound


@dataclass
class Expected:
    """What a body should be: its block checksums, and for tokens the range of its ids."""

    path: Path
    sums: Words | None
    report: Report
    limit: int = 0
    dtype: str = ""
    block_bytes: int = CHUNK_BYTES

    def check(self, offset: int, first: int, data: NDArray[np.uint8]) -> None:
        """Check a run of whole blocks that starts at block `first` and at byte `offset` of the file."""
        self.report.bytes += data.size
        if self.sums is not None:
            self._check_blocks(offset, first, data)
        if self.dtype:
            self._check_ids(offset, data.view(token_dtype(self.dtype)))

    def _check_blocks(self, offset: int, first: int, data: NDArray[np.uint8]) -> None:
        found = hash_blocks(data, self.block_bytes)
        self.report.blocks += len(found)
        assert self.sums is not None
        wanted = self.sums[first : first + len(found)]
        if len(wanted) != len(found):
            self.report.damages.append(Damage(str(self.path), f"block {first} has no checksum", first))
            return
        for block in np.flatnonzero(found != wanted).tolist():
            start = offset + block * self.block_bytes
            stop = min(start + self.block_bytes, offset + data.size)
            self.report.damages.append(
                Damage(str(self.path), "the checksum does not agree", first + block, start, stop)
            )

    def _check_ids(self, offset: int, ids: NDArray[np.integer]) -> None:
        signed = ids.dtype.kind == "i"
        if int(ids.max()) >= self.limit or (signed and int(ids.min()) < 0):
            place = int(((ids >= self.limit) | (ids < 0)).argmax())
            where = offset + place * ids.itemsize
            self.report.damages.append(
                Damage(str(self.path), f"id {ids[place]} at byte {where} is not in 0..{self.limit - 1}")
            )


def scan(path: Path, offset: int, expected: Expected) -> Iterator[int]:
    """Read a body in runs of whole blocks and check each; yields the bytes of each run."""
    run = max(CHUNK_BYTES, expected.block_bytes)
    buffer = np.empty(run, np.uint8)
    fd = open_regular(path)
    try:
        end, block = os.fstat(fd).st_size, 0
        while offset < end:
            data = buffer[: min(run, end - offset)]
            if os.preadv(fd, [data.data], offset) != data.size:
                raise StoreError(f"{path}: ends while it is read, at byte {offset}")
            expected.check(offset, block, data)
            offset += data.size
            block += run // expected.block_bytes
            yield data.size
    finally:
        os.close(fd)


def verify_ends(path: Path, ends: Words, tokens: int, report: Report) -> None:
    """Check that document ends rise to the shard's last token."""
    step, before = CHUNK_BYTES // 8, 0
    for first in range(0, len(ends), step):
        part = ends[first : first + step]
        falls = np.flatnonzero(part < np.append(np.uint64(before), part[:-1]))
        if falls.size:
            report.damages.append(Damage(str(path), f"document {first + int(falls[0])} ends before it starts"))
        before = int(part[-1])
    if before != tokens:
        report.damages.append(Damage(str(path), f"the last document ends at {before}, the shard at {tokens}"))


def verify_megatron(layout: Layout, report: Report) -> None:
    """Check that Megatron's lengths, pointers and boundaries describe one run of tokens, in order."""
    lengths, pointers, boundaries = megatron_arrays(layout)
    width, step, start = token_dtype(layout.dtype).itemsize, CHUNK_BYTES // 8, 0
    for first in range(0, layout.sequences, step):
        sizes = lengths[first : first + step].astype(np.int64) * width
        wanted = start + np.cumsum(sizes) - sizes
        bad = np.flatnonzero((sizes < 0) | (pointers[first : first + step] != wanted))
        if bad.size:
            what = f"sequence {first + int(bad[0])} does not start where the one before it ends"
            report.damages.append(Damage(layout.index_file, what))
            return
        start += int(sizes.sum())
    for first in range(0, layout.boundaries - 1, step):
        part = boundaries[first : first + step + 1]
        bad = np.flatnonzero((part[1:] < part[:-1]) | (part[1:] > layout.sequences))
        if bad.size:
            what = f"document {first + int(bad[0])} ends before it starts, or beyond the last sequence"
            report.damages.append(Damage(layout.index_file, what))
            return
