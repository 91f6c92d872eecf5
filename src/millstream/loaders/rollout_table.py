"""How the rollouts of a group did: a line for each, or for the best and the worst of many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from millstream.advantages import GroupedRewards
from millstream.rollouts import RolloutBlock
from millstream.stats import Style, Styled, counted

BAR = 20
"""Letters of the longest bar."""
MOST_ROWS = 32
"""Larger groups show their ends only."""
OF_EACH_END = 8
NAME_LETTERS = 40


def advantages_of(block: RolloutBlock, row: int) -> npt.NDArray[np.float64] | None:
    """The advantage of each token of a rollout, if somebody computed them."""
    if "advantages" in block.tokens:
        return np.asarray(block.of(row, "advantages"), np.float64)
    if "advantages" in block.rows:
        return np.where(block.of(row, "loss_mask"), block["advantages"][row], 0.0)
    return None


def group_table(block: RolloutBlock, row: int, group: Sequence[int]) -> Iterator[Styled]:
    """The group of a rollout: in its order, or if it is large from the best to the worst."""
    rewards = np.array([block["reward"][other] for other in group], np.float64)
    shaped = (
        rewards if "shaped_reward" not in block.rows else np.asarray(block["shaped_reward"], np.float64)[list(group)]
    )
    yield Styled(f"group {block['group_id'][row]!r}: {_summary(rewards, shaped)}\n", "note")
    size = float(np.nanmax(np.abs(rewards))) if np.isfinite(rewards).any() else 0.0
    width = max(len(_name(block, other)) for other in group)
    order = group if len(group) <= MOST_ROWS else [group[place] for place in _best_first(rewards)]
    left_out = 0
    for rank, other in enumerate(order):
        if len(order) > MOST_ROWS and OF_EACH_END <= rank < len(order) - OF_EACH_END and other != row:
            left_out += 1
            continue
        if left_out:
            yield Styled(f"  … {left_out:,} more\n", "note")
        left_out = 0
        yield _line(block, other, width, size, is_own=other == row)


def _best_first(rewards: npt.NDArray[np.float64]) -> list[int]:
    """The places of rewards from the best to the worst; those that were not scored come last.

    >>> _best_first(np.array([0.0, np.nan, 1.0]))
    [2, 0, 1]
    """
    places: list[int] = np.argsort(-rewards, kind="stable").tolist()
    return places


def _summary(rewards: npt.NDArray[np.float64], compared: npt.NDArray[np.float64]) -> str:
    """A group in some words: its rewards, and the mean and deviation of what is compared, as estimators compute them.

    >>> rewards = np.array([1.0, 0.0, np.nan])
    >>> _summary(rewards, rewards), _summary(np.array([1.0]), np.array([1.0]))
    ('3 rollouts, rewards from 0 to 1, mean 0.5 ± 0.707, 1 not scored', '1 rollout')
    >>> _summary(rewards, rewards - 1)
    '3 rollouts, rewards from 0 to 1, with penalties mean -0.5 ± 0.707, 1 not scored'
    """
    told, known = [counted(len(rewards), "rollout")], rewards[~np.isnan(rewards)]
    if len(known) > 1:
        group = GroupedRewards.of(compared, np.zeros(len(compared)))
        penalised = "" if np.array_equal(rewards, compared, equal_nan=True) else "with penalties "
        mean = f"{penalised}mean {group.means[0]:.3g} ± {group.stds[0]:.3g}"
        told += [f"rewards from {known.min():g} to {known.max():g}", mean]
    if len(known) < len(rewards):
        told.append(f"{len(rewards) - len(known):,} not scored")
    return ", ".join(told)


def _name(block: RolloutBlock, row: int) -> str:
    name = repr(block["rollout_id"][row])
    return name if len(name) <= NAME_LETTERS else name[: NAME_LETTERS - 1] + "…"


def _line(block: RolloutBlock, row: int, width: int, size: float, *, is_own: bool) -> Styled:
    reward = float(block["reward"][row])
    bar = "█" * round(BAR * abs(reward) / size) if size and np.isfinite(reward) else ""
    advantages, sampled = advantages_of(block, row), block.of(row, "loss_mask")
    mean = None if advantages is None or not sampled.any() else float(advantages[sampled].mean())
    score = "" if mean is None else f"  advantage {mean:+.4f}"
    name = f"{'▶' if is_own else ' '} {_name(block, row):<{width}}"
    told = f"{name}  reward {reward:>8.4g}{score}  {int(block.lengths[row]):>6,} tokens  {block.finish(row):<6}  {bar}"
    return Styled(told.rstrip() + "\n", style_of(reward if mean is None else mean))


def style_of(value: float) -> Style:
    """Better or worse than nothing."""
    return "better" if value > 0 else "worse" if value < 0 else "neutral"
