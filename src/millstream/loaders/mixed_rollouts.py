"""Rollouts in a mixture: their tokens are a store like any other, and what is said of them is put beside their rows."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.batches import Columns, RolloutFormat, RolloutRows, TrainingBatch
from millstream.errors import BusyError, LoaderError, StoreError
from millstream.rollouts import RolloutBlock
from millstream.stages import close_on_exit, poll
from millstream.storage import staged
from millstream.store import WEIGHTED, WEIGHTS, TokenStore, TokenStoreWriter, codes_of
from millstream.tensors import backend


def stored(block: RolloutBlock, fingerprint: str, folder: Path | None) -> TokenStore:
    """The tokens of rollouts with their weights in the loss, as a store: in the cache, or for as long as it is open."""
    path = Path(folder or tempfile.mkdtemp(prefix="millstream-rollouts-"), f"rollouts-{fingerprint}")
    poll(lambda: _is_written(block, path) or None)
    store = TokenStore(path)
    if folder is None:
        close_on_exit(store, partial(shutil.rmtree, path.parent, ignore_errors=True))
    return store


def _is_written(block: RolloutBlock, path: Path) -> bool:
    """Make the store whole or not at all; another rank may do so at the same time: whether it is there now."""
    if path.exists():
        return True
    with suppress(BusyError):
        _write(block, path)
    return path.exists()


def _write(block: RolloutBlock, path: Path) -> None:
    try:
        with staged(path) as building, TokenStoreWriter(building, dtype=WEIGHTED) as writer:
            writer.extend(block["token_ids"], block.ends, weights=_codes(block))
    except StoreError:
        if not path.exists():
            raise


def _codes(block: RolloutBlock) -> npt.NDArray[np.uint8]:
    """What each token weighs: nothing, or what its rollout does."""
    weights = np.repeat(block.filled("weight"), block.lengths) * block["loss_mask"]
    codes = codes_of(weights)
    if not np.array_equal(WEIGHTS[codes], weights):
        raise LoaderError(
            "some rollouts have a weight that a mixture cannot keep exactly",
            hint="weights are hundredths up to 1, tenths up to 10; or leave them out, and train by themselves",
        )
    return codes


class MixedRollouts:
    """Puts what is said of rollouts beside their rows; rows of other sources have 0 and None there."""

    def __init__(self, blocks: Mapping[str, RolloutBlock], labels: Any, framework: str) -> None:
        self._rows = {name: RolloutRows([block], RolloutFormat(labels=labels)) for name, block in blocks.items()}
        self._make = backend(framework).from_numpy

    def add(self, batch: TrainingBatch, names: Sequence[str], samples: npt.NDArray[Any]) -> TrainingBatch:
        """Add columns to a batch whose first rows are these samples of these sources."""
        rows, length = (int(size) for size in batch.input_ids.shape)
        tokens: dict[str, npt.NDArray[Any]] = {}
        facts: dict[str, list[Any]] = {}
        for name, source in self._rows.items():
            here = np.array([row for row, each in enumerate(names) if each == name], np.int64)
            numbers = samples[here].astype(np.int64)
            step = source.step(np.stack([np.zeros_like(numbers), numbers], axis=1))
            part = step.batch(np.arange(len(here)), length=length)
            for column in source.columns.tokens:
                given = part.metadata[column]
                all_rows = tokens.setdefault(column, np.zeros((rows, *given.shape[1:]), given.dtype))
                all_rows[here] = given[: len(here)]
            for fact in source.columns.samples:
                values = facts.setdefault(fact, [None] * rows)
                for row, value in zip(here.tolist(), part.metadata[fact], strict=False):
                    values[row] = value
        batch.metadata |= facts | {name: self._make(column) for name, column in tokens.items()}
        batch.columns = Columns(tuple(tokens), tuple(facts))
        return batch
