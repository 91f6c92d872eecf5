"""Records -> a `RolloutBlock` that is fit to be trained on, or what is wrong with which record.

All records are laid out and looked at together. Only when something is wrong with them are they halved, again and
again, until the bad ones are alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, Literal, Protocol, TypeAlias
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from millstream._core import said_outside
from millstream.errors import RecordError, SourceError
from millstream.rollouts.block import ROW_COLUMNS, TOKEN_COLUMNS, RolloutBlock
from millstream.rollouts.check import LOGPROBS, Fault, check_layout, check_names, check_numbers
from millstream.rollouts.collect import collect
from millstream.rollouts.completions import as_sequence
from millstream.rollouts.record import id_of
from millstream.rollouts.repeats import Repeats
from millstream.rollouts.row_columns import check_extra

OnBad: TypeAlias = Literal["error", "skip", "quarantine"]
Where: TypeAlias = str | Callable[[int], str]
"""Where records come from: a text for all of them, or one for each by its place."""
_MADE: WeakSet[RolloutBlock] = WeakSet()
"""Blocks that `block_of` made of records. Their arrays are read-only, so they are checked once."""
_Make: TypeAlias = Callable[[range], RolloutBlock]
_Good: TypeAlias = list[tuple[RolloutBlock, range]]


class Dataclass(Protocol):
    """An object of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Records: TypeAlias = RolloutBlock | Mapping[str, Any] | Dataclass | Iterable[Any]
"""Rollouts in columns, a record, or many: mappings or dataclasses with the fields of `Rollout`."""


@dataclass(frozen=True, slots=True)
class BadRollout:
    """A record that cannot be used: its place among the records, why, and the record itself if it is kept aside."""

    index: int
    error: RecordError
    record: Any = None


@dataclass(frozen=True, slots=True)
class Parsed:
    """What records gave: rollouts, the place of each among the records, and what was left out."""

    block: RolloutBlock
    rows: npt.NDArray[np.int64]
    bad: list[BadRollout] = field(default_factory=list)
    repeated: int = 0
    """Records that were there before, with the same id and content."""

    @property
    def reasons(self) -> Counter[str]:
        """How many records were left out, by reason."""
        return Counter(bad.error.reason for bad in self.bad)


def block_of(records: Records, *, where: Where = "", group_by_prompt: bool = False) -> RolloutBlock:
    """All records in one block; the first bad one is an error. What comes twice, with the same content, is there once.

    >>> said = {"rollout_id": "a", "group_id": "g", "token_ids": [5, 6], "reward": 1.0, "finish": "eos"}
    >>> block_of([{**said, "loss_mask": [0, 1]}])["token_ids"].tolist()
    [5, 6]
    >>> block_of([{**said, "loss_mask": [1]}], where="engine 3")
    Traceback (most recent call last):
    millstream.errors.RecordError: engine 3: unequal lengths: rollout 'a': loss_mask has 1 values, and token_ids has 2
      hint: each column covers all tokens of a rollout, those of the prompt too
    """
    if isinstance(records, RolloutBlock) and records in _MADE:
        return records
    given = _listed(records)
    if isinstance(given, RolloutBlock):
        _check_whole(given, where)
    bad: dict[int, Fault] = {}
    try:
        block = _maker(given, group_by_prompt=group_by_prompt)(range(len(given)))
        block, _, _ = _without_repeats(block, np.arange(len(given)), None, bad)
    except Fault as fault:
        bad[fault.row] = fault
    if bad:
        row = min(bad)
        raise bad[row].named(_id_at(given, row), _place(where, row))
    if not isinstance(given, RolloutBlock):
        for column in block.arrays:
            column.setflags(write=False)
        _MADE.add(block)
    return block


def parse_records(
    records: Records,
    *,
    on_bad: OnBad = "error",
    where: Where = "",
    group_by_prompt: bool = False,
    like: Collection[str] | None = None,
    repeats: Repeats | None = None,
) -> Parsed:
    """The good records in a block, and the bad ones beside it: "skip" and "quarantine" leave them out and say why.

    With `group_by_prompt`, records that name no group form one with those of the same prompt. `like` are the columns of
    tokens that rollouts before these have, `repeats` their ids. Of two contents for one id the first is kept.

    >>> said = {"rollout_id": "a", "group_id": "g", "token_ids": [5, 6], "loss_mask": [0, 1], "finish": "stop"}
    >>> parsed = parse_records([{**said, "reward": 1.0}, {**said, "reward": "high"}], on_bad="skip")
    >>> len(parsed.block), parsed.reasons
    (1, Counter({'wrong type': 1}))
    """
    if on_bad not in ("error", "skip", "quarantine"):
        raise SourceError(f"on_bad={on_bad!r} is unknown", hint='choose "error", "skip" or "quarantine"')
    given = _listed(records)
    if isinstance(given, RolloutBlock):
        _check_whole(given, where)
    bad: dict[int, Fault] = {}
    good = _halved(_maker(given, group_by_prompt=group_by_prompt), range(len(given)), bad, stop=on_bad == "error")
    good = _alike(good, like, bad)
    block = RolloutBlock.concat([block for block, _ in good]) if good else no_rollouts()
    rows = np.array([row for _, places in good for row in places], np.int64)
    block, rows, repeated = _without_repeats(block, rows, repeats, bad)
    errors = {row: bad[row].named(_id_at(given, row), _place(where, row)) for row in sorted(bad)}
    if errors and on_bad == "error":
        raise next(iter(errors.values()))
    aside = given if on_bad == "quarantine" and isinstance(given, list) else [None] * len(given)
    return Parsed(block, rows, [BadRollout(row, error, aside[row]) for row, error in errors.items()], repeated)


