"""Token files of other systems, read in place: bare arrays of ids (nanoGPT) and Megatron's pairs.

At open, counts and ends are checked against the sizes of the files, which takes the same time for any size;
`verify()` checks every entry.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from millstream.errors import StoreError
from millstream.storage import disk
from millstream.store.frames import Numbers, token_dtype
from millstream.store.layout import Layout, MegatronIndex, Row, rows_of

MEGATRON_MAGIC = b"MMIDIDX\0\0"
MEGATRON_HEADER = 34
MEGATRON_DTYPES = {4: "int32", 8: "uint16"}
OTHER_CODES = {1: "uint8", 2: "int8", 3: "int16", 5: "int64", 6: "float64", 7: "float32"}
LLM_C_MAGIC = 20240520
SAMPLES, SAMPLE_BYTES = 64, 1 << 16
PAIR = "the pair does not belong together, is cut off, or is not in file order"


def open_bare(path: Path, dtype: str) -> Layout:
    """Describe a bare array of ids: one shard, one document."""
    tokens = whole_tokens(path, dtype)
    refuse_headers(path, path.stat().st_size)
    return Layout("", str(path), dtype, 0, one_row(tokens, 1), "none")


def one_row(tokens: int, documents: int) -> np.ndarray:
    """Make the table of a file that has none; its tag and bound are unknown."""
    return rows_of([Row(tokens, documents, tag=0, bound=0, file=0)])


def whole_tokens(path: Path, dtype: str) -> int:
    """Count the ids of a file of nothing but ids."""
    size, width = file_bytes(path), token_dtype(dtype).itemsize
    if size == 0:
        raise StoreError(f"{path}: the file is empty", hint="it was not written, or not copied; write it again")
    if size % width:
        raise StoreError(
            f"{path}: {size} bytes are no whole number of {dtype} ids",
            hint="the file is cut off, or dtype= is not the one it was written with",
        )
    return size // width


def file_bytes(path: Path) -> int:
    """Size of a regular file."""
    fd = disk.open_regular(path)
    try:
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def refuse_headers(path: Path, size: int) -> None:
    """Refuse files that begin with a header of a known kind: it would be read as ids."""
    with path.open("rb") as file:
        start = file.read(12)
    if start.startswith(b"\x93NUMPY"):
        raise StoreError(f"{path}: this is a .npy file", hint="write its array with .tofile() instead")
    if len(start) < 12:
        return
    magic, version, tokens = (int(word) for word in np.frombuffer(start, "<u4"))
    if magic == LLM_C_MAGIC and version in (1, 7) and 1024 + tokens * (2 if version == 1 else 4) == size:
        raise StoreError(
            f"{path}: this file has llm.c's header of 1024 bytes", hint="copy it without them: tail -c +1025"
        )


def is_megatron_index(path: Path) -> bool:
    """Tell whether a file starts with Megatron's magic number."""
    try:
        fd = disk.open_regular(path)
    except StoreError:
        return False
    try:
        return os.pread(fd, len(MEGATRON_MAGIC), 0) == MEGATRON_MAGIC
    finally:
        os.close(fd)


