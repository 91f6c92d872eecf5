"""What rows weigh in a loss: what is not learned counts for nothing, and a rollout in several rows counts once."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from millstream.batches import MeanOf
from millstream.batches.denominators import StepLoss


@pytest.mark.parametrize("mean_of", get_args(MeanOf))
def test_a_step_in_which_nothing_is_learned_has_a_loss_of_0_and_not_of_nan(mean_of: MeanOf) -> None:
    for given in (np.ones(2), np.zeros(2)):
        found = StepLoss(["a", "b"], np.array([0, 0]), given, mean_of)
        assert 0 / found.totals["loss_denominator"] == 0


@pytest.mark.parametrize(
    ("mean_of", "constant", "wanted"),
    [
        ("token", 1, 3.5),
        ("sequence_sum", 1, 10.5),
        ("sequence", 1, 4.0),
        ("rollout", 1, 4.0),
        ("constant", 4, 5.25),
        ("sequence_sum", 4, 2.625),
    ],
)
def test_losses_are_aggregated(mean_of: MeanOf, constant: float, wanted: float) -> None:
    """Known values of the losses [[1, 2, 3, 4], [5, 6]]; a row without loss changes none of them."""
    sums = np.array([10, 11, 0])
    loss = StepLoss(["a", "b", "c"], np.array([4, 2, 0]), np.ones(3), mean_of, constant)
    assert loss.weights @ sums / loss.denominator == pytest.approx(wanted)


def test_a_rollout_in_several_rows_has_one_mean() -> None:
    loss = StepLoss(["a", "a", "b"], np.array([1, 2, 1]), np.ones(3), "rollout")
    assert (loss.weights / loss.denominator).round(6).tolist() == [0.166667, 0.166667, 0.5]
    assert loss.totals["num_rollouts"] == 2
