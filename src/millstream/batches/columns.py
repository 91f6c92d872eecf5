"""What batches say besides tokens and labels: entries of their metadata, and the columns of rollouts they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from millstream.errors import BatchError
from millstream.rollouts import ROW_COLUMNS, RolloutBlock

SUMS = ("rows", "tokens", "pairs", "loss_tokens")
"""Entries that add up when batches are joined."""
ROW_FACTS = ("source", "filler", "cut_tokens", "label", "kl_document", "media", "segments")
"""Entries that hold one value per row."""
Kind = Literal["copied", "masked", "widened", "spread", "last"]
"""How values get into a batch: as they are, with 0 where nothing is learned, as wide as ids, or one per rollout, for
all its learned tokens or for the last of them."""
_NOT_DELIVERED = ("token_ids", "loss_mask", "kept_count")
"""Those that are ids and labels, and those that say how many of something else there are."""
_OF_LEARNED_TOKENS = ("sampling_logprobs", "ref_logprobs", "advantages", "returns")
"""Those that mean nothing where nothing is learned."""
_OF_INPUTS = ("routed_experts",)
"""Those that are about a token as an input, not as a target: which experts it goes through."""
_PER_ROLLOUT: dict[str, Kind] = {"advantages": "spread", "rewards": "last"}
"""Those that may be said once per rollout."""


@dataclass(frozen=True)
class Columns:
    """Which entries those are, besides those that hold one value per row.

    >>> Columns(samples=("name",)).cut({"segments": [2, 0, 1], "name": ["a", "b", "c"]}, 1, 3)
    {'segments': [0, 1], 'name': ['c']}
    """

    tokens: tuple[str, ...] = ()
    """Tensors of shape (rows, length, ...), aligned with the labels."""
    samples: tuple[str, ...] = ()
    """Lists with one value per sample: of packed rows, of which `segments` counts the samples, else of rows."""

    def cut(self, metadata: Mapping[str, Any], start: int, stop: int) -> dict[str, Any]:
        """The entries of some neighbouring rows; tensors are views."""
        cut = {name: metadata[name][start:stop] for name in (*ROW_FACTS, *self.tokens) if name in metadata}
        if (segments := metadata.get("segments")) is not None:
            start, stop = sum(segments[:start]), sum(segments[:stop])
        return {**cut, **{name: metadata[name][start:stop] for name in self.samples}}

    def joined(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
        """The lists of several batches, one after the other."""
        names = (*ROW_FACTS, *self.samples)
        return {name: [value for part in parts for value in part[name]] for name in names if name in parts[0]}


NO_COLUMNS = Columns()


@dataclass(frozen=True)
class TokenColumn:
    """A column with one value per token of a batch."""

    name: str
    kind: Kind
    dtype: npt.DTypeLike
    """Of the block's values, as the core takes them."""

    @property
    def of_inputs(self) -> bool:
        """Whether it lies beside the inputs, whatever the labels are."""
        return self.name in _OF_INPUTS

    def of(self, block: RolloutBlock, id_bytes: int) -> npt.NDArray[Any]:
        """The values of a block."""
        values = np.ascontiguousarray(block[self.name], self.dtype)
        return fitting(values, self.name, id_bytes) if self.kind == "widened" else values


def fitting(values: npt.NDArray[Any], name: str, id_bytes: int) -> npt.NDArray[Any]:
    """Numbers that fit into ids of so many bytes; else an error."""
    if id_bytes == 4 and values.max(initial=0) > np.iinfo(np.int32).max:
        raise BatchError(
            f"{name} has a value of {values.max()}, and integers of this framework have 32 bits",
            hint="use framework='torch' or 'numpy'",
        )
    return values


def token_columns(blocks: Sequence[RolloutBlock]) -> list[TokenColumn]:
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
    return [_column(name, per_rollout, blocks[0][name]) for name, per_rollout in names]


def _names_of_tokens(block: RolloutBlock) -> dict[tuple[str, bool], None]:
    """Names of what is said of tokens, and whether it is said once per rollout."""
    tokens = [(name, False) for name in block.tokens if name not in _NOT_DELIVERED]
    return dict.fromkeys([*tokens, *((name, True) for name in block.rows if name in _PER_ROLLOUT)])


def _column(name: str, per_rollout: bool, values: npt.NDArray[Any]) -> TokenColumn:  # noqa: FBT001
    if per_rollout:
        return TokenColumn(name, _PER_ROLLOUT[name], np.float64)
    if name in _OF_LEARNED_TOKENS:
        return TokenColumn(name, "masked", np.float32)
    if values.dtype == np.uint32 and values.ndim == 1:
        return TokenColumn(name, "widened", np.uint32)
    return TokenColumn(name, "copied", np.float32 if values.dtype.kind == "f" else values.dtype)


def sample_columns(blocks: Sequence[RolloutBlock]) -> dict[str, npt.NDArray[Any]]:
    """What batches say of each rollout, by name, the rollouts of all blocks end to end; words, not their numbers."""
    columns = {}
    for name in dict.fromkeys(name for block in blocks for name in block.rows):
        if name not in _PER_ROLLOUT:
            values = np.concatenate([block.filled(name) for block in blocks])
            choices = ROW_COLUMNS[name].choices if name in ROW_COLUMNS else ()
            columns[name] = np.array(choices, object)[values] if choices else values
    return columns
