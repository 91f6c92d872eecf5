"""Rollouts in files or in memory -> checked blocks of a bounded size, each rollout with its file and row; and back.

Rollouts that are texts are tokenised here, with a warning: the ids may not be those that were sampled.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from millstream.errors import LossWarning, RecordError, TokenizerError
from millstream.rollouts.block import Id, RolloutBlock
from millstream.rollouts.codec import encode_parts
from millstream.rollouts.collect import group_of_prompt
from millstream.rollouts.parse import BadRollout, OnBad, Parsed, parse_records
from millstream.rollouts.reads import Read, find_rollouts, reads_in_memory, reads_of, records_in_memory
from millstream.rollouts.record import ALIASES, FINISH_WORDS, TEXTS, holds_text, id_of
from millstream.rollouts.repeats import Repeats
from millstream.sources import Patterns
from millstream.tokens import Ids, Tokenizer

_IN_MEMORY = "rollouts"
"""The name of the file of rollouts that are in no file."""
_NO_TOKENIZER = RecordError("no token ids", "it holds texts, and there is no tokenizer", "pass tokenizer=")
_RETOKENIZED = (
    "rollouts that hold texts and no token ids were tokenised: their ids may not be those that the policy sampled"
)


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
            yield checker.chunk(_IN_MEMORY, read)
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
        if not (texts := _places_of_texts(read.records)):
            return list(map(_named, read.records, names)), read.rows
        made, faults = _tokenize(read.records, self._tokenizer, names)
        bad |= {read.rows[place]: fault for place, fault in faults.items()}
        if len(texts) > len(faults) and not self._tokenized:
            warnings.warn(_RETOKENIZED, LossWarning, stacklevel=4)
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


def _tokenize(
    records: Sequence[Any], tokenizer: Tokenizer | None, names: Sequence[str]
) -> tuple[list[Any], dict[int, RecordError]]:
    """The records with tokens for those that hold texts, by their places; and which of these have none, and why.

    The prompt is not trained on, the response is. The token that ends texts, if there is one, follows a response that
    ended by itself. `names` are the ids of rollouts that have none. Equal prompts are a group, if none is named.

    >>> from millstream.tokens import CharTokenizer
    >>> made, _ = _tokenize([{"prompt": "a", "response": "bb", "reward": 1.0}], CharTokenizer("ab"), ["row-0"])
    >>> made[0]["token_ids"].tolist(), made[0]["loss_mask"].tolist(), made[0]["rollout_id"], made[0]["finish"]
    ([0, 1, 1, 2], [False, True, True, True], 'row-0', 'stop')
    """
    made, faults = list(records), dict[int, RecordError]()
    places = _places_of_texts(records)
    texts = [records[place][side] for place in places for side in TEXTS]
    ids = _encoded(texts, tokenizer)
    for number, place in enumerate(places):
        sides = ids[2 * number : 2 * number + 2]
        wrong = next((side for side in sides if isinstance(side, RecordError)), None)
        if wrong is not None or tokenizer is None:
            faults[place] = wrong or _NO_TOKENIZER
        else:
            made[place] = _record(records[place], names[place], sides[0], sides[1], tokenizer.eos_id)
    return made, faults


def _places_of_texts(records: Sequence[Any]) -> list[int]:
    """Which records hold texts and no token ids.

    >>> _places_of_texts([{"token_ids": [1]}, {"prompt": "a", "response": "b"}])
    [1]
    """
    return [place for place, record in enumerate(records) if isinstance(record, Mapping) and holds_text(record)]


def _encoded(texts: list[str], tokenizer: Tokenizer | None) -> list[Any]:
    """The ids of each text, or why it has none."""
    if tokenizer is None:
        return [_NO_TOKENIZER] * len(texts)
    try:
        return list(tokenizer.encode_batch(texts))
    except (TokenizerError, UnicodeError):
        return [_encoded_alone(text, tokenizer) for text in texts]


def _encoded_alone(text: str, tokenizer: Tokenizer) -> Any:
    try:
        return np.array(tokenizer.encode(text), np.uint32)
    except TokenizerError as error:
        return RecordError("not encodable", error.message, error.hint)
    except UnicodeError:
        return RecordError("not Unicode", "half of a surrogate pair is no character", "take it out of the text")


def _record(record: Mapping[str, Any], name: str, prompt: Ids, response: Ids, eos: int | None) -> dict[str, Any]:
    """A record of tokens in the place of one of texts."""
    said = {ALIASES.get(key, key): value for key, value in record.items() if key not in TEXTS}
    absent = {"rollout_id": name, "group_id": group_of_prompt(record["prompt"].encode()), "finish": "stop"}
    fields = said | {field: value for field, value in absent.items() if said.get(field) is None}
    ended = FINISH_WORDS.get(str(fields["finish"])) == "stop"
    ids = np.concatenate([prompt, response, np.array([eos] if ended and eos is not None else [], np.uint32)])
    mask = np.arange(len(ids)) >= len(prompt)
    return {**fields, "token_ids": ids, "loss_mask": mask, "prompt_len": len(prompt)}
