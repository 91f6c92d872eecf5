"""Write tests/advantages/golden/verl.npz: a few random batches, and what verl makes of them.

It runs where `make oracles` runs, with MILLSTREAM_ORACLES=1.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from advantages.compared import compared_block
from oracles.rl import THEIRS, Padded

GOLDEN = Path(__file__).parent.parent / "advantages/golden/verl.npz"
BATCHES = 3


def main() -> None:
    made: dict[str, Any] = {}
    for seed in range(BATCHES):
        block = compared_block(seed)
        given = {"ends": block.ends, "group_id": block["group_id"].astype(np.int64), **block.tokens}
        given |= {name: block[name] for name in ("reward", "finish")}
        made |= {f"{seed}/given/{name}": column for name, column in given.items()}
        made |= {f"{seed}/{name}": function(Padded(block)) for name, function in THEIRS.items()}
    GOLDEN.parent.mkdir(exist_ok=True)
    np.savez_compressed(GOLDEN, **made)


if __name__ == "__main__":
    main()