def open_megatron(tokens_path: Path) -> Layout:
    """Describe a Megatron pair, once its counts, sizes and ends agree."""
    path = tokens_path.with_suffix(".idx")
    size = file_bytes(path)
    if size < MEGATRON_HEADER:
        raise StoreError(f"{path}: {size} bytes are too few for a Megatron index", hint=PAIR)
    with path.open("rb") as header:
        start = header.read(MEGATRON_HEADER)
    version = int.from_bytes(start[9:17], "little")
    if version != 1:
        raise StoreError(
            f"{path}: Megatron index version {version} cannot be read, only version 1",
            hint="write it again with a Megatron that writes version 1",
        )
    dtype = megatron_dtype(path, start[17])
    sequences = int.from_bytes(start[18:26], "little")
    boundaries = int.from_bytes(start[26:34], "little")
    promised = MEGATRON_HEADER + 12 * sequences + 8 * boundaries
    if promised != size:
        raise StoreError(
            f"{path}: {sequences} sequences and {boundaries} boundaries make {promised} bytes, not {size}",
            hint="indexes with modes (multimodal) cannot be read" if promised + sequences == size else PAIR,
        )
    pointers = MEGATRON_HEADER + 4 * sequences
    layout = Layout(
        directory="",
        file=str(tokens_path),
        dtype=dtype,
        header_bytes=0,
        table=one_row(file_bytes(tokens_path) // token_dtype(dtype).itemsize, max(boundaries - 1, 0)),
        index="megatron",
        index_file=str(path),
        pointers_offset=pointers,
        boundaries_offset=pointers + 8 * sequences,
        sequences=sequences,
        boundaries=boundaries,
    )
    check_megatron_ends(layout)
    return layout


def megatron_dtype(path: Path, code: int) -> str:
    """Name the dtype of a Megatron code; only int32 and uint16 hold token ids."""
    if code not in MEGATRON_DTYPES:
        name = OTHER_CODES.get(code, "unknown")
        raise StoreError(
            f"{path}: Megatron dtype code {code} ({name}) cannot be read, only int32 and uint16",
            hint="write it again with token ids of one of these types",
        )
    return MEGATRON_DTYPES[code]


def megatron_arrays(layout: Layout) -> tuple[Numbers, Numbers, Numbers]:
    """Open lengths, pointers and boundaries."""
    path = Path(layout.index_file)
    return (
        Numbers(path, disk.open_regular(path), np.dtype("<i4"), MEGATRON_HEADER, layout.sequences),
        Numbers(path, disk.open_regular(path), np.dtype("<i8"), layout.pointers_offset, layout.sequences),
        Numbers(path, disk.open_regular(path), np.dtype("<i8"), layout.boundaries_offset, layout.boundaries),
    )


def check_megatron_ends(layout: Layout) -> None:
    """Check the first and last entries: one contiguous run of tokens from the first byte to the last."""
    path, width = Path(layout.index_file), token_dtype(layout.dtype).itemsize
    lengths, pointers, boundaries = megatron_arrays(layout)
    size = file_bytes(Path(layout.file))
    if not layout.boundaries or boundaries.at(0) != 0 or boundaries.at(layout.boundaries - 1) != layout.sequences:
        raise StoreError(f"{path}: the documents do not run from the first sequence to the last", hint=PAIR)
    if not layout.sequences:
        first, last, end = 0, 0, 0
    else:
        first, last = pointers.at(0), pointers.at(layout.sequences - 1)
        end = last + lengths.at(layout.sequences - 1) * width
    if first != 0:
        raise StoreError(f"{path}: the first sequence starts at byte {first}, not at 0", hint=PAIR)
    if end != size or size % width or not 0 <= last <= end:
        raise StoreError(f"{layout.file}: the index ends at byte {end}, the file at {size}", hint=PAIR)


def megatron_index(layout: Layout, tokens: int) -> MegatronIndex:
    """Open the index of a Megatron pair."""
    _, pointers, boundaries = megatron_arrays(layout)
    width = token_dtype(layout.dtype).itemsize
    return MegatronIndex(Path(layout.index_file), pointers, boundaries, tokens=tokens, width=width)


def sample(path: Path) -> Iterator[bytes]:
    """Read 64 evenly spaced blocks of 64 KiB, or the whole of a file that has no more."""
    fd = disk.open_regular(path)
    try:
        size = os.fstat(fd).st_size
        if size <= SAMPLES * SAMPLE_BYTES:
            yield os.pread(fd, size, 0)
            return
        for block in range(SAMPLES):
            yield os.pread(fd, SAMPLE_BYTES, block * (size - SAMPLE_BYTES) // (SAMPLES - 1))
    finally:
        os.close(fd)


def foreign_fingerprint(layout: Layout) -> str:
    """Name foreign data by size and sampled content, never by time stamps: copies are equal."""
    kind = "megatron" if layout.index == "megatron" else "bare"
    digest = hashlib.blake2b(digest_size=16)
    for name in (layout.file, layout.index_file):
        if name:
            digest.update(f"{kind} 1 {layout.dtype} {file_bytes(Path(name))}\n".encode("ascii"))
            for block in sample(Path(name)):
                digest.update(block)
    return digest.hexdigest()
