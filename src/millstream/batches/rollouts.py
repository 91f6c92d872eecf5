"""Blocks of rollouts -> batches of a step: padded or packed rows, and all that is said of tokens and rollouts.

What is said of a token lies where its label is: with labels="next" one place before the token itself. Every batch says
what the whole step weighs, on all ranks: divide the sum of losses, each times its loss weight (or mask), by
`loss_denominator`, and add up, whatever the batches are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from millstream import _core
from millstream.advantages import masked_counts
from millstream.batches.batch import TrainingBatch
from millstream.batches.columns import Columns, fitting, sample_columns, token_columns
from millstream.batches.denominators import MeanOf, Numbers, StepLoss
from millstream.errors import BatchError, BudgetError, StoreError
from millstream.order import Integers
from millstream.rollouts import RolloutBlock
from millstream.stages import Budget, after_fork
from millstream.tensors import backend

NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True)
class RolloutFormat:
    """What rows look like."""

    labels: Literal["next", "same"] = "next"
    pad_id: int = 0
    framework: str = "numpy"
    packed: bool = False
    """Whether a row holds several rollouts, isolated from each other."""
    pad_to_multiple_of: int = 1

    def __post_init__(self) -> None:
        if self.pad_to_multiple_of < 1:
            raise BatchError(f"rows cannot be padded to a multiple of {self.pad_to_multiple_of}", hint="pass 1 or more")


class RowBuffers:
    """Memory for batches, used again when the last tensor that looks at it is gone."""

    def __init__(self, memory_budget: int | None = None) -> None:
        self._memory_budget = memory_budget
        self._begin()
        after_fork(self._begin)

    def _begin(self) -> None:
        """Also in a forked child: a thread that is not there may hold the lock."""
        self._budget = Budget() if self._memory_budget is None else Budget(self._memory_budget)
        self.native = _core.Buffers(self._budget)

    @property
    def used_bytes(self) -> int:
        """Bytes of all buffers, also of those in the user's hands."""
        return self._budget.used_bytes


