"""How old rollouts are: versions between the policy that made their trained tokens and the one that is trained.

Step 5 trains version 4: what version 3 made has a staleness of 1. Rollouts age while they wait, so it is looked at when
they arrive, and again when a batch is cut.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from millstream.feeds.admission.identity import are_baselines
from millstream.rollouts import RolloutBlock

Numbers = npt.NDArray[np.int64]
NEVER = np.iinfo(np.int64).max
"""The version of rollouts that no loss is taken from: they cannot be too old."""


def trained_versions(block: RolloutBlock) -> tuple[Numbers, Numbers]:
    """The oldest and the newest version among the trained tokens of each rollout.

    >>> tokens = {"loss_mask": np.array([0, 1, 1, 0], bool), "policy_version": np.array([0, 3, 4, 9], np.uint32)}
    >>> [ends.tolist() for ends in trained_versions(RolloutBlock(np.array([3, 4]), {}, tokens))]
    [[3, 9223372036854775807], [4, -1]]
    """
    trained, versions = _trained(block), block.tokens["policy_version"].astype(np.int64)
    if not len(block):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    oldest: Numbers = np.minimum.reduceat(np.where(trained, versions, NEVER), block.starts)
    newest: Numbers = np.maximum.reduceat(np.where(trained, versions, -1), block.starts)
    return oldest, newest


def is_stale(block: RolloutBlock, policy_version: int, max_staleness: int) -> npt.NDArray[np.bool_]:
    """Which rollouts have a trained token that is too old.

    >>> tokens = {"loss_mask": np.array([True]), "policy_version": np.array([3], np.uint32)}
    >>> block = RolloutBlock(np.array([1]), {}, tokens)
    >>> bool(is_stale(block, 4, max_staleness=1)), bool(is_stale(block, 4, max_staleness=0))
    (False, True)
    """
    return trained_versions(block)[0] < policy_version - max_staleness


def is_wholly_stale(block: RolloutBlock, policy_version: int, max_staleness: int) -> npt.NDArray[np.bool_]:
    """Which rollouts have trained tokens, all of them too old."""
    newest = trained_versions(block)[1]
    return (newest >= 0) & (newest < policy_version - max_staleness)


def mask_stale(block: RolloutBlock, policy_version: int, max_staleness: int) -> tuple[RolloutBlock, int]:
    """Take the loss from tokens that are too old; gives how many these are, too."""
    stale = _trained(block) & (block.tokens["policy_version"].astype(np.int64) < policy_version - max_staleness)
    count = int(stale.sum())
    return (block.with_columns(loss_mask=block.tokens["loss_mask"] & ~stale) if count else block), count


def _trained(block: RolloutBlock) -> npt.NDArray[np.bool_]:
    compared = np.repeat(are_baselines(block), block.lengths)
    trained: npt.NDArray[np.bool_] = block.tokens["loss_mask"] & ~compared
    return trained
