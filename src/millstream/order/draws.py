"""Random numbers by place: the n-th number of a key is computed, not waited for, so anybody can draw it again.

A step of SplitMix64: the place, scrambled by two multiplications. Keys come from `source_key`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def draw_word(key: int, place: int) -> int:
    """The 64-bit number at a place.

    >>> hex(draw_word(0, 0)), hex(draw_word(0, 1))
    ('0xe220a8397b1dcdaf', '0x6e789e6aa1b965f4')
    """
    word = (key + (place + 1) * GOLDEN) & WORD
    word = ((word ^ (word >> 30)) * FIRST) & WORD
    word = ((word ^ (word >> 27)) * SECOND) & WORD
    return word ^ (word >> 31)


def draw_below(key: int, place: int, bound: int) -> int:
    """A number from 0 to `bound` - 1, each as likely as any other up to one in 2**64 / bound.

    >>> [draw_below(7, place, 10) for place in range(5)]
    [3, 0, 9, 5, 4]
    """
    return (draw_word(key, place) * bound) >> 64


def draw_uniform(key: int, places: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Numbers from 0 up to but not 1, one for each place.

    >>> draw_uniform(7, [0, 1]).round(4).tolist()
    [0.3898, 0.0168]
    """
    words = np.asarray(places).astype(np.uint64)
    words = np.uint64(key & WORD) + (words + np.uint64(1)) * np.uint64(GOLDEN)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(FIRST)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(SECOND)
    words ^= words >> np.uint64(31)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw_fraction(key: int, place: int) -> float:
    """The number of `draw_uniform` at one place.

    >>> draw_fraction(7, 1) == float(draw_uniform(7, [1])[0])
    True
    """
    return float(draw_word(key & WORD, place) >> 11) * 2.0**-53


def derive_key(key: int, *parts: int) -> int:
    """A key of its own for every part of a thing, and every part of that.

    >>> derive_key(1, 2, 3) == derive_key(1, 2, 3), derive_key(1, 2) == derive_key(1, 3)
    (True, False)
    """
    for part in parts:
        key = draw_word(key, part) ^ GOLDEN
    return key
