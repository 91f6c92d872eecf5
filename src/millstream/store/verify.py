"""Verification: read everything, compare it with its checksums, and name what is damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from millstream.errors import StoreError
from millstream.store.bodies import RUN_BYTES, Damage, EndsBody, Report, TokenBody, scan
from millstream.store.foreign import megatron_arrays
from millstream.store.format import FRAME_BYTES, Words, index_kind, read_frame, token_dtype, words_of_an_end, xxh64
from millstream.store.layout import Layout
from millstream.store.mapped import check_index, check_tokens, open_tokens
from millstream.store.numbers import open_body
from millstream.store.packed import PackedTokens, scan_packed
from millstream.store.table import BOUND, TAG, TOKENS, total

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
