"""Ledger: counts of what was lost on the way to the trainer."""

from __future__ import annotations

from collections import Counter


class Ledger:
    """Counts by reason. What belongs to a batch is pending until the batch is delivered.

    >>> ledger = Ledger("cut_tokens")
    >>> ledger.pending["cut_tokens"] = 7
    >>> ledger.settle()
    >>> ledger.counts
    {'cut_tokens': 7}
    """

    def __init__(self, *reasons: str) -> None:
        self._reasons = reasons
        self.pending: dict[str, int] = {}
        """What the batch that is being made has lost."""
        self.restart()

    def restart(self) -> None:
        """Count from here: the run stands elsewhere."""
        self._counts = Counter(dict.fromkeys(self._reasons, 0))
        self.pending.clear()

    def settle(self) -> None:
        """The batch was delivered."""
        for reason, count in self.pending.items():
            self._counts[reason] += count
        self.pending.clear()

    @property
    def counts(self) -> dict[str, int]:
        """What delivered batches have lost."""
        return dict(self._counts)
