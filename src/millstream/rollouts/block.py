"""RolloutBlock: rollouts in columns, and what each column is.

One value per rollout, or one per token, the tokens of all rollouts end to end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from millstream.errors import RecordError

Id: TypeAlias = str | int
Finish = Literal["stop", "length", "abort", "error"]
"""Why a rollout ended. "length": it was cut off, and did not end by itself."""
FINISHES: tuple[Finish, ...] = get_args(Finish)
Kind = Literal["sample", "baseline"]
"""A baseline is the greedy rollout of a prompt: other rollouts are compared with it, and it is not trained on."""
KINDS: tuple[Kind, ...] = get_args(Kind)
LogprobKind = Literal["processed", "raw"]
"""Log-probabilities after temperature, top-p and top-k, or before."""
LOGPROB_KINDS: tuple[LogprobKind, ...] = get_args(LogprobKind)
NAMED_REWARD = "rewards."
"""What the columns of rewards with a name begin with."""
EQUAL_WITHIN = 1e-6
"""Rewards that differ by no more than this are equal: more than adding up float32 leaves, less than any meaning."""
Array = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]
NO_IDS = np.empty(0, np.uint32)


@dataclass(frozen=True)
class RolloutColumn:
    """A column: its type, and the value of rollouts that do not have it; None: all or none have it."""

    dtype: Any
    absent: Any = None
    required: bool = False
    choices: tuple[str, ...] = ()
    """Words that are kept as their number."""


ROW_COLUMNS = {
    "rollout_id": RolloutColumn(np.object_, required=True),
    "group_id": RolloutColumn(np.object_, required=True),
    "prompt_id": RolloutColumn(np.object_),
    "sample_idx": RolloutColumn(np.int64, -1),
    "prompt_len": RolloutColumn(np.int64, -1),
    "reward": RolloutColumn(np.float64, required=True),
    "finish": RolloutColumn(np.uint8, required=True, choices=FINISHES),
    "kind": RolloutColumn(np.uint8, 0, choices=KINDS),
    "weight": RolloutColumn(np.float64, 1.0),
    "bootstrap_value": RolloutColumn(np.float64, np.nan),
    "logprob_kind": RolloutColumn(np.uint8, 0, choices=LOGPROB_KINDS),
    "temperature": RolloutColumn(np.float32, np.nan),
    "top_p": RolloutColumn(np.float32, np.nan),
    "top_k": RolloutColumn(np.int64, -1),
    "generation_seconds": RolloutColumn(np.float64, np.nan),
    "extra": RolloutColumn(np.object_),
}
"""One value per rollout. `rewards.NAME` are further ones, float64 with NaN where there is none. `extra` holds what
Millstream only carries along, as JSON: environment, references to media, spans of turns."""

TOKEN_COLUMNS = {
    "token_ids": RolloutColumn(np.uint32, required=True),
    "loss_mask": RolloutColumn(np.bool_, required=True),
    "sampling_logprobs": RolloutColumn(np.float32),
    "policy_version": RolloutColumn(np.uint32),
    "token_rewards": RolloutColumn(np.float32),
    "values": RolloutColumn(np.float32),
    "ref_logprobs": RolloutColumn(np.float32),
    "done": RolloutColumn(np.bool_),
    "routed_experts": RolloutColumn(None),  # uint8 or uint16, of shape (tokens, layers, experts)
    "kept_count": RolloutColumn(np.uint32),  # how many of `kept_ids` top-p kept for each token
}
"""One value per token, the tokens of all rollouts end to end."""


@dataclass(frozen=True, eq=False)
class RolloutBlock:
    """Some rollouts. Arrays are not changed: they may be views of a file.

    >>> block = RolloutBlock(
    ...     np.array([2, 3]),
    ...     {"rollout_id": np.array(["a", "b"], object), "reward": np.array([1.0, 0.0])},
    ...     {"token_ids": np.array([5, 6, 7], np.uint32)},
    ... )
    >>> len(block), block.lengths.tolist(), block.of(1, "token_ids").tolist()
    (2, [2, 1], [7])
    >>> block.select([1, 0]).tokens["token_ids"].tolist()
    [7, 5, 6]
    """

    ends: Numbers
    """Where the tokens of each rollout end."""
    rows: Mapping[str, Array]
    """Columns with one value per rollout, by the names of `ROW_COLUMNS`, as far as they are known."""
    tokens: Mapping[str, Array]
    """Columns with one value per token, by the names of `TOKEN_COLUMNS`, as far as they are known."""
    kept_ids: npt.NDArray[np.uint32] = field(default_factory=lambda: NO_IDS)
    """Ids that top-p kept, `kept_count` of them for each token."""

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, name: str) -> Array:
        """A column by its name."""
        return self.rows[name] if name in self.rows else self.tokens[name]

    def __contains__(self, name: object) -> bool:
        return name in self.rows or name in self.tokens

    @cached_property
    def starts(self) -> Numbers:
        """Where the tokens of each rollout begin."""
        return np.concatenate([np.zeros(1, np.int64), self.ends[:-1]])[: len(self)]

    @cached_property
    def lengths(self) -> Numbers:
        """Tokens of each rollout."""
        return self.ends - self.starts

    @property
    def arrays(self) -> list[Array]:
        """All that it consists of."""
        return [self.ends, self.kept_ids, *self.rows.values(), *self.tokens.values()]

    @property
    def nbytes(self) -> int:
        """Bytes of all columns; what objects point at is not counted."""
        return sum(column.nbytes for column in self.arrays)

    def of(self, row: int, column: str) -> Array:
        """The values of one rollout in a column of tokens."""
        return self.tokens[column][self.starts[row] : self.ends[row]]

    def kept_ids_of(self, row: int) -> npt.NDArray[np.uint32]:
        """The ids that top-p kept for the tokens of one rollout."""
        start, end = (int(self.kept_ends[place]) for place in (self.starts[row], self.ends[row]))
        return self.kept_ids[start:end]

    @cached_property
    def kept_ends(self) -> Numbers:
        """Where the kept ids of each token begin, and where those of the last end."""
        ends: Numbers = np.zeros(len(self.tokens["kept_count"]) + 1, np.int64)
        np.cumsum(self.tokens["kept_count"], out=ends[1:])
        return ends

    def finish(self, row: int) -> Finish:
        """Why a rollout ended."""
        return FINISHES[int(self.rows["finish"][row])]

    def select(self, rows: Sequence[int] | Array) -> RolloutBlock:
        """Some rollouts in another order, copied."""
        chosen = np.asarray(rows, np.int64)
        places = spread(self.starts[chosen], self.lengths[chosen])
        return RolloutBlock(
            np.cumsum(self.lengths[chosen]),
            {name: column[chosen] for name, column in self.rows.items()},
            {name: column[places] for name, column in self.tokens.items()},
            self._kept_ids_at(places),
        )

    def _kept_ids_at(self, places: Numbers) -> npt.NDArray[np.uint32]:
        if "kept_count" not in self.tokens:
            return NO_IDS
        counts = self.tokens["kept_count"].astype(np.int64)
        return self.kept_ids[spread(self.kept_ends[places], counts[places])]

    def with_columns(self, **columns: Array) -> RolloutBlock:
        """The same rollouts with columns put in or replaced; a column as long as all tokens is one of tokens."""
        rows, tokens = dict(self.rows), dict(self.tokens)
        for name, column in columns.items():
            per_row = name in ROW_COLUMNS or (name not in (*TOKEN_COLUMNS, *tokens) and len(column) == len(self))
            (rows if per_row else tokens)[name] = column
        return RolloutBlock(self.ends, rows, tokens, self.kept_ids)

    @staticmethod
    def concat(blocks: Sequence[RolloutBlock]) -> RolloutBlock:
        """All rollouts of several blocks in one. Columns of tokens must be those of the first that has rollouts."""
        blocks = [block for block in blocks if len(block)] or blocks[:1]
        if len(blocks) == 1:
            return blocks[0]
        first, offset, ends = blocks[0], 0, []
        for block in blocks:
            if block.tokens.keys() != first.tokens.keys():
                odd = sorted(block.tokens.keys() ^ first.tokens.keys())
                raise RecordError(
                    "missing column",
                    f"rollout {block.rows['rollout_id'][0]!r} and {first.rows['rollout_id'][0]!r} do not both have "
                    f"{', '.join(odd)}",
                    hint="give it for all rollouts, or for none",
                )
            ends.append(block.ends + offset)
            offset += int(block.ends[-1]) if len(block) else 0
        names = dict.fromkeys(name for block in blocks for name in block.rows)
        return RolloutBlock(
            np.concatenate(ends),
            {name: np.concatenate([block.filled(name) for block in blocks]) for name in names},
            {name: np.concatenate([block.tokens[name] for block in blocks]) for name in first.tokens},
            np.concatenate([block.kept_ids for block in blocks]),
        )

    def filled(self, name: str) -> Array:
        """A column, or its default where no record gives it."""
        if name in self.rows:
            return self.rows[name]
        known = ROW_COLUMNS.get(name)
        dtype, absent = (np.float64, np.nan) if known is None else (known.dtype, known.absent)
        return np.full(len(self), absent, dtype)


def spread(starts: Numbers, lengths: Numbers) -> Numbers:
    """The places of several stretches, one after the other.

    >>> spread(np.array([7, 2]), np.array([2, 3])).tolist()
    [7, 8, 2, 3, 4]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    places: Numbers = np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - lengths), lengths)
    return places
