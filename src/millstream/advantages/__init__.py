"""Rewards -> advantages, returns and weights: pure functions over ragged arrays, in float64."""

from millstream.advantages.compute import Advantages, compute_advantages
from millstream.advantages.correction import correction_weights
from millstream.advantages.estimators import (
    Estimate,
    Scored,
    find_estimator,
    known_estimators,
    register_estimator,
)
from millstream.advantages.kl import adapt_beta, kl_divergence
from millstream.advantages.settings import AdvantageSettings
from millstream.advantages.shaping import Overlong

__all__ = [
    "AdvantageSettings",
    "Advantages",
    "Estimate",
    "Overlong",
    "Scored",
    "adapt_beta",
    "compute_advantages",
    "correction_weights",
    "find_estimator",
    "kl_divergence",
    "known_estimators",
    "register_estimator",
]
