"""A `RolloutBlock` as bytes, and back without a copy: what files, queues and sockets carry.

A block is a frame of 32 bytes, a head as JSON, and columns that begin at multiples of 64 bytes
(docs/reference/formats.md). Blocks may stand end to end. Input is not trusted: every size is checked
before anything is allocated for it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from millstream import _core
from millstream.errors import RecordError
from millstream.rollouts.block import NO_IDS, ROW_COLUMNS, TOKEN_COLUMNS, RolloutBlock
from millstream.rollouts.check import Fault, check_layout

Array: TypeAlias = npt.NDArray[Any]
Octets: TypeAlias = npt.NDArray[np.uint8]
Buffer: TypeAlias = Any
"""Whatever `memoryview` takes: bytes, a mapped file, an array."""
Part: TypeAlias = bytes | memoryview
_Pieces: TypeAlias = tuple[str, str, Sequence[Array]]
"""A column as it is written: what it is about, its name, and its numbers in pieces that lie end to end."""

MAGIC = b"\x89MLSR\r\n\x1a"
VERSION = 1
ROLLOUTS_SUFFIX = ".rollouts"
_FRAME = struct.Struct("<8sIIQQ")  # magic, version, bytes of the head, bytes of the block, checksum
FRAME_BYTES = _FRAME.size
_UNSUMMED = FRAME_BYTES - 8
_ALIGN = 64
_PADDING = bytes(_ALIGN)
_DTYPES = {
    each: np.dtype(each) for each in ("|b1", "|u1", "<u2", "<u4", "<u8", "|i1", "<i2", "<i4", "<i8", "<f4", "<f8")
}
_write_json = json.JSONEncoder(separators=(",", ":")).encode
_RUNS, _RUN_LENGTHS = "policy_version.runs", "policy_version.lengths"
_AGAIN = "it was changed or cut on its way: write or send it again"


def encode(block: RolloutBlock) -> bytes:
    """A block as bytes.

    >>> from millstream.rollouts.parse import block_of
    >>> said = {"rollout_id": "a", "group_id": "g", "reward": 1.0, "finish": "stop"}
    >>> data = encode(block_of([{**said, "token_ids": [5, 6], "loss_mask": [0, 1]}]))
    >>> len(data) % 64, decode(data)["token_ids"].tolist()
    (0, [5, 6])
    """
    return b"".join(encode_parts(block))


def encode_parts(*blocks: RolloutBlock) -> list[Part]:
    """Blocks as one, in parts that lie end to end; their columns of tokens must be alike, and are not copied.

    >>> from millstream.rollouts.parse import block_of
    >>> said = {"group_id": "g", "reward": 1.0, "finish": "stop", "token_ids": [5, 6], "loss_mask": [0, 1]}
    >>> one, other = block_of([{**said, "rollout_id": "a"}]), block_of([{**said, "rollout_id": "b"}])
    >>> b"".join(encode_parts(one, other)) == encode(RolloutBlock.concat([one, other]))
    True
    """
    rows = RolloutBlock.concat([RolloutBlock(each.ends, each.rows, {}, each.kept_ids) for each in blocks])
    columns = [*_row_columns(rows), *_token_columns(blocks), *_kept_columns(rows)]
    _check_dtypes(columns, rows)
    head = {
        "rollouts": len(rows),
        "tokens": int(rows.ends[-1]) if len(rows) else 0,
        "columns": [[kind, name, pieces[0].dtype.str, _shape_of(pieces)] for kind, name, pieces in columns],
        "objects": {name: rows.rows[name].tolist() for name in ROW_COLUMNS if _is_object(name, rows)},
    }
    written = _write_json(head).encode()
    octets = [[_octets(piece) for piece in pieces] for _, _, pieces in columns]
    starts, total = _places(len(written), [sum(map(len, each)) for each in octets])
    frame = _FRAME.pack(MAGIC, VERSION, len(written), total, 0)[:_UNSUMMED]
    checksum = _checksum(np.frombuffer(frame, np.uint8), np.frombuffer(written, np.uint8), octets)
    parts: list[Part] = [frame + checksum.to_bytes(8, "little"), written]
    at = FRAME_BYTES + len(written)
    for start, each in zip(starts, octets, strict=True):
        parts += [_PADDING[: start - at], *(piece.data for piece in each)]
        at = start + sum(map(len, each))
    return [*parts, _PADDING[: total - at]]


def _row_columns(rows: RolloutBlock) -> Iterator[_Pieces]:
    yield "", "ends", [rows.ends.astype("<i8", copy=False)]
    for name, column in sorted(rows.rows.items()):
        if column.dtype != np.object_:
            yield "row", name, [column]


def _token_columns(blocks: Sequence[RolloutBlock]) -> Iterator[_Pieces]:
    for name in sorted(blocks[0].tokens):
        pieces = [np.ascontiguousarray(block.tokens[name]) for block in blocks]
        runs = _core.runs_of(pieces) if name == "policy_version" and pieces[0].dtype == np.uint32 else None
        if runs is None:
            yield "token", name, pieces
        else:
            yield "", _RUNS, [runs[0]]
            yield "", _RUN_LENGTHS, [runs[1]]


def _kept_columns(rows: RolloutBlock) -> Iterator[_Pieces]:
    if len(rows.kept_ids):
        yield "", "kept_ids", [rows.kept_ids]


def _is_object(name: str, block: RolloutBlock) -> bool:
    return ROW_COLUMNS[name].dtype is np.object_ and name in block.rows


def _check_dtypes(columns: Sequence[_Pieces], rows: RolloutBlock) -> None:
    odd = [(name, pieces[0]) for _, name, pieces in columns if pieces[0].dtype.str not in _DTYPES]
    odd += [(name, it) for name, it in rows.rows.items() if it.dtype == np.object_ and name not in ROW_COLUMNS]
    for name, column in odd:
        raise RecordError("wrong type", f"the column {name} is {column.dtype}", "columns hold plain numbers")


def _shape_of(pieces: Sequence[Array]) -> list[int]:
    return [sum(map(len, pieces)), *pieces[0].shape[1:]]


def _octets(piece: Array) -> Octets:
    return np.ascontiguousarray(piece).reshape(-1).view(np.uint8)


def _places(head_bytes: int, sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where columns of these sizes begin, and where the block ends."""
    starts, at = [], _aligned(FRAME_BYTES + head_bytes)
    for size in sizes:
        starts.append(at)
        at = _aligned(at + size)
    return starts, at


