"""What a loss is a mean of, and what its sum is divided by: counted over all micro-batches and ranks of an update.

A mean of means is wrong as soon as batches have unequal numbers of targets. So each batch says what the whole update
weighs: divide the sum of a batch's losses by that, and add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from millstream.batches import Batch

MeanOf = Literal["token", "sequence"]
_NATIVE = {"token": "targets", "sequence": "segments"}


@dataclass(frozen=True)
class LossMean:
    """A mean over the tokens of an update, or over its sequences, each of which is a mean over its own tokens."""

    mean_of: MeanOf = "token"
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
