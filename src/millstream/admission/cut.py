"""Cut: the rollouts that one step trains on, and what was dropped on the way to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.admission.groups import Group
from millstream.admission.identity import (
    Drop,
    Name,
    drop_from_json,
    drop_to_json,
    is_baseline,
    name_from_json,
    name_to_json,
)
from millstream.admission.rules import AdmissionRules
from millstream.admission.staleness import mask_stale
from millstream.errors import StateError
from millstream.rollouts import ROW_COLUMNS, Id, RolloutBlock


@dataclass(frozen=True, eq=False)
class Cut:
    """What a step trains on."""

    step: int
    policy_version: int
    block: RolloutBlock
    """The rollouts of all groups, those of a group next to each other."""
    group_ids: tuple[Id, ...]
    group_ends: tuple[int, ...]
    """The row of the block behind each group."""
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
    def from_json(cls, saved: Mapping[str, Any], block: RolloutBlock) -> Cut:
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
        cls, rules: AdmissionRules, step: int, policy_version: int, fresh: Sequence[Group], again: Sequence[Group],
        names: Sequence[tuple[Name, ...]], drops: Sequence[Drop],
    ) -> Cut:  # fmt: skip
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
