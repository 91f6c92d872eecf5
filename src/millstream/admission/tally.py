"""What became of rollouts: one fate for each that arrived, counted in rollouts and in tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

ARRIVED = "arrived"
CUT = "cut"
MASKED = "stale_masked"
"""Not a fate: tokens whose loss was taken away, of rollouts that were cut."""

SHORT_GROUPS = "short_groups"
"""Not a fate: groups that were smaller than they were said to be, and are used all the same."""


class Tally:
    """Counts by fate.

    >>> tally = Tally()
    >>> tally.add("cut", 2, 30)
    >>> tally.counters()
    {'cut': 2, 'cut_tokens': 30}
    """

    def __init__(self) -> None:
        self.rollouts: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()

    def add(self, fate: str, rollouts: int, tokens: int) -> None:
        """Count some rollouts."""
        self.rollouts[fate] += rollouts
        self.tokens[fate] += tokens

    def copy(self) -> Tally:
        """The same, to be counted apart."""
        tally = Tally()
        tally.rollouts, tally.tokens = self.rollouts.copy(), self.tokens.copy()
        return tally

    def counters(self) -> dict[str, int]:
        """All counts with flat names: rollouts as `stale`, tokens as `stale_tokens`."""
        named = {f"{fate}_tokens": count for fate, count in self.tokens.items()}
        return dict(sorted({**self.rollouts, **named}.items()))

    def to_json(self) -> dict[str, Any]:
        """Write the counts down."""
        return {"rollouts": dict(sorted(self.rollouts.items())), "tokens": dict(sorted(self.tokens.items()))}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Tally:
        """Read them back."""
        tally = cls()
        tally.rollouts.update(saved["rollouts"])
        tally.tokens.update(saved["tokens"])
        return tally


def mean_lengths(counters: Mapping[str, int]) -> dict[str, float]:
    """Tokens per rollout by fate: what was cut against what was dropped shows a bias to short answers.

    >>> mean_lengths({"cut": 2, "cut_tokens": 30, "stale": 1, "stale_tokens": 40, "feed_received": 3})
    {'cut': 15.0, 'stale': 40.0}
    """
    tokens = {fate: counters.get(f"{fate}_tokens") for fate, count in sorted(counters.items()) if count}
    return {fate: held / counters[fate] for fate, held in tokens.items() if held is not None}
