"""Costs -> parts that cost about the same: rows for ranks, or for the micro-batches of a rank.

Integers to integers, the same everywhere: all ranks that ask get the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream import _core
from millstream.errors import OrderError

Numbers = npt.NDArray[np.int64]
Integers = Sequence[int] | npt.NDArray[Any]


@dataclass(frozen=True)
class CostModel:
    """What a sequence costs a model: linear · length + quadratic · length².

    The defaults are those of a model of hidden size 4096.

    >>> CostModel().of([1, 2]).tolist()
    [24577, 49156]
    """

    linear: int = 24576
    quadratic: int = 1

    @classmethod
    def of_config(
        cls, hidden_size: int, *, intermediate_size: int | None = None, key_value_size: int | None = None
    ) -> CostModel:
        """Count the multiplications of a layer: its weights once per token, attention between each two tokens.

        >>> CostModel.of_config(4096)
        CostModel(linear=24576, quadratic=1)

        Args:
            hidden_size: Width of the model.
            intermediate_size: Width of its gated MLP; by default 8/3 of the hidden size.
            key_value_size: Key-value heads times their size; by default the hidden size.
        """
        mlp = 8 * hidden_size if intermediate_size is None else 3 * intermediate_size
        attention = 2 * hidden_size + 2 * (hidden_size if key_value_size is None else key_value_size)
        return cls((attention + mlp) // 2, 1)

    def of(self, lengths: Integers) -> Numbers:
        """What sequences of these lengths cost."""
        each = np.asarray(lengths, np.int64)
        return self.linear * each + self.quadratic * each * each


def partition(costs: Integers, parts: int, *, equal_sizes: bool = False, refine: bool = True) -> Numbers:
    """Give the part of each item, so that parts cost about the same; part 0 costs the most.

    Karmarkar and Karp's largest differencing, then exchanges between the heaviest part and others.

    >>> partition([8, 7, 6, 5, 4], 2).tolist()
    [1, 1, 0, 0, 0]

    Args:
        costs: What each item costs; not negative.
        parts: How many parts there are.
        equal_sizes: No part gets two items more than another.
        refine: Exchange items afterwards; without it the parts are those of the plain method.
    """
    each = np.ascontiguousarray(costs, np.int64)
    if parts < 1:
        raise OrderError(f"items cannot be put into {parts} parts", hint="pass 1 or more")
    if each.min(initial=0) < 0:
        raise OrderError(f"item {int(each.argmin())} costs {each.min()}", hint="costs are 0 or more")
    part_of = np.empty(len(each), np.int64)
    try:
        _core.partition(each, parts, equal_sizes, refine, part_of)
    except OverflowError:
        raise OrderError("the costs add up to more than 2^62", hint="divide them by something") from None
    return part_of


def members(part_of: Numbers, parts: int) -> list[Numbers]:
    """The items of each part, in rising order.

    >>> [each.tolist() for each in members(np.array([1, 0, 1]), 3)]
    [[1], [0, 2], []]
    """
    order = np.argsort(part_of, kind="stable")
    return np.split(order, np.cumsum(np.bincount(part_of, minlength=parts))[:-1])
