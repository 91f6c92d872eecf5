"""A rollout as people read it: what the policy said between ⟦ and ⟧, how good that was, and how its group did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt

from millstream.advantages import GroupedRewards
from millstream.loaders.rollouts.marks import Decode, TextPiece, ids_as_text, marked, pieces_of
from millstream.rollouts import RolloutBlock
from millstream.stats import Shown, Style, Styled, counted, share

BAR = 20
"""Letters of the longest bar."""
MOST_ROWS = 32
"""Larger groups show their ends only."""
OF_EACH_END = 8
NAME_LETTERS = 40


def advantages_of(block: RolloutBlock, row: int) -> npt.NDArray[np.float64] | None:
    """The advantage of each token of a rollout, if they were computed."""
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


def show_rollout(
    block: RolloutBlock,
    row: int,
    group: Sequence[int],
    *,
    decode: Decode | None,
    where: str = "",
    whole: bool = False,
) -> Shown:
    """A rollout, then the rewards of its whole group. Trained text is never shortened; other text, unless `whole`."""
    ids, mask = block.of(row, "token_ids").tolist(), block.of(row, "loss_mask")
    pieces = pieces_of(ids, mask, advantages_of(block, row), decode or ids_as_text, whole=whole)
    body = list(marked(pieces, _usual(block, group)) if _differ(pieces) else _stretches(pieces))
    end = "" if body and body[-1].text.endswith("\n") else "\n"
    heading = Styled(f"{_heading(block, row, where)}\n", "heading")
    return Shown([heading, *body, Styled(end, "plain"), *group_table(block, row, group)])


def _heading(block: RolloutBlock, row: int, where: str) -> str:
    mask = block.of(row, "loss_mask")
    told = [
        f"══ rollout {block['rollout_id'][row]!r} of group {block['group_id'][row]!r}{where and f' ({where})'}",
        f"{counted(len(mask), 'token')}, {int(mask.sum()):,} trained ({share(int(mask.sum()), len(mask))})",
        f"{_reward(float(block['reward'][row]))}, ended by {block.finish(row)}",
    ]
    if "policy_version" in block:
        versions = block.of(row, "policy_version")
        low, high = int(versions.min()), int(versions.max())
        told.append(f"policy {low}" if low == high else f"policies {low} to {high}")
    return "  ".join(told)


def _reward(reward: float) -> str:
    return "not scored" if np.isnan(reward) else f"reward {reward:g}"


def _differ(pieces: Sequence[TextPiece]) -> bool:
    """Whether tokens of one stretch have different advantages."""
    stretches = groupby(pieces, key=lambda piece: piece.advantage is not None)
    return any(known and len({piece.advantage for piece in stretch}) > 1 for known, stretch in stretches)


def _usual(block: RolloutBlock, group: Sequence[int]) -> float:
    """The usual size of an advantage in a group, so that marks of all its rollouts mean the same."""
    known = [(advantages_of(block, row), block.of(row, "loss_mask")) for row in group]
    sampled = np.concatenate([advantages[mask] for advantages, mask in known if advantages is not None])
    return float(np.sqrt(np.mean(sampled**2)))


def _stretches(pieces: Sequence[TextPiece]) -> Iterator[Styled]:
    """Stretches of tokens that are trained or not; after each its advantage."""
    for key, stretch in groupby(pieces, key=lambda piece: (piece.is_trained, piece.is_note, piece.advantage)):
        is_trained, is_note, advantage = key
        text = "".join(piece.text for piece in stretch)
        if is_note:
            yield Styled(f"\n{text}\n", "note")
        elif not is_trained:
            yield Styled(text, "plain")
        elif advantage is None:
            yield Styled(f"⟦{text}⟧", "trained")
        else:
            yield Styled(f"⟦{text}⟧{advantage:+.3g}", style_of(advantage))
