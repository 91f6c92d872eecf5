"""Length grouping of transformers: ours wastes no more padding, and keeps the laws that theirs does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream import ConversationDataLoader, TokenStoreWriter
from oracles.asked import asked

pytestmark = pytest.mark.oracle
trainer = asked("transformers.trainer_pt_utils")
BATCH, LENGTH = 8, 512


def test_grouped_rows_waste_no_more_than_those_of_transformers(tmp_path: Path) -> None:
    lengths = np.clip(np.random.default_rng(1).lognormal(4, 1, 10_000).astype(int), 2, LENGTH)
    with TokenStoreWriter(tmp_path / "store", dtype="weighted") as writer:
        for length in lengths:
            writer.append(np.ones(length, int), weights=np.ones(length))
    how: dict[str, Any] = {"max_length": LENGTH, "batch_size": BATCH, "framework": "numpy"}
    with ConversationDataLoader(tmp_path / "store", group_by_length=True, **how) as loader:
        ours = sum(batch.input_ids.size for batch in loader)
    indices = trainer.get_length_grouped_indices(lengths.tolist(), BATCH)
    rows = [lengths[indices[start : start + BATCH]] for start in range(0, len(indices), BATCH)]
    theirs = sum(int(row.max()) * len(row) for row in rows)

    assert ours < theirs
    assert ours < 1.05 * lengths.sum()