def _aligned(place: int) -> int:
    return -(-place // _ALIGN) * _ALIGN


def _checksum(frame: Octets, head: Octets, columns: Sequence[Sequence[Octets]]) -> int:
    """Of everything but padding, which is zero: XXH64, the hash of each column the seed of the next."""
    return _core.xxh64_chain([[frame], [head], *columns])


def encoded_size(prefix: Buffer) -> int | None:
    """The bytes of the block that begins here; None while too little of it is there to know.

    >>> encoded_size(b"something else, and long enough")
    Traceback (most recent call last):
    millstream.errors.RecordError: not rollouts: it begins with 736f6d657468696e
      hint: this is not what `encode` or `write_rollouts` wrote
    """
    view = memoryview(prefix).cast("B")
    if view[: len(MAGIC)] != MAGIC[: len(view)]:
        found = f"it begins with {bytes(view[: len(MAGIC)]).hex()}"
        raise RecordError("not rollouts", found, "this is not what `encode` or `write_rollouts` wrote")
    if len(view) < FRAME_BYTES:
        return None
    _, version, head, total, _ = _FRAME.unpack_from(view)
    if version != VERSION:
        raise RecordError(
            "another version", f"it is of version {version}, and this reads {VERSION}", "update millstream"
        )
    if total % _ALIGN or total < FRAME_BYTES + head:
        raise RecordError("damaged", f"a block of {total:,} bytes with a head of {head:,}", _AGAIN)
    return int(total)


def decode(buffer: Buffer) -> RolloutBlock:
    """The block that a buffer begins with. Its columns are views of the buffer, and cannot be written to.

    >>> decode(b"")
    Traceback (most recent call last):
    millstream.errors.RecordError: cut off: 0 bytes are no whole block
      hint: it was changed or cut on its way: write or send it again
    """
    view = memoryview(buffer).cast("B").toreadonly()
    size = encoded_size(view)
    if size is None or len(view) < size:
        raise RecordError("cut off", f"{len(view):,} bytes are no whole block", _AGAIN)
    try:
        return _decoded(view[:size])
    except Fault as fault:
        raise RecordError("damaged", f"{fault.reason}: {fault.found}", _AGAIN) from None
    except MemoryError:
        raise
    except Exception as error:  # the checksum may be right: a hostile writer can compute one
        raise RecordError("damaged", str(error) or type(error).__name__, _AGAIN) from None


def _decoded(view: memoryview) -> RolloutBlock:
    _, _, head_bytes, total, checksum = _FRAME.unpack_from(view)
    whole = np.frombuffer(view, np.uint8)
    written = whole[FRAME_BYTES : FRAME_BYTES + head_bytes]
    head = json.loads(written.tobytes())
    listed = [(kind, name, _DTYPES[dtype], _shape(shape)) for kind, name, dtype, shape in head["columns"]]
    sizes = [dtype.itemsize * prod(shape) for _, _, dtype, shape in listed]
    starts, end = _places(head_bytes, sizes)
    if end != total:
        raise ValueError(f"its columns end at byte {end:,} of {total:,}")
    octets = [whole[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    if _checksum(whole[:_UNSUMMED], written, [[each] for each in octets]) != checksum:
        raise ValueError("the checksum is another one")
    stops = [FRAME_BYTES + head_bytes, *(start + size for start, size in zip(starts, sizes, strict=True))]
    for stop, start in zip(stops, [*starts, total], strict=True):
        if view[stop:start] != _PADDING[: start - stop]:
            raise ValueError("something stands between two columns")
    columns: dict[str, dict[str, Array]] = {"": {}, "row": {}, "token": {}}
    for (kind, name, dtype, shape), each in zip(listed, octets, strict=True):
        if not isinstance(name, str) or name in columns[kind]:
            raise ValueError("a column is there twice, or has no name")
        columns[kind][name] = _typed(each, dtype, shape)
    return _block(head, columns)


def _shape(shape: Any) -> tuple[int, ...]:
    if not 1 <= len(shape) <= 3 or not all(type(size) is int and 0 <= size < 1 << 48 for size in shape):
        raise ValueError("a column has an impossible shape")
    return tuple(shape)


def _typed(octets: Octets, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    if dtype == np.bool_ and len(octets) and octets.max() > 1:
        raise ValueError("what is yes or no is neither")
    column = octets.view(dtype)
    return column if len(shape) == 1 else column.reshape(shape)


def _block(head: dict[str, Any], columns: dict[str, dict[str, Array]]) -> RolloutBlock:
    own, rows, tokens = columns[""], columns["row"], columns["token"]
    ends = own.pop("ends")
    if ends.dtype != np.int64 or ends.ndim != 1 or len(ends) != head["rollouts"]:
        raise ValueError("it has not as many rollouts as it says")
    if len(ends) and (ends[0] < 1 or (ends[1:] <= ends[:-1]).any()):
        raise ValueError("rollouts have impossible lengths")
    total = int(ends[-1]) if len(ends) else 0
    if total != head["tokens"] or len(tokens["token_ids"]) != total:
        raise ValueError("the tokens are not as many as it says")
    if _RUNS in own:
        runs, lengths = own.pop(_RUNS), own.pop(_RUN_LENGTHS)
        if lengths.dtype != np.uint32 or runs.ndim != 1 or int(lengths.sum(dtype=np.uint64)) != total:
            raise ValueError("the runs of versions are not as long as the tokens")
        tokens["policy_version"] = np.repeat(runs, lengths.astype(np.int64))
    for name, values in head["objects"].items():
        if ROW_COLUMNS[name].dtype is not np.object_ or not isinstance(values, list):
            raise ValueError(f"{name} is no list of objects")
        rows[name] = np.empty(len(values), object)
        rows[name][:] = values
    kept = own.pop("kept_ids", NO_IDS)
    if own or rows.keys() & TOKEN_COLUMNS.keys() or tokens.keys() & ROW_COLUMNS.keys():
        raise ValueError("there are columns where none belong")
    block = RolloutBlock(ends, rows, tokens, kept)
    check_layout(block)
    return block


@dataclass(frozen=True, slots=True)
class Decoded:
    """Blocks that stood end to end, where the last of them ends, and what is wrong with the rest, if there is one."""

    blocks: list[RolloutBlock]
    stop: int
    torn: RecordError | None = None


def decode_all(buffer: Buffer) -> Decoded:
    """All blocks of a buffer, up to the first that is cut off or damaged.

    >>> from millstream.rollouts.parse import no_rollouts
    >>> data = encode(no_rollouts())
    >>> found = decode_all(data + data + data[:100])
    >>> len(found.blocks), found.stop == 2 * len(data), found.torn.reason
    (2, True, 'cut off')
    """
    blocks, stop = [], 0
    try:
        for block, end in iter_blocks(buffer):
            blocks.append(block)
            stop = end
    except RecordError as error:
        return Decoded(blocks, stop, error)
    return Decoded(blocks, stop)


def iter_blocks(buffer: Buffer) -> Iterator[tuple[RolloutBlock, int]]:
    """Each block of a buffer and where it ends; what is cut off or damaged is an error when it is reached."""
    view, place = memoryview(buffer).cast("B"), 0
    while place < len(view):
        block = decode(view[place:])
        place += encoded_size(view[place:]) or 0
        yield block, place