def _check_whole(block: RolloutBlock, where: Where) -> None:
    """Refuse a block whose columns do not fit together: no part of it can be used."""
    try:
        check_layout(block)
    except Fault as fault:
        raise fault.named(_id_at(block, fault.row), _place(where, fault.row)) from None


def no_rollouts() -> RolloutBlock:
    """A block without rollouts.

    >>> len(no_rollouts()), no_rollouts()["reward"].tolist()
    (0, [])
    """
    rows, tokens = (
        {name: np.empty(0, column.dtype) for name, column in known.items() if column.required}
        for known in (ROW_COLUMNS, TOKEN_COLUMNS)
    )
    return RolloutBlock(np.empty(0, np.int64), rows, tokens)


def _listed(records: Records) -> RolloutBlock | list[Any]:
    if isinstance(records, RolloutBlock):
        return records
    if isinstance(records, Mapping) or is_dataclass(records):
        return [records]
    if isinstance(records, str | bytes) or not isinstance(records, Iterable):
        raise SourceError(f"a {type(records).__name__} is no list of rollouts", hint="give mappings or dataclasses")
    return list(records)


def _maker(given: RolloutBlock | list[Any], *, group_by_prompt: bool) -> _Make:
    """What makes a checked block of some of the records."""

    def make(rows: range) -> RolloutBlock:
        if isinstance(given, RolloutBlock):  # its layout was looked at
            block = _silenced(given if len(rows) == len(given) else given.select(rows))
            check_extra(block.rows["extra"].tolist() if "extra" in block.rows else ())
            check_names(block)
            check_numbers(block)
            return block
        if not rows:
            return no_rollouts()
        records = [_mapping(record, place) for place, record in enumerate(given[rows.start : rows.stop])]
        block = collect(records, group_by_prompt=group_by_prompt)  # laid out as it has to be
        check_names(block)
        check_numbers(block)
        return block

    return make


def _mapping(record: Any, place: int) -> Mapping[str, Any]:
    if type(record) is dict or isinstance(record, Mapping):
        return as_sequence(record, place)
    if not is_dataclass(record) or isinstance(record, type):
        raise Fault(place, "not a record", f"it is a {type(record).__name__}", "give mappings or dataclasses")
    return as_sequence({name: getattr(record, name) for name in _names_of(type(record))}, place)


@cache
def _names_of(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


def _silenced(block: RolloutBlock) -> RolloutBlock:
    """The same with log-probabilities of 0 where nothing was sampled."""
    trained = block.tokens["loss_mask"]
    loud = [name for name in LOGPROBS if name in block.tokens and said_outside(block.tokens[name], trained)]
    quiet = {name: np.where(trained, block.tokens[name], np.float32(0)) for name in loud}
    return block.with_columns(**quiet) if quiet else block


def _halved(make: _Make, rows: range, bad: dict[int, Fault], *, stop: bool) -> _Good:
    """Blocks of the good records among some; faults of the bad ones are put down."""
    try:
        return [(make(rows), rows)]
    except Fault as fault:
        if stop or len(rows) == 1:
            bad[rows.start + fault.row] = fault
            return []
    middle = rows.start + len(rows) // 2
    halves = range(rows.start, middle), range(middle, rows.stop)
    return [good for half in halves for good in _halved(make, half, bad, stop=stop)]


def _alike(good: _Good, like: Collection[str] | None, bad: dict[int, Fault]) -> _Good:
    """The blocks with the columns that are wanted, or that most rollouts have."""
    counts: Counter[frozenset[str]] = Counter()
    for block, _ in good:
        counts[frozenset(block.tokens)] += len(block)
    wanted = frozenset(like) if like is not None else max(counts, key=counts.__getitem__, default=frozenset())
    for block, rows in good:
        if len(block) and block.tokens.keys() != wanted:
            odd = sorted(block.tokens.keys() ^ wanted)
            found = f"it and others do not both have {', '.join(odd)}"
            bad |= {row: Fault(row, "missing column", found, "give it for all rollouts, or for none") for row in rows}
    return [(block, rows) for block, rows in good if not len(block) or block.tokens.keys() == wanted]


def _without_repeats(
    block: RolloutBlock, rows: npt.NDArray[np.int64], repeats: Repeats | None, bad: dict[int, Fault]
) -> tuple[RolloutBlock, npt.NDArray[np.int64], int]:
    """The block without rollouts that were there before."""
    ids = block.rows["rollout_id"].tolist()
    if repeats is None and len(set(ids)) == len(ids):
        return block, rows, 0
    new, repeated, conflicts = (Repeats() if repeats is None else repeats).look(block)
    for row in conflicts:
        found = "another rollout has the same id and another content"
        hint = 'each rollout has an id of its own; on_bad="skip" leaves the later one out'
        bad[int(rows[row])] = Fault(int(rows[row]), "conflicting id", found, hint)
    if len(new) == len(block):
        return block, rows, 0
    return block.select(new), rows[new], len(repeated)


def _id_at(given: RolloutBlock | list[Any], row: int) -> object:
    """The name of a record, if it has one."""
    if isinstance(given, RolloutBlock):
        ids = given.rows.get("rollout_id", ())
        return ids[row] if row < len(ids) else None
    return id_of(given[row])


def _place(where: Where, row: int) -> str:
    return where if isinstance(where, str) else where(row)
