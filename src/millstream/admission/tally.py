"""What became of rollouts: one fate for each that arrived, counted in rollouts and in tokens on a ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.stats import Ledger

ARRIVED = "arrived"
CUT = "cut"
TOKENS = "_tokens"
"""What the name of a count of tokens ends with."""
MASKED = f"stale_masked{TOKENS}"
"""Not a fate: tokens whose loss was taken away, of rollouts that were cut."""

SHORT_GROUPS = "short_groups"
"""Not a fate: groups that were smaller than they were said to be, and are used all the same."""


def count_fate(ledger: Ledger, fate: str, rollouts: int, tokens: int) -> None:
    """Count some rollouts, and their tokens.

    >>> ledger = Ledger()
    >>> count_fate(ledger, "cut", 2, 30)
    >>> ledger.counts
    {'cut': 2, 'cut_tokens': 30}
    """
    ledger.add(fate, count=rollouts)
    ledger.add(f"{fate}{TOKENS}", count=tokens)


def fates_to_json(ledger: Ledger) -> dict[str, Any]:
    """Write the counts down, those of rollouts and those of tokens apart."""
    counts = sorted(ledger.counts.items())
    return {
        "rollouts": {name: count for name, count in counts if not name.endswith(TOKENS)},
        "tokens": {name.removesuffix(TOKENS): count for name, count in counts if name.endswith(TOKENS)},
    }


def fates_from_json(saved: Mapping[str, Any]) -> Ledger:
    """Read them back."""
    ledger = Ledger()
    ledger.restart({**saved["rollouts"], **{f"{fate}{TOKENS}": count for fate, count in saved["tokens"].items()}})
    return ledger


def mean_lengths(counters: Mapping[str, int]) -> dict[str, float]:
    """Tokens per rollout by fate: what was cut against what was dropped shows a bias to short answers.

    >>> mean_lengths({"cut": 2, "cut_tokens": 30, "stale": 1, "stale_tokens": 40, "feed_received": 3})
    {'cut': 15.0, 'stale': 40.0}
    """
    tokens = {fate: counters.get(f"{fate}_tokens") for fate, count in sorted(counters.items()) if count}
    return {fate: held / counters[fate] for fate, held in tokens.items() if held is not None}
