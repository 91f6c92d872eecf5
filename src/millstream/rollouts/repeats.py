"""Which rollouts were there before: the same id with the same content is a repeat, with another content a conflict."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.rollouts.block import NAMED_REWARD, ROW_COLUMNS, Id, RolloutBlock
from millstream.storage import hash_stretches

_Hashes = npt.NDArray[np.uint64]
_NUMBERS = tuple(name for name, column in ROW_COLUMNS.items() if column.dtype is not np.object_)


def content_hash(block: RolloutBlock) -> _Hashes:
    """A hash of everything that a rollout is, whatever block it lies in, the same in every run.

    >>> from millstream.rollouts.parse import block_of
    >>> said = {"group_id": "g", "token_ids": [5, 6], "loss_mask": [0, 1], "reward": 1.0, "finish": "stop"}
    >>> block = block_of([{"rollout_id": id, **said} for id in "ab"])
    >>> one, other, same = content_hash(block.select([0, 1, 0])).tolist()
    >>> one == same, one == other
    (True, False)
    """
    hashes: _Hashes = np.zeros(len(block), np.uint64)
    for name in sorted(block.tokens):
        column = block.tokens[name]
        _add_texts(hashes, _text(name, len(block)))
        wide = column.astype(np.uint16) if name == "routed_experts" else column
        _add_column(hashes, wide, block.ends)
    if "kept_count" in block.tokens:
        _add_column(hashes, block.kept_ids, block.kept_ends[block.ends])
    scalars = np.stack([block.filled(name).astype(np.float64) for name in _NUMBERS], axis=1) + 0.0  # -0.0 becomes 0.0
    scalars[np.isnan(scalars)] = np.nan
    _add_column(hashes, scalars, np.arange(1, len(block) + 1))
    for name in ("rollout_id", "group_id", "prompt_id"):
        _add_texts(hashes, [_id_text(value) for value in block.filled(name)])
    for name in sorted(block.rows.keys() - ROW_COLUMNS.keys()):
        _add_known(hashes, name, block.rows[name])
    if "extra" in block.rows:
        _add_extra(hashes, block.rows["extra"])
    return hashes


def _add_column(hashes: _Hashes, column: npt.NDArray[Any], ends: npt.NDArray[np.int64]) -> None:
    """Hash the part of a column that each rollout has."""
    bytes_each = column.dtype.itemsize * int(np.prod(column.shape[1:], dtype=np.int64))
    data = np.ascontiguousarray(column).reshape(-1).view(np.uint8)
    hash_stretches(data, np.ascontiguousarray(ends * bytes_each), hashes)


def _add_texts(hashes: _Hashes, texts: Iterable[bytes]) -> None:
    texts = list(texts)
    hash_stretches(
        np.frombuffer(b"".join(texts), np.uint8), np.cumsum([len(text) for text in texts], dtype=np.int64), hashes
    )


def _text(name: str, count: int) -> list[bytes]:
    return [name.encode("utf-8", "surrogatepass")] * count


def _id_text(value: Id | None) -> bytes:
    """The text of an id; 7 and "7" are not the same."""
    return f'"{value}'.encode("utf-8", "surrogatepass") if isinstance(value, str) else str(value).encode()


def _add_known(hashes: _Hashes, name: str, column: npt.NDArray[Any]) -> None:
    """Hash an optional column, of the rollouts that have a value in it."""
    known = np.flatnonzero(~np.isnan(column)) if name.startswith(NAMED_REWARD) else np.arange(len(hashes))
    some = hashes[known]
    _add_texts(some, _text(name, len(known)))
    _add_column(some, column[known], np.arange(1, len(known) + 1))
    hashes[known] = some


def _add_extra(hashes: _Hashes, column: npt.NDArray[Any]) -> None:
    known = [row for row, value in enumerate(column) if value is not None]
    some = hashes[known]
    _add_texts(some, [json.dumps(column[row], sort_keys=True).encode() for row in known])
    hashes[known] = some


class Repeats:
    """The ids of rollouts that were seen, each with a hash of its content: some 100 bytes for each.

    An engine may give one rollout in several samples: these share its id, and differ in `sample_idx`.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[Id, int], int] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def look(self, block: RolloutBlock) -> tuple[list[int], list[int], list[int]]:
        """The rows that are new, that repeat what was there, and whose id was there with another content.

        >>> from millstream.rollouts.parse import block_of
        >>> said = {"group_id": "g", "token_ids": [5, 6], "loss_mask": [0, 1], "finish": "stop"}
        >>> rewards = {"a": 1.0, "b": 0.0}
        >>> block = block_of([{"rollout_id": id, "reward": reward, **said} for id, reward in rewards.items()])
        >>> repeats = Repeats()
        >>> repeats.look(block.select([0, 1, 0]))
        ([0, 1], [2], [])
        >>> repeats.look(block.with_columns(reward=np.array([1.0, 1.0])))
        ([], [0], [1])
        """
        new: list[int] = []
        repeated: list[int] = []
        conflicts: list[int] = []
        hashes = content_hash(block).tolist()
        names = zip(block.rows["rollout_id"].tolist(), block.filled("sample_idx").tolist(), strict=True)
        for row, (name, found) in enumerate(zip(names, hashes, strict=True)):
            known = self._seen.get(name)
            if known is None:
                self._seen[name] = found
                new.append(row)
            else:
                (repeated if known == found else conflicts).append(row)
        return new, repeated, conflicts