class RolloutRows:
    """Makes batches of rollouts; a rollout is named by its block and its row in there. Any thread may ask.

    >>> block = RolloutBlock(
    ...     np.array([2, 5]),
    ...     {
    ...         "rollout_id": np.array(["a", "b"], object),
    ...         "reward": np.array([1.0, 0.0]),
    ...         "advantages": np.array([0.5, -0.5]),
    ...     },
    ...     {"token_ids": np.array([5, 6, 7, 8, 9], np.uint32), "loss_mask": np.array([0, 1, 0, 1, 1], bool)},
    ... )
    >>> batch = RolloutRows([block]).step([(0, 0), (0, 1)]).batch([0, 1])
    >>> batch.labels.tolist()
    [[6, -100, -100], [8, 9, -100]]
    >>> batch.metadata["advantages"].tolist(), batch.metadata["reward"], batch.metadata["num_loss_tokens"]
    ([[0.5, 0.0, 0.0], [-0.5, -0.5, 0.0]], [1.0, 0.0], 3)

    Args:
        blocks: Rollouts in columns. What is derived from them (advantages, returns) is a column too, one value per
            token or, where all learned tokens of a rollout have the same, one per rollout.
        format: What rows look like.
        buffers: Memory that several of these share.
    """

    def __init__(
        self, blocks: Sequence[RolloutBlock], format: RolloutFormat | None = None, buffers: RowBuffers | None = None
    ) -> None:
        self.blocks = list(blocks)
        self.format = format or RolloutFormat()
        self.backend = backend(self.format.framework)
        self.buffers = buffers or RowBuffers()
        self.tokens = token_columns(self.blocks)
        self.samples = sample_columns(self.blocks)
        self.keeps_ids = any("kept_count" in block for block in self.blocks)
        """Whether rollouts say which ids top-p kept for each token."""
        kept = ("kept_ids", "kept_offsets") if self.keeps_ids else ()
        facts = (*self.samples, *kept, "rollout_loss_tokens")
        self.columns = Columns(tuple(each.name for each in self.tokens), facts)
        self.native = self._native()

    def _native(self) -> _core.RolloutRows:
        id_bytes = self.backend.ID_BYTES
        blocks = [
            (
                np.ascontiguousarray(block.ends, np.int64),
                fitting(np.ascontiguousarray(block["token_ids"], np.uint32), "token_ids", id_bytes),
                np.ascontiguousarray(block["loss_mask"], np.bool_).view(np.uint8),
                [column.of(block, id_bytes) for column in self.tokens],
            )
            for block in self.blocks
        ]
        kinds = [(column.kind, column.of_inputs) for column in self.tokens]
        shape = (self.format.labels, self.format.pad_id, id_bytes, self.format.packed)
        try:
            return _core.RolloutRows(blocks, kinds, *shape)
        except ValueError as error:
            raise BatchError(
                f"these rollouts cannot be put into rows: {error}", hint="make blocks with millstream.rollouts.block_of"
            ) from None

    @cached_property
    def starts(self) -> Numbers:
        """Where the rollouts of each block begin among those of all blocks; and how many there are."""
        return np.cumsum([0, *(len(block) for block in self.blocks)])

    @cached_property
    def lengths(self) -> Numbers:
        """Tokens of all rollouts, those of all blocks end to end."""
        return np.concatenate([NOTHING, *(block.lengths for block in self.blocks)])

    @cached_property
    def targets(self) -> Numbers:
        """Tokens of all rollouts that are learned; the first is not: nothing predicts it."""
        found = [NOTHING]
        for block in self.blocks:
            if len(block):
                mask = np.asarray(block["loss_mask"], np.bool_)
                found.append(masked_counts(mask, block.ends) - mask[block.starts])
        return np.concatenate(found)

    def step(
        self,
        places: Sequence[tuple[int, int]] | Numbers,
        *,
        mean_of: MeanOf = "token",
        constant: float = 1.0,
        facts: Mapping[str, Any] | None = None,
    ) -> RolloutStep:
        """Name the rollouts of a step, on all ranks.

        Args:
            places: Block and row of each.
            mean_of: What the loss is a mean of.
            constant: What sums of tokens are divided by besides, where it is a mean of sums or of nothing.
            facts: What the metadata of its batches says besides, as the number of the step.
        """
        each = np.asarray(places, np.int64).reshape(-1, 2)
        known = (each[:, 0] >= 0) & (each[:, 0] < len(self.blocks)) & (each[:, 1] >= 0)
        known[known] = each[known, 1] < np.diff(self.starts)[each[known, 0]]
        if not known.all():
            block, row = each[int(known.argmin())]
            raise BatchError(f"there is no rollout {row} in block {block}", hint=f"there are {len(self.blocks)} blocks")
        return RolloutStep(self, each, mean_of, constant, dict(facts or {}))


