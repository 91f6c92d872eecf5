"""Weighted tokens: one word holds an id and what it weighs in the loss.

The words are those of csrc/core/kernels/weights.h and docs/reference/formats.md.

Weights are written as codes: hundredths up to 1, tenths up to 10, whole numbers up to 75. Common values are
exact; anything else is rounded to the nearest, and counted where chats become tokens (`rounded`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from millstream import _core
from millstream.errors import StoreError

WEIGHTED = "weighted"
ID_BITS = 24
_ID_MASK = np.uint32((1 << ID_BITS) - 1)
_HUNDREDTHS = np.concatenate([np.arange(101), 100 + 10 * np.arange(1, 91), 100 * np.arange(11, 76)])
WEIGHTS: NDArray[np.float64] = _HUNDREDTHS / 100
"""What each of the 256 codes weighs."""
WHOLE = 100
"""The code of weight 1."""

Codes = NDArray[np.uint8]
Tokens = NDArray[np.uint32]


def codes_of(weights: ArrayLike) -> Codes:
    """Give the codes of some weights, each the nearest there is; none but 0 becomes 0.

    >>> codes_of([0, 1, 0.5, 2, 0.001]).tolist()
    [0, 100, 50, 110, 1]
    """
    wanted = np.ascontiguousarray(weights, np.float64).reshape(-1)
    codes = np.empty(len(wanted), np.uint8)
    bad = _core.weight_codes(wanted, codes)
    if bad < len(wanted):
        most = f"{WEIGHTS[-1]:.0f}"
        raise StoreError(f"{wanted[bad]} is no weight that a store can hold", hint=f"weights lie between 0 and {most}")
    return codes


def rounded(weights: NDArray[np.float32], codes: Codes) -> int:
    """Count the weights that are not what their codes say.

    >>> weights = np.array([0, 1, 0.3, 0.3333], np.float32)
    >>> rounded(weights, codes_of(weights))
    1
    """
    return int(np.count_nonzero(WEIGHTS.astype(np.float32)[codes] != weights))


def weigh(ids: NDArray[Any], codes: Codes) -> Tokens:
    """Join ids and codes.

    >>> weigh(np.array([7]), np.array([100], np.uint8)).tolist() == [100 << 24 | 7]
    True
    """
    return ids.astype(np.uint32) | codes.astype(np.uint32) << np.uint32(ID_BITS)


def ids_of(tokens: NDArray[Any]) -> Tokens:
    """Take the ids out of weighted tokens.

    >>> ids_of(weigh(np.array([7]), np.array([100], np.uint8))).tolist()
    [7]
    """
    return tokens & _ID_MASK


def ids_in(tokens: NDArray[Any], dtype: str) -> NDArray[Any]:
    """The ids of tokens of any dtype, without a copy where they are all there is."""
    return ids_of(tokens) if dtype == WEIGHTED else tokens


def weight_codes(tokens: NDArray[Any]) -> Codes:
    """Take the codes out of weighted tokens."""
    return (tokens >> np.uint32(ID_BITS)).astype(np.uint8)


def carries_loss(tokens: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which weighted tokens weigh more than nothing.

    >>> carries_loss(weigh(np.array([7, 8]), codes_of([0.25, 0]))).tolist()
    [True, False]
    """
    return tokens >= np.uint32(1 << ID_BITS)


def weights_of(tokens: NDArray[Any]) -> NDArray[np.float32]:
    """Say what weighted tokens weigh.

    >>> weights_of(weigh(np.array([7, 8]), codes_of([0.25, 0]))).tolist()
    [0.25, 0.0]
    """
    return WEIGHTS.astype(np.float32)[weight_codes(tokens)]
