"""What sums of losses are divided by: counted over all rows, micro-batches and ranks of a step or an update.

A mean of means is wrong as soon as batches have unequal numbers of targets. So each batch says what its whole step
weighs: divide the sum of a batch's losses by that, and add up. A rollout that was cut into several rows still has one
mean: every row knows how much of its rollout is learned in all.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from millstream.batches.engine import Batch

Numbers = npt.NDArray[np.int64]
MeanOf = Literal["token", "sequence", "sequence_sum", "rollout", "constant"]
"""Of what a loss is the mean: of all tokens; of rows, each a mean or the sum of its own tokens; of rollouts, each a
mean of the tokens of all its rows; or of nothing: the sum of all tokens, divided by a constant. The mean of sums may be
divided by a constant too, as Dr.GRPO does with the greatest length."""
EngineMeanOf = Literal["token", "sequence"]
_NATIVE = {"token": "targets", "sequence": "segments"}


@dataclass(frozen=True, eq=False)
class StepLoss:
    """Rows of a step: the rollout of each, its learned tokens, and what each of those was given to weigh.

    >>> loss = StepLoss(["a", "a", "b"], np.array([1, 3, 4]), np.ones(3), "rollout")
    >>> loss.weights.tolist(), loss.totals["loss_denominator"]
    ([0.25, 0.25, 0.25], 2.0)
    """

    rollouts: Sequence[Hashable]
    targets: Numbers
    given: npt.NDArray[np.float64]
    mean_of: MeanOf = "token"
    constant: float = 1.0
    """What sums of tokens are divided by besides: only for "sequence_sum" and "constant"."""

    @cached_property
    def _rows_are_rollouts(self) -> bool:
        return len(set(self.rollouts)) == len(self.rollouts)

    @cached_property
    def rollout_targets(self) -> Numbers:
        """Learned tokens of all rows that have the rollout of a row."""
        if self._rows_are_rollouts:
            return self.targets
        numbers: dict[Hashable, int] = {}
        of_rollout = np.array([numbers.setdefault(each, len(numbers)) for each in self.rollouts], np.int64)
        return np.bincount(of_rollout, self.targets).astype(np.int64)[of_rollout]

    @cached_property
    def weights(self) -> npt.NDArray[np.float64]:
        """What each learned token of a row weighs in the loss."""
        if self.mean_of == "sequence":
            return self.given / np.maximum(1, self.targets)
        if self.mean_of == "rollout":
            return self.given / np.maximum(1, self.rollout_targets)
        return self.given

    @cached_property
    def all_weigh_1(self) -> bool:
        """Whether a mask says all that weights would."""
        return bool((self.weights == 1).all())

    @cached_property
    def totals(self) -> dict[str, Any]:
        """What every batch says of its whole step; rows and rollouts without a learned token do not count."""
        learned = np.flatnonzero(self.targets)
        rollouts = learned if self._rows_are_rollouts else {self.rollouts[row] for row in learned.tolist()}
        return {
            "num_loss_tokens": int(self.targets.sum()),
            "num_sequences": len(learned),
            "num_rollouts": len(rollouts),
            "loss_denominator": self.denominator,
        }

    @property
    def denominator(self) -> float:
        """What sums of losses are divided by; 1 where nothing is learned, since 0 / 0 is no loss."""
        if self.mean_of == "constant":
            return self.constant
        if self.mean_of == "sequence_sum":
            return float(self.given[self.targets > 0].sum() * self.constant) or 1.0
        return float((self.weights * self.targets).sum()) or 1.0


@dataclass(frozen=True)
class LossMean:
    """A mean over the tokens of an update, or over its sequences, each of which is a mean over its own tokens."""

    mean_of: EngineMeanOf = "token"
    accumulation: int = 1
    """Steps (micro-batches of each rank) that make one update of the model."""
    alike: bool = False
    """Whether all targets weigh 1: what the store says they weigh means something else."""

    @property
    def native(self) -> str:
        """What the engine calls it."""
        return _NATIVE[self.mean_of]

    def facts(self, native: Batch) -> dict[str, Any]:
        """What the metadata of a batch says: `loss_tokens` of its own, and the denominators of its whole update."""
        targets, hundredths, segments = native.step_weight
        weight = float(targets) if self.alike else hundredths / 100
        return {
            "loss_tokens": native.targets,
            "num_loss_tokens": targets,
            "loss_denominator": weight if self.mean_of == "token" else float(segments),
        }