@dataclass(frozen=True, eq=False)
class RolloutStep:
    """The rollouts that one update of the model sees, on all ranks."""

    rows: RolloutRows
    places: Numbers
    mean_of: MeanOf = "token"
    constant: float = 1.0
    facts: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def _numbers(self) -> Numbers:
        """Where each rollout is among those of all blocks."""
        return self.rows.starts[self.places[:, 0]] + self.places[:, 1]

    @cached_property
    def _blocks_and_rows(self) -> npt.NDArray[np.uint64]:
        return np.ascontiguousarray(self.places.T, np.uint64)

    @cached_property
    def lengths(self) -> Numbers:
        """Tokens of each rollout: what a `StepPlan` is made of."""
        return self.rows.lengths[self._numbers]

    @cached_property
    def _samples(self) -> dict[str, npt.NDArray[Any]]:
        return {name: column[self._numbers] for name, column in self.rows.samples.items()}

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column with one value per rollout, as the metadata of batches has it."""
        return self._samples[name]

    @cached_property
    def loss(self) -> StepLoss:
        """What its rollouts weigh in the loss."""
        given = self.column("weight") if "weight" in self.rows.samples else np.ones(len(self.places))
        ids, targets = self.column("rollout_id").tolist(), self.rows.targets[self._numbers]
        return StepLoss(ids, targets, given, self.mean_of, self.constant)

    def batch(self, rows: Integers, *, row_ends: Integers | None = None, length: int | None = None) -> TrainingBatch:
        """Make a batch of some rollouts of the step. Of none, it is a row of padding without loss, marked as filler.

        Args:
            rows: Their numbers among the places of the step.
            row_ends: Of packed rows: where each ends among these numbers; by default all lie in one row.
            length: Tokens of a row; by default as many as the longest needs, padded to a multiple.
        """
        chosen = np.ascontiguousarray(rows, np.int64)
        ends = self._row_ends(len(chosen), row_ends)
        native, columns = self._made(chosen, ends, length)
        return self._delivered(native, columns, chosen, ends)

    def _kept(self, chosen: Numbers) -> dict[str, list[npt.NDArray[Any]]]:
        """The ids that top-p kept for each rollout: those of its token t are ids[offsets[t] : offsets[t + 1]]."""
        ids, offsets = [], []
        for number, row in self.places[chosen].tolist():
            block = self.rows.blocks[number]
            ids.append(block.kept_ids_of(row))
            ends = block.kept_ends[block.starts[row] : block.ends[row] + 1]
            offsets.append(ends - ends[0])
        return {"kept_ids": ids, "kept_offsets": offsets}

    def _row_ends(self, rollouts: int, row_ends: Integers | None) -> Numbers:
        if row_ends is None:
            one_row = self.rows.format.packed or rollouts == 0
            return np.array([rollouts], np.int64) if one_row else np.arange(1, rollouts + 1)
        if not self.rows.format.packed:
            raise BatchError("rows of one rollout each have no ends to choose", hint="pass packed=True")
        ends = np.asarray(row_ends, np.int64)
        if len(ends) == 0 or ends[-1] != rollouts or np.diff(ends, prepend=0).min() < 0:
            raise BatchError(
                f"rows that end at {ends.tolist()} do not hold {rollouts} rollouts, each once",
                hint="row_ends rise, and the last one is the number of rollouts",
            )
        return ends

    def _made(self, chosen: Numbers, ends: Numbers, length: int | None) -> tuple[_core.Batch, list[npt.NDArray[Any]]]:
        blocks, rows = self._blocks_and_rows
        weights = None if self.loss.all_weigh_1 else self.loss.weights
        own, unit = (chosen.view(np.uint64), ends.view(np.uint64)), self.rows.format.pad_to_multiple_of
        try:
            made = self.rows.native.batch(self.rows.buffers.native, blocks, rows, weights, *own, length, unit)
        except IndexError:
            raise BatchError(
                f"the step has rollouts 0 to {len(self.places) - 1}, not {chosen.min()} or {chosen.max()}",
                hint="rows are numbers among the places of the step",
            ) from None
        except ValueError as error:
            rows_of = "rows" if length is None else f"rows of {length} tokens"
            raise BatchError(
                f"these rollouts do not fit into {rows_of}: {error}", hint="leave length= out, or raise it"
            ) from None
        except RuntimeError as error:
            raise StoreError(str(error), hint="restore the file, or leave it alone while rollouts are read") from None
        if made is None:
            raise BudgetError(
                f"{self.rows.buffers.used_bytes} bytes of batches are in use, and another does not fit",
                hint="let go of old batches (batch.release()), or pass a larger memory_budget",
            )
        return made

    def _delivered(
        self, native: _core.Batch, columns: list[npt.NDArray[Any]], chosen: Numbers, ends: Numbers
    ) -> TrainingBatch:
        share, maker = self.rows.backend.share, self.rows
        inputs, labels = native.inputs_and_labels
        filler = len(chosen) == 0
        metadata: dict[str, Any] = {
            "epoch": 0,
            "step": 0,
            "rows": 0 if filler else len(ends),
            "sequence_length": native.length,
            "tokens": native.facts[4],
            **self.facts,
            **self.loss.totals,
            "filler": [filler] * len(ends),
            **{name: column[chosen].tolist() for name, column in self._samples.items()},
            "rollout_loss_tokens": self.loss.rollout_targets[chosen].tolist(),
            **(self._kept(chosen) if maker.keeps_ids else {}),
        }
        for column, data in zip(maker.tokens, columns, strict=True):
            metadata[column.name] = share(data)
        batch = TrainingBatch(
            share(inputs),
            share(labels),
            framework=maker.backend.NAME,
            loss_weights=None if native.weights is None else share(native.weights),
            metadata=metadata,
            columns=maker.columns,
            native=native,
        )
        if filler:  # a model that sees none of a row's tokens may say NaN
            batch._lengths = np.full(len(ends), native.length, np.int32)
        if maker.format.packed:
            batch.position_ids, batch.cu_seqlens = share(native.column(2)), share(native.segment_starts)
            batch.max_seqlen = native.facts[6]
            batch.metadata["segments"] = [len(chosen)] if len(ends) == 1 else np.diff(ends, prepend=0).tolist()
        return batch
