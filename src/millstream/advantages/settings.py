"""AdvantageSettings: which estimator computes advantages, and all its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np

from millstream.advantages.baselines import Scale
from millstream.advantages.masked import Array, Doubles, Whitening
from millstream.errors import LoaderError
from millstream.rollouts import EQUAL_WITHIN

KlKind = Literal["k1", "k2", "k3"]
"""Estimates of the KL divergence per token, as `kl_divergence` says."""
RewardOf = Literal["auto", "scalar", "tokens", "both"]
"""Where a rollout's reward comes from: `reward` (or named ones), the sum of `token_rewards`, or both added up. "auto":
named ones if they have weights, else `token_rewards` if there are any, else `reward`."""


@dataclass(frozen=True)
class AdvantageSettings:
    """How advantages are computed.

    >>> AdvantageSettings("gae", gamma=0.99, lam=0.95).whitening
    'unbiased'
    >>> AdvantageSettings(gamma=1.5)
    Traceback (most recent call last):
    millstream.errors.LoaderError: gamma is 1.5
      hint: it is a number from 0 to 1
    """

    estimator: str = "grpo"
    epsilon: float = 1e-6
    """Added to standard deviations of groups."""
    scale: Scale | None = None
    """What deviations are divided by; None: as the estimator does ("group" for grpo, "none" for passk)."""
    gamma: float = 1.0
    lam: float = 1.0
    whitening: Whitening = "unbiased"
    kl_beta: float = 0.0
    """Weight of the KL penalty that is taken off the reward of each token; 0: none."""
    kl_kind: KlKind = "k1"
    kl_clamp: bool = False
    overlong: Overlong | None = None
    """Take something off the reward of rollouts that got long."""
    filter_truncated: bool = False
    """Train nothing on rollouts that were cut off; they stay in the mean of their group."""
    reward_of: RewardOf = "auto"
    reward_weights: Mapping[str, float] | None = None
    """Weights of named rewards, whose sum is the reward. What was not scored is left out of the sum."""
    zero_variance_tol: float = EQUAL_WITHIN
    """Task rewards of a group that differ by no more than this are equal: all its advantages are exactly 0."""
    allow_singleton: bool = False
    """Let groups of one pass, with an advantage of 0, where an estimator compares rollouts of a group."""

    def __post_init__(self) -> None:
        if not isinstance(self.estimator, str):
            raise LoaderError(
                f"estimator is {self.estimator!r}, not a name",
                hint='leave it out for "grpo"; compute_advantages=False computes none',
            )
        for name in ("gamma", "lam"):
            if not (is_number(getattr(self, name)) and 0 <= getattr(self, name) <= 1):
                raise LoaderError(f"{name} is {getattr(self, name)!r}", hint="it is a number from 0 to 1")
        for name in ("epsilon", "zero_variance_tol", "kl_beta"):
            if not (is_number(getattr(self, name)) and getattr(self, name) >= 0):
                raise LoaderError(f"{name} is {getattr(self, name)!r}", hint="it is a number, at least 0")
        for name in ("kl_clamp", "filter_truncated", "allow_singleton"):
            if not isinstance(getattr(self, name), bool):
                raise LoaderError(f"{name} is {getattr(self, name)!r}", hint="it is True or False")
        if self.overlong is not None and not isinstance(self.overlong, Overlong):
            raise LoaderError(f"overlong is {self.overlong!r}", hint="pass Overlong(max_length=…, buffer=…)")
        self._check_weights()
        self._check_choices()

    def _check_weights(self) -> None:
        weights = self.reward_weights
        if weights is None:
            return
        if not isinstance(weights, Mapping) or not all(map(is_number, weights.values())):
            raise LoaderError(f"reward_weights is {weights!r}", hint='it is a dict of numbers, such as {"style": 0.1}')

    def _check_choices(self) -> None:
        choices: dict[str, tuple[Any, ...]] = {
            "scale": (None, *get_args(Scale)),
            "whitening": get_args(Whitening),
            "kl_kind": get_args(KlKind),
            "reward_of": get_args(RewardOf),
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise LoaderError(
                    f"{name} is {getattr(self, name)!r}", hint=f"it is one of {', '.join(map(repr, known))}"
                )


def is_number(value: object) -> bool:
    """Whether a setting is a number; True and False are none.

    >>> is_number(0.5), is_number(np.float32(1)), is_number("0.5"), is_number(True)
    (True, True, False, False)
    """
    return isinstance(value, Real) and not isinstance(value, bool)


@dataclass(frozen=True)
class Overlong:
    """DAPO's soft punishment: it grows over the last `buffer` tokens before `max_length`, up to `factor`."""

    max_length: int
    buffer: int
    factor: float = 1.0

    def __post_init__(self) -> None:
        for name in ("max_length", "buffer", "factor"):
            if not is_number(getattr(self, name)):
                raise LoaderError(f"overlong: {name} is {getattr(self, name)!r}", hint="it is a number")
        if not 0 < self.buffer <= self.max_length:
            raise LoaderError(
                f"overlong: the buffer is {self.buffer} of {self.max_length} tokens",
                hint="it is at least 1 and at most max_length",
            )

    def penalty(self, lengths: Array) -> Doubles:
        """What is added to the reward of rollouts of so many tokens of the policy.

        >>> Overlong(20480, 4096).penalty(np.array([16384, 18432, 20480])).tolist()
        [0.0, -0.5, -1.0]
        """
        over = np.asarray(lengths, np.float64) - (self.max_length - self.buffer)
        return 0.0 - np.clip(over, 0, self.buffer) / self.buffer * self.factor
