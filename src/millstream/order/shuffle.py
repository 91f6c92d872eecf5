"""Position in an epoch <-> sample: a keyed bijection, computed when asked for; and random numbers by place.

(samples, seed, name, epoch, positions) -> samples. Nothing is stored, so 10^12 samples cost as much as ten, and the
inverse gives the position of a sample. The key comes from the source's *name*: adding a source moves no other.
The n-th random number of a key is computed too (a step of SplitMix64), so any process can draw it again.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import numpy as np
import numpy.typing as npt

from millstream._core import OrderSpec
from millstream.errors import OrderError

Words = npt.NDArray[np.uint64]
Shuffle = Literal["none", "global", "local"]

LOCAL_BLOCK_TOKENS = 2**21
"""Tokens that stay together until their group is shuffled: 4 MiB of uint16, a size that disks read at full speed."""
LOCAL_GROUP_BLOCKS = 32
"""Blocks that are shuffled into each other: the window of a local shuffle is 64 Mi tokens."""
MOST_SAMPLES = 2**63


def source_key(seed: int, name: str) -> int:
    """Give the 64-bit key of a source; every order of this source is derived from it.

    >>> source_key(0, "web") == source_key(0, "web"), source_key(0, "web") == source_key(1, "web")
    (True, False)
    """
    digest = hashlib.blake2b(f"{seed}\0{name}".encode(), digest_size=8, person=b"millstream order")
    return int.from_bytes(digest.digest(), "little")


class SampleOrder:
    """One source's order: which sample stands at which position of which epoch.

    >>> order = SampleOrder(10, shuffle="global", seed=7)
    >>> [int(sample) for sample in order.at(range(10), epoch=0)]
    [5, 1, 4, 2, 3, 7, 8, 6, 9, 0]
    >>> [int(position) for position in order.inverse([5, 1, 4], epoch=0)]
    [0, 1, 2]
    """

    def __init__(
        self,
        samples: int,
        *,
        shuffle: Shuffle = "global",
        seed: int = 0,
        name: str = "",
        block_samples: int = 1,
        group_blocks: int = LOCAL_GROUP_BLOCKS,
    ) -> None:
        if not 1 <= samples <= MOST_SAMPLES:
            raise OrderError(
                f"an order needs 1 to 2**63 samples, not {samples}",
                hint="the store may hold fewer tokens than one row: try a smaller chunk_size or tail='pad'",
            )
        if shuffle not in ("none", "global", "local"):
            raise OrderError(f"unknown shuffle {shuffle!r}", hint="use 'global', 'local' or 'none'")
        self.samples = samples
        self.spec = OrderSpec(shuffle, samples, source_key(seed, name), block_samples, group_blocks)

    def at(self, positions: npt.ArrayLike, epoch: int = 0) -> Words:
        """Give the sample at each position."""
        wanted = self._checked(positions)
        out = np.empty_like(wanted)
        self.spec.at(epoch, wanted, out)
        return out

    def inverse(self, samples: npt.ArrayLike, epoch: int = 0) -> Words:
        """Give the position of each sample."""
        wanted = self._checked(samples)
        out = np.empty_like(wanted)
        self.spec.inverse(epoch, wanted, out)
        return out

    def _checked(self, values: npt.ArrayLike) -> Words:
        array = np.ascontiguousarray(values)
        if array.size == 0:
            return np.empty(0, np.uint64)
        if array.ndim != 1 or array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= self.samples:
            raise OrderError(
                f"positions and samples are integers from 0 to {self.samples - 1}, in one dimension",
                hint="give a range or a flat array of integers, and an epoch for what comes after the last one",
            )
        return array.astype(np.uint64, copy=False)


def local_blocks(row_length: int) -> int:
    """Say how many rows of this length stay together in a local shuffle.

    >>> local_blocks(2048)
    1024
    """
    return max(1, LOCAL_BLOCK_TOKENS // row_length)


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
