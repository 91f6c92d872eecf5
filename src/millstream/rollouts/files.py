"""Rollouts in files or in memory -> checked blocks of a bounded size, each rollout with its file and row; and back."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from millstream.errors import LossWarning, RecordError
from millstream.rollouts.block import RolloutBlock
from millstream.rollouts.codec import encode_parts
from millstream.rollouts.columns import Id
from millstream.rollouts.fields import ALIASES, id_of
from millstream.rollouts.parse import BadRollout, OnBad, Parsed, parse_records
from millstream.rollouts.reads import Read, find_rollouts, reads_in_memory, reads_of, records_in_memory
from millstream.rollouts.repeats import Repeats
from millstream.rollouts.text import RETOKENIZED, places_of_texts, tokenize
from millstream.sources import Patterns
from millstream.tokens import Tokenizer

IN_MEMORY = "rollouts"
"""The name of the file of rollouts that lie in none."""


@dataclass(frozen=True, slots=True)
class RolloutChunk:
    """Some rollouts of a file, the row of each (from 0), and what was left out, by rows of the file."""

    block: RolloutBlock
    file: str
    rows: npt.NDArray[np.int64]
    bad: list[BadRollout] = field(default_factory=list)
    repeats: list[tuple[int, Id]] = field(default_factory=list)
    """Row and id of each rollout that was there before, with the same content."""
    tokenized: int = 0
    """Rollouts that hold texts, and were given tokens here."""

    @property
    def repeated(self) -> int:
        """Rollouts that were there before."""
        return len(self.repeats)

    def where(self, place: int) -> str:
        """Where a rollout of the block stands, as people count."""
        return f"{self.file}:{self.rows[place] + 1}"


def read_rollouts(
    source: Any,
    *,
    on_bad: OnBad = "error",
    tokenizer: Tokenizer | None = None,
    group_by_prompt: bool = True,
    format: str | None = None,
    include: Patterns = (),
    exclude: Patterns = (),
) -> Iterator[RolloutChunk]:
    """Read rollouts from files, folders or patterns, or from memory: a block, or an iterable of records or blocks.

    Files are JSON lines, arrays of JSON, Parquet or Arrow, msgpack, and our own `.rollouts`. Records that name no group
    form one with those of the same prompt, and those without an id are called by their place. Records of texts are
    given tokens, with a warning. A rollout that comes twice, in whichever files, is given once; an id that comes with
    two contents is bad.

    >>> said = {"group_id": "g", "token_ids": [5, 6], "loss_mask": [0, 1], "reward": 1.0, "finish": "stop"}
    >>> (chunk,) = read_rollouts([{"rollout_id": id, **said} for id in "aba"])
    >>> chunk.block["rollout_id"].tolist(), chunk.rows.tolist(), chunk.repeated
    (['a', 'b'], [0, 1], 1)
    """
    checker = _Checker(on_bad, tokenizer, group_by_prompt=group_by_prompt)
    records = records_in_memory(source)
    if records is not None:
        for read in reads_in_memory(records):
            yield checker.chunk(IN_MEMORY, read)
        return
    for file in find_rollouts(source, format=format, include=include, exclude=exclude):
        for read in reads_of(file):
            yield checker.chunk(file.name, read)


class _Checker:
    """Makes chunks of what was read, and knows the rollouts before."""

    def __init__(self, on_bad: OnBad, tokenizer: Tokenizer | None, *, group_by_prompt: bool) -> None:
        self._on_bad: OnBad = on_bad
        self._tokenizer, self._group_by_prompt = tokenizer, group_by_prompt
        self._repeats, self._records, self._tokenized = Repeats(), 0, 0
        self._like: Collection[str] | None = None

    def chunk(self, file: str, read: Read) -> RolloutChunk:
        """Check what was read."""
        bad, before = dict(read.bad), self._tokenized
        records, rows = self._with_tokens(read, bad)
        errors = {row: RecordError(e.reason, e.found, e.hint, f"{file}:{row + 1}") for row, e in sorted(bad.items())}
        if errors and self._on_bad == "error":
            raise next(iter(errors.values()))
        parsed = parse_records(
            records,
            on_bad=self._on_bad,
            where=lambda place: f"{file}:{rows[place] + 1}",
            group_by_prompt=self._group_by_prompt,
            like=self._like,
            repeats=self._repeats,
        )
        self._like = self._like or (list(parsed.block.tokens) if len(parsed.block) else None)
        left_out = [BadRollout(row, error) for row, error in errors.items()]
        left_out += [replace(each, index=rows[each.index]) for each in parsed.bad]
        left_out.sort(key=lambda each: each.index)
        origins = np.array(rows, np.int64)[parsed.rows]
        repeats = [(rows[place], _id_at(records, place)) for place in _repeated(parsed, len(rows))]
        return RolloutChunk(parsed.block, file, origins, left_out, repeats, self._tokenized - before)

    def _with_tokens(self, read: Read, bad: dict[int, RecordError]) -> tuple[RolloutBlock | list[Any], list[int]]:
        """The records, with tokens for those that hold texts; without those that cannot have any."""
        first, self._records = self._records, self._records + len(read.records)
        if isinstance(read.records, RolloutBlock):
            return read.records, read.rows
        names = [f"row-{first + place}" for place in range(len(read.records))]
        if not (texts := places_of_texts(read.records)):
            return list(map(_named, read.records, names)), read.rows
        made, faults = tokenize(read.records, self._tokenizer, names)
        bad |= {read.rows[place]: fault for place, fault in faults.items()}
        if len(texts) > len(faults) and not self._tokenized:
            warnings.warn(RETOKENIZED, LossWarning, stacklevel=4)
        self._tokenized += len(texts) - len(faults)
        kept = [place for place in range(len(made)) if place not in faults]
        return [_named(made[place], names[place]) for place in kept], [read.rows[place] for place in kept]


def _named(record: Any, name: str) -> Any:
    """The record, with the name of its place if it has none."""
    if not isinstance(record, Mapping) or id_of(record) is not None:
        return record
    rest = {key: value for key, value in record.items() if ALIASES.get(key, key) != "rollout_id"}
    return {"rollout_id": name, **rest}


def _repeated(parsed: Parsed, records: int) -> list[int]:
    """Which of some records are neither good nor bad: they were there before."""
    if not parsed.repeated:
        return []
    known = {*parsed.rows.tolist(), *(each.index for each in parsed.bad)}
    return [place for place in range(records) if place not in known]


def _id_at(records: RolloutBlock | list[Any], place: int) -> Id:
    """The id of a record that has one."""
    found = records.rows["rollout_id"][place] if isinstance(records, RolloutBlock) else id_of(records[place])
    assert found is not None
    return cast(Id, found)


def write_rollouts(path: str | os.PathLike[str], blocks: RolloutBlock | Iterable[RolloutBlock]) -> int:
    """Write blocks into a file, which is there as a whole or not at all; gives the number of rollouts."""
    target = Path(path)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    rollouts = 0
    try:
        with unfinished.open("wb") as file:
            for block in [blocks] if isinstance(blocks, RolloutBlock) else blocks:
                file.writelines(encode_parts(block))
                rollouts += len(block)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return rollouts
