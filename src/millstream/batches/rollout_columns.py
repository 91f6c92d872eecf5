"""Columns of blocks of rollouts -> what a batch says of each token, and of each rollout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from millstream.errors import BatchError
from millstream.rollouts import RolloutBlock
from millstream.rollouts.columns import NAMED_REWARD, ROW_COLUMNS

Kind = Literal["copied", "masked", "widened", "spread"]
"""How values get into a batch: as they are, with 0 where nothing is learned, as wide as ids, or one per rollout for all
its learned tokens."""
_NOT_DELIVERED = ("token_ids", "loss_mask", "kept_count")
"""Those that are ids and labels, and those that say how many of something else there are."""
_OF_LEARNED_TOKENS = ("sampling_logprobs", "ref_logprobs", "advantages", "returns")
"""Those that mean nothing where nothing is learned."""
_OF_INPUTS = ("routed_experts",)
"""Those that are about a token as an input, not as a target: which experts it goes through."""
_RENAMED = {"reward": "rewards"}


@dataclass(frozen=True)
class TokenColumn:
    """A column with one value per token of a batch."""

    name: str
    kind: Kind
    given: npt.DTypeLike
    """Type of the block's values, as the core takes them."""
    made: npt.DTypeLike
    """Type of the batch's values."""
    shape: tuple[int, ...] = ()
    """Of the value of a token."""

    @property
    def width(self) -> int:
        """Bytes of a token in the batch."""
        return int(np.dtype(self.made).itemsize * np.prod(self.shape, dtype=np.int64))

    @property
    def of_inputs(self) -> bool:
        """Whether it lies beside the inputs, whatever the labels are."""
        return self.name in _OF_INPUTS

    def of(self, block: RolloutBlock) -> npt.NDArray[Any]:
        """The values of a block."""
        values = np.ascontiguousarray(block[self.name], self.given)
        if values.shape[1:] != self.shape:
            raise BatchError(f"{self.name} has values of shape {values.shape[1:]}, and elsewhere {self.shape}")
        return values

    def shaped(self, data: npt.NDArray[np.uint8], rows: tuple[int, ...]) -> npt.NDArray[Any]:
        """The bytes of a batch as values."""
        return data.view(self.made).reshape(*rows[:2], *self.shape)


def token_columns(blocks: Sequence[RolloutBlock], id_bytes: int) -> list[TokenColumn]:
    """What batches of these blocks say of each token; every block must say it."""
    if not blocks:
        return []
    names = [*_names_of_tokens(blocks[0])]
    for number, block in enumerate(blocks):
        if odd := sorted({name for name, _ in set(_names_of_tokens(block)) ^ set(names)}):
            raise BatchError(
                f"blocks 0 and {number} do not both have {', '.join(odd)}, one value per token or one per rollout",
                hint="give it for all rollouts in one way, or for none",
            )
    return [_column(name, per_rollout, blocks[0][name], id_bytes) for name, per_rollout in names]


def _names_of_tokens(block: RolloutBlock) -> dict[tuple[str, bool], None]:
    """Names of what is said of tokens, and whether it is said once per rollout."""
    tokens = [(name, False) for name in block.tokens if name not in _NOT_DELIVERED]
    derived = [name for name in block.rows if name not in ROW_COLUMNS and not name.startswith(NAMED_REWARD)]
    return dict.fromkeys([*tokens, *((name, True) for name in derived)])


def _column(name: str, per_rollout: bool, values: npt.NDArray[Any], id_bytes: int) -> TokenColumn:  # noqa: FBT001
    if per_rollout:
        return TokenColumn(name, "spread", np.float64, np.float32)
    if name in _OF_LEARNED_TOKENS:
        return TokenColumn(name, "masked", np.float32, np.float32)
    if values.dtype == np.uint32 and values.ndim == 1:
        return TokenColumn(name, "widened", np.uint32, f"i{id_bytes}")
    made = np.float32 if values.dtype.kind == "f" else values.dtype
    return TokenColumn(name, "copied", made, made, values.shape[1:])


@dataclass(frozen=True)
class SampleColumn:
    """A column with one value per rollout."""

    blocks: list[npt.NDArray[Any]]
    choices: tuple[str, ...] = ()

    def values(self, places: list[list[int]]) -> list[Any]:
        """The values of rollouts, each named by its block and row; words instead of their numbers."""
        values = [self.blocks[block].item(row) for block, row in places]
        return [self.choices[value] for value in values] if self.choices else values


def sample_columns(blocks: Sequence[RolloutBlock]) -> dict[str, SampleColumn]:
    """What batches say of each rollout, by name."""
    names = dict.fromkeys(name for block in blocks for name in block.rows)
    columns = {}
    for name in names:
        if name in ROW_COLUMNS or name.startswith(NAMED_REWARD):
            choices = ROW_COLUMNS[name].choices if name in ROW_COLUMNS else ()
            arrays = [block.filled(name) for block in blocks]
            columns[_RENAMED.get(name, name)] = SampleColumn(arrays, choices)
    return columns
