"""Fixed sets that are larger than their budget lie on disk, and nobody sees a difference."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream import BudgetError, RolloutDataLoader
from rollouts.samples import random_rollouts

SCRIPT = """
import json, resource, sys
import numpy as np
from millstream import RolloutDataLoader
from millstream.rollouts import RolloutBlock, write_rollouts

path, budget = sys.argv[1:]


def blocks():
    for number in range(16):
        rng, tokens = np.random.default_rng(number), 250 * 1000
        rows = {
            "rollout_id": np.array([f"{number}-{row}" for row in range(250)], object),
            "group_id": np.array([f"{number}-{row // 5}" for row in range(250)], object),
            "reward": rng.random(250),
            "finish": np.zeros(250, np.uint8),
        }
        columns = {"token_ids": rng.integers(0, 9, tokens).astype(np.uint32), "loss_mask": np.ones(tokens, bool)}
        for name in ("values", "ref_logprobs", "sampling_logprobs"):
            columns[name] = -rng.random(tokens).astype(np.float32)
        yield RolloutBlock(np.arange(1, 251) * 1000, rows, columns)


def anonymous():
    with open("/proc/self/smaps_rollup") as lines:
        return sum(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1024


write_rollouts(path, blocks())
before = anonymous()
with RolloutDataLoader(path, framework="numpy", batch_size=16, memory_budget=budget or None) as loader:
    rows = sum(batch.metadata["rows"] for batch in loader)
    print(json.dumps({"rows": rows, "megabytes": anonymous() - before}))
"""


@pytest.mark.parametrize(("budget", "least", "most"), [("", 50, 200), ("16MB", 0, 30)])
def test_memory_does_not_grow_with_the_rollouts(tmp_path: Path, budget: str, least: float, most: float) -> None:
    """68 MB of columns, all of which stay in memory only where no budget says otherwise."""
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "all.rollouts"), budget],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(ran.stdout)
    assert found["rows"] == 4000
    assert least <= found["megabytes"] <= most


def test_batches_are_the_same_from_memory_and_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    with path.open("w") as file:
        for record in random_rollouts(groups=20, mean_length=50):
            plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in record.items()}
            file.write(json.dumps(plain) + "\n")
    batches: list[list[Any]] = []
    for budget in (None, 120_000):
        with RolloutDataLoader(path, framework="numpy", memory_budget=budget, cache_dir=tmp_path / "cache") as loader:
            batches.append(
                [
                    (batch.metadata["rollout_id"], batch.labels.tolist(), batch.metadata["values"].tolist())
                    for batch in loader
                ]
            )
            assert isinstance(loader.rollouts.block["values"], np.memmap) == (budget is not None)
    assert batches[0] == batches[1]
    assert list((tmp_path / "cache").iterdir()) == []  # nothing is left behind


def test_bounded_batches_that_the_user_holds_count() -> None:
    data = random_rollouts(groups=8, size=8, mean_length=400)
    with RolloutDataLoader(data, framework="numpy", memory_budget="1MB", batch_size=16) as loader:
        with pytest.raises(BudgetError, match="in use"):
            held = [loader.next() for _ in range(50)]
        del loader
    assert "held" not in locals()
