"""A rollout as people read it: what the policy said between ⟦ and ⟧, how good that was, and how the others did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from millstream.loaders.rollout_marks import marked
from millstream.loaders.rollout_pieces import Decode, Piece, ids_as_text, pieces_of
from millstream.loaders.rollout_table import advantages_of, group_table, style_of
from millstream.rollouts import RolloutBlock
from millstream.stats import Shown, Styled, counted, share


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


def _differ(pieces: Sequence[Piece]) -> bool:
    """Whether tokens of one stretch have different advantages."""
    stretches = groupby(pieces, key=lambda piece: piece.advantage is not None)
    return any(known and len({piece.advantage for piece in stretch}) > 1 for known, stretch in stretches)


def _usual(block: RolloutBlock, group: Sequence[int]) -> float:
    """The usual size of an advantage in a group, so that marks of all its rollouts mean the same."""
    known = [(advantages_of(block, row), block.of(row, "loss_mask")) for row in group]
    sampled = np.concatenate([advantages[mask] for advantages, mask in known if advantages is not None])
    return float(np.sqrt(np.mean(sampled**2)))


def _stretches(pieces: Sequence[Piece]) -> Iterator[Styled]:
    """Stretches of tokens that are trained or not; behind each its advantage."""
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
