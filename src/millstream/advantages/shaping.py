"""What to do with rollouts that got long: take a little off their reward, or train nothing on those that were cut."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np

from millstream.advantages.ragged import Array, Doubles, Mask, only_rows
from millstream.errors import LoaderError
from millstream.rollouts import FINISHES


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


def without_truncated(mask: Array, ends: Array, finish: Array) -> Mask:
    """The mask without rollouts that were cut off by their length (`finish` holds numbers of `FINISHES`).

    >>> without_truncated(np.ones(3), np.array([2, 3]), np.array([1, 0])).tolist()
    [False, False, True]
    """
    return only_rows(mask, ends, np.asarray(finish) != FINISHES.index("length"))
