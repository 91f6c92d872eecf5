"""Parts: the rows of one rollout, where an engine gave it in several. It counts once wherever rollouts are compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from millstream.advantages.groups import group_codes
from millstream.advantages.ragged import Array, Doubles, Mask, Numbers


@dataclass(frozen=True, eq=False)
class Parts:
    """For each row, the first row of its rollout: that one speaks for it.

    >>> parts = Parts.of([0, 0, 0], ["a", "a", "b"])
    >>> parts.mean(np.array([1.0, np.nan, 0.0])).tolist(), parts.sum(np.array([2, 3, 4])).tolist()
    ([1.0, 1.0, 0.0], [5.0, 5.0, 4.0])
    """

    first: Numbers

    @classmethod
    def of(cls, groups: Array | Iterable[int], ids: Iterable[Any]) -> Parts:
        """Rows of one group that share an id are one rollout."""
        codes = group_codes(zip(np.asarray(groups).tolist(), ids, strict=True))
        return cls(np.unique(codes, return_index=True)[1].astype(np.int64)[codes])

    @classmethod
    def whole(cls, rows: int) -> Parts:
        """Every row is a rollout of its own."""
        return cls(np.arange(rows, dtype=np.int64))

    @cached_property
    def heads(self) -> Mask:
        """Rows that speak for their rollout."""
        return np.asarray(self.first == np.arange(len(self.first)))

    @cached_property
    def are_whole(self) -> bool:
        """Whether every row is a rollout of its own."""
        return bool(self.heads.all())

    def sum(self, values: Array) -> Doubles:
        """The sum over all rows of a row's rollout, without NaN."""
        return np.bincount(self.first, np.nan_to_num(values), len(self.first)).astype(np.float64)[self.first]

    def mean(self, values: Array) -> Doubles:
        """The mean over all rows of a row's rollout that are not NaN; NaN if there are none."""
        counts = self.sum(~np.isnan(values))
        return np.where(counts > 0, self.sum(values) / np.maximum(counts, 1), np.nan)
