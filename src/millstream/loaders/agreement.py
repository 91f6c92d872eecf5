"""Do all ranks follow one plan? What each of them says of its plan -> what differs, and on which rank.

Ranks never talk while they load, so without this check a rank with another seed or other data would stay unnoticed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millstream.errors import OrderError
from millstream.stages import HomeProcess
from millstream.tensors import Ranks

PlanFacts = Mapping[str, Any]
COMPARISONS = itertools.count()
"""Of plans with those of the other ranks; the n-th one of each rank belongs to the n-th one of every other."""


class Agreement:
    """Compares plans once, when the first batch is asked for, if every rank of torch.distributed is one of ours."""

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank, self._world_size = rank, world_size
        self._comparison: int | None = None
        self.agreed, self._process = world_size == 1, HomeProcess()

    def check(self, plan: Callable[[], PlanFacts]) -> None:
        """Compare, unless that was done."""
        ranks = None if self.agreed or self._process.left else Ranks.started()  # a forked child is none of the ranks
        if ranks is not None and ranks.size == self._world_size:
            self._comparison = next(COMPARISONS) if self._comparison is None else self._comparison
            check_agreement(plan(), self._rank, self._comparison, ranks)
            self.agreed = True


def check_agreement(plan: PlanFacts, rank: int, number: int, ranks: Ranks) -> None:
    """Compare the plans of all ranks; raises on every one of them where they differ.

    `number` counts such comparisons, so that loaders do not hear each other's plans.
    """
    found = ranks.judged(f"millstream/plan/{number}", {**plan, "rank": rank}, differences)
    if found:
        raise OrderError(
            f"the ranks do not follow one plan: {'; '.join(found)}",
            hint="make the loader with the same data and settings on every rank, and load the same state; "
            "loader.plan_fingerprint() shows what is compared",
        )


def differences(plans: Sequence[PlanFacts]) -> list[str]:
    """Say in what the plans of the ranks differ, and on which ranks.

    >>> differences([{"rank": 0, "seed": 1}, {"rank": 1, "seed": 1}])
    []
    >>> differences([{"rank": 0, "seed": 1}, {"rank": 1, "seed": 2}, {"rank": 1, "seed": 2}])
    ['seed is 1 on rank 0, 2 on ranks 1, 2', 'ranks 1, 2 both read as rank 1']
    """
    found = []
    for key in dict.fromkeys(key for plan in plans for key in plan if key != "rank"):
        values = _grouped([plan.get(key) for plan in plans])
        if len(values) > 1:
            found.append(f"{key} is " + ", ".join(f"{value} on {_named(ranks)}" for value, ranks in values))
    for value, ranks in _grouped([plan.get("rank") for plan in plans]):
        if len(ranks) > 1:
            found.append(f"{_named(ranks)} both read as rank {value}")
    return found


def _grouped(values: Sequence[Any]) -> list[tuple[Any, list[int]]]:
    """Give each value with the ranks that have it."""
    groups: list[tuple[Any, list[int]]] = []
    for rank, value in enumerate(values):
        ranks = next((ranks for known, ranks in groups if known == value), None)
        if ranks is None:
            groups.append((value, [rank]))
        else:
            ranks.append(rank)
    return groups


def _named(ranks: Sequence[int], most: int = 8) -> str:
    listed = ", ".join(map(str, ranks[:most])) + (f" and {len(ranks) - most} more" if len(ranks) > most else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {listed}"
