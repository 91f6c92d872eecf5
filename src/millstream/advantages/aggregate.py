"""Losses per token -> one loss, as a weight per token: the sum of weight times loss is the aggregated loss.

Weights come from denominators of the whole step, so that any cut into micro-batches and ranks gives the same sum: a
mean of means would not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from millstream.advantages.ragged import Array, Doubles, Numbers, masked_counts, spread_rows
from millstream.errors import LoaderError

Aggregation = Literal[
    "token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "rollout-mean-token-mean",
    "seq-sum-constant",
    "seq-mean-token-sum-norm",
]
"""What is averaged. `rollout-mean-token-mean`: samples that share a rollout id have one mean together. The last two
divide by a `constant`: sums of sequences by it alone, and their mean by it too (verl 0.9.1; Dr.GRPO with the longest
length as constant)."""


@dataclass(frozen=True, eq=False)
class Denominators:
    """What the losses of one step are divided by: over all micro-batches and ranks. Made before anything is cut."""

    tokens: int
    """Tokens with loss."""
    sequences: int
    """Sequences with any loss."""
    rollouts: int
    """Rollouts with any loss; one that was split into several sequences counts once."""
    rollout_tokens: Numbers
    """For each sequence, the tokens with loss of its whole rollout; a part of the step needs those of its sequences."""

    @classmethod
    def of(cls, mask: Array, ends: Array, rollouts: Array | None = None) -> Denominators:
        """Count a whole step; `rollouts` are codes, 0..r-1, if several sequences may be one rollout.

        >>> found = Denominators.of(np.array([1, 1, 0, 1, 0]), np.array([2, 4, 5]), np.array([0, 0, 1]))
        >>> found.tokens, found.sequences, found.rollouts, found.rollout_tokens.tolist()
        (3, 2, 1, [3, 3, 0])
        """
        counts = masked_counts(mask, ends)
        codes = np.arange(len(counts)) if rollouts is None else np.asarray(rollouts, np.int64)
        totals = np.bincount(codes, counts).astype(np.int64)
        return cls(int(counts.sum()), int(np.sum(counts > 0)), int(np.sum(totals > 0)), totals[codes])

    def part(self, rows: Array) -> Denominators:
        """The same for some sequences of the step."""
        return Denominators(self.tokens, self.sequences, self.rollouts, self.rollout_tokens[rows])


def loss_scales(
    mode: Aggregation, mask: Array, ends: Array, denominators: Denominators, *, constant: float | None = None
) -> Doubles:
    """A weight per token for some sequences of a step; 0 where the mask is not set.

    With gradients that are averaged over ranks, multiply by their number.

    >>> mask, ends = np.ones(6), np.array([4, 6])
    >>> losses = np.array([1, 2, 3, 4, 5, 6])
    >>> for mode in ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean"):
    ...     float((loss_scales(mode, mask, ends, Denominators.of(mask, ends)) * losses).sum().round(6))
    3.5
    10.5
    4.0
    """
    return spread_rows(_row_scales(mode, mask, ends, denominators, constant), mask, ends)


def _row_scales(mode: Aggregation, mask: Array, ends: Array, found: Denominators, constant: float | None) -> Doubles:
    if (constant is not None) != (mode in ("seq-sum-constant", "seq-mean-token-sum-norm")) or constant == 0:
        raise LoaderError(
            f"{mode!r} and constant={constant}",
            hint="seq-sum-constant and seq-mean-token-sum-norm need one, others have none",
        )
    sequences, rollouts = max(found.sequences, 1), max(found.rollouts, 1)
    if mode == "token-mean":
        return np.full(len(ends), 1 / max(found.tokens, 1))
    if mode == "seq-mean-token-sum":
        return np.full(len(ends), 1 / sequences)
    if mode == "seq-mean-token-mean":
        return 1 / (np.maximum(masked_counts(mask, ends), 1) * sequences)
    if mode == "rollout-mean-token-mean":
        return 1 / (np.maximum(found.rollout_tokens, 1) * rollouts)
    if mode == "seq-sum-constant" and constant is not None:
        return np.full(len(ends), 1 / constant)
    if mode == "seq-mean-token-sum-norm" and constant is not None:
        return np.full(len(ends), 1 / (constant * sequences))
    raise LoaderError(f"losses are not aggregated by {mode!r}", hint=f"ways are {', '.join(get_args(Aggregation))}")
