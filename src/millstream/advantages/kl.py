"""How far the policy is from a reference: estimates of the KL divergence per token, and how hard to hold it."""

from __future__ import annotations

from typing import Literal

import numpy as np

from millstream.advantages.ragged import Array, Doubles, as_mask
from millstream.errors import LoaderError

KlKind = Literal["k1", "k2", "k3"]
EXPONENT, VALUE = 20.0, 10.0
"""verl's bounds of the exponent and of the value of k3."""


def kl_divergence(
    logprobs: Array, reference: Array, mask: Array, kind: KlKind = "k1", *, clamp: bool = False
) -> Doubles:
    """Estimates per token, 0 where the mask is not set; `clamp` bounds k3 as verl does.

    With d = log p - log q, k1 is d (no bias, may be negative), k2 is d²/2, k3 is e^-d + d - 1 (no bias, at least 0).

    >>> kl_divergence(np.array([-1, -0.5, -2]), np.array([-1.2, -0.5, -1]), np.ones(3), "k3").round(4).tolist()
    [0.0187, 0.0, 0.7183]
    """
    chosen = as_mask(mask)
    apart = np.zeros(len(chosen))
    # Of infinite log-probabilities comes what is no number: whoever adds up estimates sees it, and says where it is.
    with np.errstate(invalid="ignore", over="ignore"):
        np.subtract(logprobs, reference, out=apart, where=chosen, dtype=np.float64)
        return _estimate(apart, kind, clamp=clamp)


def _estimate(apart: Doubles, kind: KlKind, *, clamp: bool) -> Doubles:
    if kind == "k1":
        return apart
    if kind == "k2":
        return 0.5 * apart**2
    if kind != "k3":
        raise LoaderError(f"a KL estimate {kind!r} is not known", hint='it is "k1", "k2" or "k3"')
    exponent = np.clip(-apart, -EXPONENT, EXPONENT) if clamp else -apart
    found = np.expm1(exponent) - exponent
    return np.minimum(found, VALUE) if clamp else found


def adapt_beta(beta: float, kl: float, *, target: float, steps: int, horizon: int) -> float:
    """The next weight of the KL penalty: larger if the policy is further away than `target`, else smaller.

    >>> round(adapt_beta(0.2, 8, target=6, steps=256, horizon=10_000), 6)
    0.201024
    """
    return beta * (1 + min(max(kl / target - 1, -0.2), 0.2) * steps / horizon)
