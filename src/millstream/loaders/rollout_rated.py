"""Rollouts -> rollouts with advantages: columns like any other, computed on whole groups before anything is cut."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from millstream.advantages import Advantages, AdvantageSettings, compute_advantages, find_estimator
from millstream.rollouts import KINDS, RolloutBlock


@dataclass(frozen=True, eq=False)
class Rated:
    """Rollouts that are trained on, with everything that is derived from them."""

    block: RolloutBlock
    facts: dict[str, float | int]
    """Numbers to report: of rewards, of groups that teach nothing, of what was left out."""
    rows: npt.NDArray[np.int64]
    """Which rollouts of those that were given these are: baselines are only compared with."""


def rate(block: RolloutBlock, settings: AdvantageSettings | None) -> Rated:
    """Compute what is asked for; without settings, only leave out what nobody trains on.

    >>> from millstream.rollouts import block_of
    >>> record = {"group_id": "g", "token_ids": [5, 6], "loss_mask": [0, 1], "finish": "stop"}
    >>> records = [{**record, "rollout_id": name, "reward": reward} for name, reward in (("a", 1.0), ("b", 0.0))]
    >>> rated = rate(block_of(records), AdvantageSettings("rloo"))
    >>> rated.block["advantages"].tolist(), rated.block["rewards"].tolist()
    ([1.0, -1.0], [1.0, 0.0])
    """
    tokens, rows = dict(block.tokens), dict(block.rows)
    facts: dict[str, float | int] = {}
    if settings is not None:
        advantages = compute_advantages(block, settings)
        facts = advantages.facts
        _add(advantages, tokens, rows)
    if "token_rewards" in tokens:
        tokens["rewards"] = tokens["token_rewards"]
    else:  # a batch puts it at the last token that is learned
        rows["rewards"] = np.nan_to_num(rows["reward"], nan=0.0)
    whole = RolloutBlock(block.ends, rows, tokens, block.kept_ids)
    trained = np.arange(len(block), dtype=np.int64)
    if "kind" in rows and rows["kind"].any():
        trained = np.flatnonzero(rows["kind"] == KINDS.index("sample"))
        whole = whole.select(trained)
    return Rated(whole, facts, trained)


def comparable(block: RolloutBlock, settings: AdvantageSettings | None) -> npt.NDArray[np.int64]:
    """The rollouts that can be rated: where groups are compared, those of groups of one cannot."""
    if settings is None or settings.allow_singleton or not find_estimator(settings).groups:
        return np.arange(len(block), dtype=np.int64)
    found = compute_advantages(block, replace(settings, allow_singleton=True))
    return np.flatnonzero(~np.isin(found.groups, found.groups[found.alone]))


def _add(
    advantages: Advantages, tokens: dict[str, npt.NDArray[np.generic]], rows: dict[str, npt.NDArray[np.generic]]
) -> None:
    if advantages.per_rollout is not None:
        rows["advantages"] = advantages.per_rollout
    else:
        tokens["advantages"] = advantages.token_advantages()
    if advantages.returns is not None:
        tokens["returns"] = advantages.returns
    if advantages.loss_mask is not None:
        tokens["loss_mask"] = advantages.loss_mask
    rows["shaped_reward"] = advantages.rewards
    rows["zero_variance"] = advantages.zero_variance[advantages.groups]
