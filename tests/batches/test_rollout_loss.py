"""What rows weigh in a loss: what is not learned counts for nothing, and a rollout in several rows counts once."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from millstream.batches.rollout_loss import MeanOf, StepLoss


@pytest.mark.parametrize("mean_of", get_args(MeanOf))
def test_a_step_in_which_nothing_is_learned_has_a_loss_of_0_and_not_of_nan(mean_of: MeanOf) -> None:
    for given in (np.ones(2), np.zeros(2)):
        found = StepLoss(["a", "b"], np.array([0, 0]), given, mean_of)
        assert 0 / found.totals["loss_denominator"] == 0
