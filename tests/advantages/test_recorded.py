"""What verl 0.9.1 made of a few random batches, recorded by `tests/oracles/make_rl_goldens.py`: ours is the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from advantages.blocks import block_of
from advantages.compared import OURS, close

GOLDEN = np.load(Path(__file__).parent / "golden/verl.npz")
BATCHES = 3


@pytest.mark.parametrize("name", OURS)
def test_ours_is_what_was_recorded(name: str) -> None:
    for batch in range(BATCHES):
        given = {key.split("/")[-1]: GOLDEN[key] for key in GOLDEN.files if key.startswith(f"{batch}/given/")}
        lengths = np.diff(given.pop("ends"), prepend=0)
        block = block_of(given.pop("reward"), lengths, given.pop("group_id"), mask=given.pop("loss_mask"), **given)
        assert close(OURS[name](block), GOLDEN[f"{batch}/{name}"]), batch
