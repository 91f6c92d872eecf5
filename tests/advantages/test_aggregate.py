"""Weights of losses: what has no loss counts for nothing, and a rollout in several sequences counts once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from millstream.advantages import Denominators, loss_scales
from millstream.errors import LoaderError


def test_sequences_without_loss_are_in_no_denominator() -> None:
    mask, ends = np.array([1, 1, 0, 1]), np.array([2, 3, 4])
    found = Denominators.of(mask, ends)
    assert (found.tokens, found.sequences, found.rollouts) == (3, 2, 2)
    assert loss_scales("seq-mean-token-mean", mask, ends, found).tolist() == [0.25, 0.25, 0, 0.5]


def test_a_rollout_in_several_sequences_has_one_mean() -> None:
    mask, ends = np.ones(4), np.array([1, 3, 4])
    found = Denominators.of(mask, ends, np.array([7, 7, 0]))
    assert found.rollouts == 2
    scales = loss_scales("rollout-mean-token-mean", mask, ends, found)
    assert scales.round(6).tolist() == [0.166667, 0.166667, 0.166667, 0.5]


def test_a_step_without_any_loss_weighs_nothing() -> None:
    mask, ends = np.zeros(2), np.array([1, 2])
    assert not loss_scales("token-mean", mask, ends, Denominators.of(mask, ends)).any()


@pytest.mark.parametrize(
    ("mode", "constant"), [("seq-sum-constant", None), ("seq-sum-constant", 0), ("token-mean", 3), ("mean", None)]
)
def test_what_has_no_meaning_is_refused(mode: Any, constant: float | None) -> None:
    mask, ends = np.ones(2), np.array([1, 2])
    with pytest.raises(LoaderError):
        loss_scales(mode, mask, ends, Denominators.of(mask, ends), constant=constant)
