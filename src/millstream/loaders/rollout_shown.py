"""A rollout as people read it: what the policy said between ⟦ and ⟧, how good that was, and how the others did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.rollouts import RolloutBlock
from millstream.stats.figures import counted, share, visible
from millstream.stats.styled import Shown, Style, Styled

Decode: TypeAlias = Callable[[Sequence[int]], str]
BAR = 20
"""Letters of the longest bar in a table of rewards."""


def show_rollout(
    block: RolloutBlock, row: int, group: Sequence[int], *, decode: Decode | None, where: str = ""
) -> Shown:
    """A rollout, then the rewards of its whole group."""
    return Shown(
        [
            Styled(f"{_heading(block, row, where)}\n", "heading"),
            *_body(block, row, decode or _ids),
            Styled("\n", "plain"),
            *_table(block, row, group),
        ]
    )


def _advantages(block: RolloutBlock, row: int) -> npt.NDArray[np.float64] | None:
    """The advantage of each token of a rollout, if somebody computed them."""
    if "advantages" in block.tokens:
        return np.asarray(block.of(row, "advantages"), np.float64)
    if "advantages" in block.rows:
        return np.where(block.of(row, "loss_mask"), block["advantages"][row], 0.0)
    return None


def _heading(block: RolloutBlock, row: int, where: str) -> str:
    mask = block.of(row, "loss_mask")
    told = [
        f"══ rollout {block['rollout_id'][row]!r} of group {block['group_id'][row]!r}{where and f' ({where})'}",
        f"{counted(len(mask), 'token')}, {int(mask.sum()):,} trained ({share(int(mask.sum()), len(mask))})",
        f"reward {block['reward'][row]:g}, ended by {block.finish(row)}",
    ]
    if "policy_version" in block:
        versions = block.of(row, "policy_version")
        low, high = int(versions.min()), int(versions.max())
        told.append(f"policy {low}" if low == high else f"policies {low} to {high}")
    return "  ".join(told)


def _body(block: RolloutBlock, row: int, decode: Decode) -> Iterator[Styled]:
    """Stretches of tokens that are trained or not, each with its mean advantage, cut where its sign turns."""
    advantages = _advantages(block, row)
    mask, ids = block.of(row, "loss_mask"), block.of(row, "token_ids").tolist()
    signs = np.zeros(len(ids)) if advantages is None else np.sign(advantages)
    changes = np.flatnonzero((np.diff(mask) != 0) | (np.diff(np.where(mask, signs, 0)) != 0)) + 1
    for start, stop in pairwise([0, *changes.tolist(), len(ids)]):
        text = visible(decode(ids[start:stop]), keep="\n\t")
        if not mask[start]:
            yield Styled(text, "plain")
            continue
        if advantages is None:
            yield Styled(f"⟦{text}⟧", "trained")
            continue
        mean = float(np.mean(advantages[start:stop]))
        style: Style = "better" if mean > 0 else "worse" if mean < 0 else "trained"
        yield Styled(f"⟦{text}⟧{mean:+.3g}", style)


def _table(block: RolloutBlock, row: int, group: Sequence[int]) -> Iterator[Styled]:
    """How every rollout of the group did, in its order."""
    rewards = np.array([block["reward"][other] for other in group], np.float64)
    best = float(np.nanmax(np.abs(rewards))) if np.isfinite(rewards).any() else 0.0
    yield Styled(f"group {block['group_id'][row]!r}: {counted(len(group), 'rollout')}\n", "note")
    width = max(len(repr(block["rollout_id"][other])) for other in group)
    for other, reward in zip(group, rewards.tolist(), strict=True):
        bar = "█" * round(BAR * abs(reward) / best) if best and np.isfinite(reward) else ""
        advantages = _advantages(block, other)
        sampled = block.of(other, "loss_mask")
        score = "" if advantages is None or not sampled.any() else f"  advantage {advantages[sampled].mean():+.4f}"
        name = f"{'▶' if other == row else ' '} {block['rollout_id'][other]!r:<{width}}"
        line = f"{name}  reward {reward:>8.4g}{score}  {int(block.lengths[other]):>6,} tokens  {block.finish(other):<6}"
        yield Styled(f"{line}  {bar}".rstrip() + "\n", "better" if reward > 0 else "worse" if reward < 0 else "plain")


def _ids(ids: Sequence[int]) -> str:
    """What is shown where nobody gave a tokenizer."""
    return " ".join(map(str, ids)) + " "
