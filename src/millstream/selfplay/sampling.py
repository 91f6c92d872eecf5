"""Which positions of a game its n-th use gives: others than the uses before, until all were used.

Pure functions of (key of the game, number of the use, number of frames). A position that is prepared ahead of its use
is therefore the one that the use asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from millstream import _core
from millstream.errors import LoaderError
from millstream.games import MOST_FRAMES, FrameBlock
from millstream.order import derive_key, draw_uniform

Plies = npt.NDArray[np.intp] | npt.NDArray[np.uint32]
Weights = npt.NDArray[np.float64]
ROUND, KEEP, ROWS = 1, 2, 3
"""Names of the random numbers of a game: its shuffled rounds, what is kept of them, and rows of rounds."""
ROW = 1024
"""About how many positions a row of weighted rounds gives."""


@dataclass(frozen=True)
class PositionWeights:
    """How much a position counts: by how wrong the network was about it before the search (diff focus).

    With both `q_weight` and `policy_scale` unset every position has the `default` weight.

    Args:
        q_weight: How much the difference of the values before and after the search counts.
        policy_scale: How much the difference of the policies counts.
        alpha: Steepness.
        beta: What a position has at least.
        gamma: Exponent.
        most: No weight is larger.
        default: Weight of a position about which nothing is known.
    """

    q_weight: float | None = None
    policy_scale: float | None = None
    alpha: float = 1.0
    beta: float = 0.0
    gamma: float = 1.0
    most: float = 1.0
    default: float = 1.0

    def __post_init__(self) -> None:
        settings = {name: value for name, value in vars(self).items() if value is not None}
        for name, value in settings.items():
            if not isinstance(value, int | float) or not np.isfinite(value) or value < 0:
                raise LoaderError(f"{name}={value!r}: weights are numbers from 0", hint="leave it out for the default")
        if self.is_used and not (self.q_weight or 0) + self._scale:
            raise LoaderError("q_weight and policy_scale are both 0", hint="give one of them, or leave both out")

    @property
    def is_used(self) -> bool:
        """Whether positions differ."""
        return self.q_weight is not None or self.policy_scale is not None

    @property
    def _scale(self) -> float:
        return 1.0 if self.policy_scale is None else self.policy_scale

    def of(self, frames: FrameBlock) -> Weights:
        """The weight of each position."""
        weights = np.full(len(frames), self.default, np.float64)
        if not self.is_used:
            return weights
        fields, q_weight = frames.fields, self.q_weight or 0.0
        before = fields["orig_q"].astype(np.float64)
        known = ~np.isnan(before)
        surprise = q_weight * np.abs(fields["best_q"][known] - before[known]) + fields["policy_kld"][known]
        scaled = surprise / (q_weight + self._scale)
        weights[known] = np.minimum((self.alpha * scaled + self.beta) ** self.gamma, self.most)
        return np.nan_to_num(weights, nan=self.default, posinf=self.most)


ALIKE = PositionWeights()


@dataclass(frozen=True)
class PositionSampling:
    """How many positions of a game each of its uses gives.

    Args:
        rate: Each position with this probability; within 1 / rate uses each position once.
        count: So many positions.
        weights: Positions that count more come more often; only with `count`.

    Without `rate` and `count` each use gives all positions, in order.
    """

    rate: float | None = None
    count: int | None = None
    weights: PositionWeights = ALIKE

    def __post_init__(self) -> None:
        if self.rate is not None and self.count is not None:
            raise LoaderError("positions are sampled by rate or by count", hint="leave one of them out")
        if self.rate is not None and not 0 < self.rate <= 1:
            raise LoaderError(f"rate={self.rate!r}: a rate lies above 0 and up to 1", hint="1/32 is a usual one")
        if self.count is not None and (type(self.count) is not int or not 1 <= self.count <= MOST_FRAMES):
            told = f"count={self.count!r}: a count is 1 or more, and no game has more than {MOST_FRAMES} positions"
            raise LoaderError(told, hint="leave it out for all positions")
        if self.weights.is_used and self.count is None:
            raise LoaderError("weights have no effect without a count", hint="pass a count such as 1, or no weights")

    @property
    def needs_frames(self) -> bool:
        """Whether the frames must be looked at before anything can be chosen."""
        return self.count is not None and self.weights.is_used

    def plies(self, key: int, use: int, length: int, frames: FrameBlock | None = None) -> Plies:
        """The positions of a use of a game with so many frames, in order, except those of a count."""
        if not length:
            return np.empty(0, np.intp)
        if self.rate is not None:
            return plies_at_rate(key, use, length, self.rate)
        if self.count is not None:
            weights = None if frames is None or not self.weights.is_used else self.weights.of(frames)
            return plies_by_count(key, use, length, self.count, weights)
        return np.arange(length)

    @classmethod
    def of(cls, positions: float | None, weights: PositionWeights = ALIKE) -> PositionSampling:
        """What a number means: a rate below 1, or a whole number, which is a count; None takes all positions.

        >>> PositionSampling.of(1 / 32).rate, PositionSampling.of(4).count
        (0.03125, 4)
        """
        if positions is None:
            return cls(weights=weights)
        is_rate = isinstance(positions, float) and 0 < positions < 1
        if not is_rate and (type(positions) is not int or positions < 1):
            raise LoaderError(
                f"positions={positions!r} is neither a rate nor a count",
                hint="pass a rate below 1 such as 1/32, a whole number such as 1, or nothing for all positions",
            )
        return cls(rate=positions, weights=weights) if is_rate else cls(count=int(positions), weights=weights)


ALL_POSITIONS: PositionSampling = PositionSampling()


def plies_at_rate(key: int, use: int, length: int, rate: float) -> npt.NDArray[np.uint32]:
    """The positions of a use at a rate.

    A round throws every position onto [0, 1), which is cut into intervals as long as the rate; each use takes the next
    one. The last interval of a round is shorter; the first of the next round is what it lacks, they belong to one use,
    and who was taken in the former sits out the latter's round.

    >>> used = [plies_at_rate(5, use, 9, 0.25).tolist() for use in range(4)]
    >>> sorted(sum(used, []))
    [0, 1, 2, 3, 4, 5, 6, 7, 8]
    """
    return _core.plies_at_rate(derive_key(key, ROUND), use, length, rate)


@lru_cache(maxsize=64)
def _shuffled_round(key: int, number: int, length: int) -> npt.NDArray[np.intp]:
    """The positions of a game in the order of a round; the next uses of the game are likely to ask for it again."""
    return np.argsort(draw_uniform(derive_key(key, ROUND, number), np.arange(length)), kind="stable")


def plies_by_count(key: int, use: int, length: int, count: int, weights: Weights | None = None) -> Plies:
    """So many positions of a use, from an endless row of shuffled rounds; weights say who is left out of rounds.

    With weights a round's beginning is known only after all uses before: every thousand positions or so a
    new row begins.

    >>> [plies_by_count(5, use, 6, 2).tolist() for use in range(3)]
    [[0, 5], [3, 1], [2, 4]]
    """
    found, number = np.empty(0, np.intp), 0
    if weights is None:
        number, skipped = divmod(count * use, length)
    else:
        row, place = divmod(use, max(1, ROW // count))
        key, skipped = derive_key(key, ROWS, row) if row else key, count * place
    chances = None if weights is None or not weights.max() > 0 else weights / weights.max()
    while len(found) < count:
        order = _shuffled_round(key, number, length)
        if chances is not None:
            order = order[draw_uniform(derive_key(key, KEEP, number), order) < chances[order]]
        found, skipped = np.concatenate([found, order[skipped:]]), max(0, skipped - len(order))
        number += 1
    return found[:count]
