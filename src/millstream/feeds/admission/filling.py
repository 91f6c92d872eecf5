"""Complete groups -> those that a batch takes: in their order, as many as it has room for."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millstream.feeds.admission.groups import Group
from millstream.feeds.admission.rules import AdmissionRules


@dataclass(frozen=True)
class BatchSize:
    """How much a batch holds: so many groups, or whole groups of so many rollouts."""

    room: int
    by_rollouts: bool

    @classmethod
    def of(cls, rules: AdmissionRules) -> BatchSize:
        """The size that the rules give."""
        return cls(rules.groups_per_batch or rules.rollouts_per_batch or 1, rules.rollouts_per_batch is not None)

    def weigh(self, groups: Iterable[Group]) -> int:
        """How much room groups take."""
        return sum(group.rollouts if self.by_rollouts else 1 for group in groups)

    def fill(self, groups: Iterable[Group], room: int) -> tuple[list[Group], bool]:
        """Take groups while they fit, and a first one that does not; says whether the room is full then."""
        taken: list[Group] = []
        for group in groups:
            weight = self.weigh([group])
            if taken and weight > room:
                return taken, True
            taken.append(group)
            room -= weight
            if room <= 0:
                return taken, True
        return taken, False

    def fit(self, groups: Iterable[Group], room: int) -> list[Group]:
        """Take the groups that fit, whichever these are."""
        taken: list[Group] = []
        for group in groups:
            weight = self.weigh([group])
            if weight <= room:
                taken.append(group)
                room -= weight
        return taken


class IndexLine:
    """Which indices of groups need not be waited for: all before `next`, and some behind it.

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
    ready: Sequence[Group], rules: AdmissionRules, step: int, line: IndexLine, now: float, *, ended: bool
) -> list[Group]:
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
