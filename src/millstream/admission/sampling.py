"""Dynamic sampling: a group whose rewards are all equal teaches nothing, and another is waited for in its place.

Whether rewards are equal is decided by their spread, never by a standard deviation: that is rounded, and not quite 0.
"""

from __future__ import annotations

import numpy as np

from millstream.admission.identity import are_baselines
from millstream.rollouts import EQUAL_WITHIN, RolloutBlock


def why_flat(block: RolloutBlock, column: str = "reward", tol: float = EQUAL_WITHIN) -> str | None:
    """Why a group has no spread, or None if it has.

    >>> def group(*rewards):
    ...     return RolloutBlock(np.arange(len(rewards)), {"reward": np.array(rewards, float)}, {})
    >>> why_flat(group(0, 0)), why_flat(group(1, 1)), why_flat(group(0.5, 0.5)), why_flat(group(np.nan))
    ('all_0', 'all_1', 'equal', 'unscored')
    >>> why_flat(group(0, 1))
    """
    if column not in block.rows:
        return "unscored"
    rewards = block.rows[column][~are_baselines(block)]
    scored = rewards[~np.isnan(rewards)]
    if not len(scored):
        return "unscored"
    least, most = float(scored.min()), float(scored.max())
    if most - least > tol:
        return None
    if abs(least) <= tol:
        return "all_0"
    return "all_1" if abs(most - 1) <= tol else "equal"
