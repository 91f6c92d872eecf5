"""AdmittedBatch: the rollouts that one step trains on; and which complete groups it takes, in which order."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.errors import StateError
from millstream.feeds.admission.groups import CompleteGroup, mask_stale
from millstream.feeds.admission.rules import AdmissionRules
from millstream.feeds.admission.seen import (
    Drop,
    Name,
    drop_from_json,
    drop_to_json,
    is_baseline,
    name_from_json,
    name_to_json,
)
from millstream.rollouts import ROW_COLUMNS, Id, RolloutBlock


@dataclass(frozen=True, eq=False)
class AdmittedBatch:
    """What a step trains on."""

    step: int
    policy_version: int
    block: RolloutBlock
    """The rollouts of all groups, those of a group next to each other."""
    group_ids: tuple[Id, ...]
    group_ends: tuple[int, ...]
    """The row of the block after each group."""
    replayed: tuple[bool, ...]
    """Which groups were trained on before."""
    names: tuple[tuple[Name, ...], ...]
    """The rollouts of each group; nothing for groups that come again."""
    drops: tuple[Drop, ...]
    """What was dropped since the last cut, and why."""
    stale_masked: int
    """Tokens whose loss was taken away, since they are too old."""

    def to_json(self) -> dict[str, Any]:
        """Everything but the block, as plain JSON."""
        return {
            "step": self.step,
            "policy_version": self.policy_version,
            "group_ids": list(self.group_ids),
            "group_ends": list(self.group_ends),
            "replayed": list(self.replayed),
            "names": [[name_to_json(name) for name in names] for names in self.names],
            "drops": [drop_to_json(drop) for drop in self.drops],
            "stale_masked": self.stale_masked,
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any], block: RolloutBlock) -> AdmittedBatch:
        """Read it back; nothing in a file is trusted."""
        try:
            cut = cls(
                saved["step"],
                saved["policy_version"],
                block,
                tuple(saved["group_ids"]),
                tuple(saved["group_ends"]),
                tuple(saved["replayed"]),
                tuple(tuple(map(name_from_json, names)) for names in saved["names"]),
                tuple(map(drop_from_json, saved["drops"])),
                saved["stale_masked"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"a rollout batch cannot be read: {error!r}", hint="take an older state") from None
        if len({len(each) for each in (cut.group_ids, cut.group_ends, cut.replayed, cut.names)}) != 1:
            raise StateError("a rollout batch does not say the same of all its groups", hint="take an older state")
        return cut

    @property
    def tokens(self) -> tuple[int, ...]:
        """Tokens of each rollout of the block; 0 for those that are only compared with."""
        lengths = enumerate(self.block.lengths.tolist())
        return tuple(0 if is_baseline(self.block, row) else length for row, length in lengths)

    @classmethod
    def of(
        cls, rules: AdmissionRules, step: int, policy_version: int, fresh: Sequence[CompleteGroup],
        again: Sequence[CompleteGroup], names: Sequence[tuple[Name, ...]], drops: Sequence[Drop],
    ) -> AdmittedBatch:  # fmt: skip
        """Put groups together, new ones first."""
        groups = [*fresh, *again]
        block, masked = joined([group.block for group in groups]), 0
        if rules.on_stale == "mask" and rules.max_staleness is not None:
            block, masked = mask_stale(block, policy_version, rules.max_staleness)
        return cls(
            step,
            policy_version,
            block,
            tuple(group.id for group in groups),
            tuple(accumulate(len(group.block) for group in groups)),
            (False,) * len(fresh) + (True,) * len(again),
            (*names, *(() for _ in again)),
            tuple(drops),
            masked,
        )


def joined(blocks: Sequence[RolloutBlock]) -> RolloutBlock:
    """Groups in one block, with the columns of which any of their rollouts says something.

    What else arrived together with them leaves no trace: a column that holds nothing may be its only one.
    """
    block = RolloutBlock.concat(blocks)
    rows = {name: column for name, column in sorted(block.rows.items()) if _says_something(name, column)}
    return RolloutBlock(block.ends, rows, dict(sorted(block.tokens.items())), block.kept_ids)


def _says_something(name: str, column: npt.NDArray[Any]) -> bool:
    known = ROW_COLUMNS.get(name)
    if known is not None and known.required:
        return True
    absent = np.nan if known is None else known.absent
    if column.dtype == object:
        return any(value is not None for value in column)
    return not bool(np.all(np.isnan(column) if np.isnan(absent) else column == absent))


@dataclass(frozen=True)
class BatchSize:
    """How much a batch holds: so many groups, or whole groups of so many rollouts."""

    room: int
    by_rollouts: bool

    @classmethod
    def of(cls, rules: AdmissionRules) -> BatchSize:
        """The size that the rules give."""
        return cls(rules.groups_per_batch or rules.rollouts_per_batch or 1, rules.rollouts_per_batch is not None)

    def weigh(self, groups: Iterable[CompleteGroup]) -> int:
        """How much room groups take."""
        return sum(group.rollouts if self.by_rollouts else 1 for group in groups)

    def fill(self, groups: Iterable[CompleteGroup], room: int) -> tuple[list[CompleteGroup], bool]:
        """Take groups while they fit, and a first one that does not; says whether the room is full then."""
        taken: list[CompleteGroup] = []
        for group in groups:
            weight = self.weigh([group])
            if taken and weight > room:
                return taken, True
            taken.append(group)
            room -= weight
            if room <= 0:
                return taken, True
        return taken, False

    def fit(self, groups: Iterable[CompleteGroup], room: int) -> list[CompleteGroup]:
        """Take the groups that fit, whichever these are."""
        taken: list[CompleteGroup] = []
        for group in groups:
            weight = self.weigh([group])
            if weight <= room:
                taken.append(group)
                room -= weight
        return taken


class IndexLine:
    """Which indices of groups need not be waited for: all before `next`, and some after it.

    >>> line = IndexLine()
    >>> line.pass_by(1), line.next, line.missing(0, 3)
    (None, 0, 2)
    >>> line.pass_by(0), line.next
    (None, 2)
    """

    def __init__(self, next: int = 0, passed: Iterable[int] = ()) -> None:
        self.next = next
        self.passed = sorted(passed)

    def missing(self, start: int, stop: int) -> int:
        """How many indices from `start` to `stop` are waited for."""
        return stop - start - (bisect.bisect_left(self.passed, stop) - bisect.bisect_left(self.passed, start))

    def pass_by(self, index: int) -> None:
        """A group was cut or dropped."""
        if index >= self.next and self.missing(index, index + 1):
            bisect.insort(self.passed, index)
        self._advance()

    def skip_to(self, index: int) -> None:
        """The indices before were waited for long enough."""
        self.next = max(self.next, index)
        self._advance()

    def _advance(self) -> None:
        gone = bisect.bisect_left(self.passed, self.next)
        while gone < len(self.passed) and self.passed[gone] <= self.next:
            self.next, gone = max(self.next, self.passed[gone] + 1), gone + 1
        del self.passed[:gone]


def takeable(
    ready: Sequence[CompleteGroup], rules: AdmissionRules, step: int, line: IndexLine, now: float, *, ended: bool
) -> list[CompleteGroup]:
    """The groups that a step may take, in order. `ready` is in the order of completion."""
    if rules.order == "arrival":
        return list(ready)
    by_place = sorted(ready, key=lambda group: (group.place, group.number))
    if rules.order == "target_step":
        return [group for group in by_place if group.place <= step]
    taken, expected, timeout = 0, line.next, rules.group_timeout_s
    for group in by_place:
        waits_since = min(each.began for each in by_place[taken:])
        waits = not ended and (timeout is None or now - waits_since < timeout)
        if group.place > expected and line.missing(expected, group.place) and waits:
            break
        taken, expected = taken + 1, max(expected, group.place + 1)
    return by_place[:taken]
