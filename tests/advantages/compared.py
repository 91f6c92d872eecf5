"""What is compared with verl, by name: our result for a block, a value per token (or one for all of them)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from advantages.blocks import random_block
from millstream.advantages import AdvantageSettings, compute_advantages, correction_weights, masked_counts
from millstream.advantages.masked import masked_sums, whiten
from millstream.advantages.rewards import kl_divergence
from millstream.batches import MeanOf
from millstream.batches.denominators import StepLoss
from millstream.rollouts import KINDS, RolloutBlock

GAMMA, LAM, CONSTANT, CAP, FLOOR = 0.97, 0.9, 8.0, 1.5, 0.5
GREEDY = 0.25
"""The reward of every prompt's greedy rollout."""


def compared_block(seed: int) -> RolloutBlock:
    """Random rollouts as verl knows them: nothing is bootstrapped."""
    block = random_block(seed)
    rows = {name: column for name, column in block.rows.items() if name != "bootstrap_value"}
    return RolloutBlock(block.ends, rows, block.tokens)


def with_greedy(block: RolloutBlock) -> RolloutBlock:
    """The same, and a baseline of one token for each group."""
    rows = block.select(np.unique(block["group_id"].astype(str), return_index=True)[1])
    first = rows.select(np.arange(len(rows)))
    one = RolloutBlock(np.arange(1, len(first) + 1), first.rows, {k: v[: len(first)] for k, v in first.tokens.items()})
    greedy = one.with_columns(
        reward=np.full(len(one), GREEDY), kind=np.full(len(one), KINDS.index("baseline"), np.uint8)
    )
    return RolloutBlock.concat([block.with_columns(kind=np.zeros(len(block), np.uint8)), greedy])


def estimated(name: str, **settings: Any) -> Callable[[RolloutBlock], Any]:
    return lambda block: compute_advantages(block, AdvantageSettings(name, **settings)).token_advantages()


def returned(name: str, **settings: Any) -> Callable[[RolloutBlock], Any]:
    def returns(block: RolloutBlock) -> Any:
        return compute_advantages(block, AdvantageSettings(name, **settings)).returns

    return returns


def remax(block: RolloutBlock) -> Any:
    return estimated("remax")(with_greedy(block))[: len(block["loss_mask"])]


def aggregated(mean_of: MeanOf, constant: float = 1.0) -> Callable[[RolloutBlock], Any]:
    def total(block: RolloutBlock) -> Any:
        mask, ends = block["loss_mask"], block.ends
        loss = StepLoss(range(len(ends)), masked_counts(mask, ends), np.ones(len(ends)), mean_of, constant)
        return loss.weights @ masked_sums(block["values"], mask, ends) / loss.denominator

    return total


def divergence(kind: Any) -> Callable[[RolloutBlock], Any]:
    return lambda block: kl_divergence(
        block["sampling_logprobs"], block["ref_logprobs"], block["loss_mask"], kind, clamp=True
    )


def corrected(level: Any, floor: float | None = None) -> Callable[[RolloutBlock], Any]:
    return lambda block: correction_weights(
        block["ref_logprobs"],
        block["sampling_logprobs"],
        block["loss_mask"],
        block.ends,
        level=level,
        cap=CAP,
        floor=floor,
    )


OURS: dict[str, Callable[[RolloutBlock], Any]] = {
    "grpo": estimated("grpo"),
    "dr_grpo": estimated("dr_grpo"),
    "rloo": estimated("rloo"),
    "opo": estimated("opo"),
    "passk": estimated("passk"),
    "passk, divided": estimated("passk", scale="group"),
    "reinforce++-baseline": estimated("reinforce++-baseline"),
    "reinforce++": estimated("reinforce++", gamma=GAMMA),
    "reinforce++, returns": returned("reinforce++", gamma=GAMMA),
    "remax": remax,
    "gae": estimated("gae", gamma=GAMMA, lam=LAM),
    "gae, returns": returned("gae", gamma=GAMMA, lam=LAM),
    "whitened": lambda block: whiten(block["values"], block["loss_mask"]),
    "whitened, not shifted": lambda block: whiten(block["values"], block["loss_mask"], shift_mean=False),
    "k1": divergence("k1"),
    "k2": divergence("k2"),
    "k3": divergence("k3"),
    "tokens corrected": corrected("token"),
    "tokens rejected": corrected("token", FLOOR),
    "sequences corrected": corrected("sequence"),
    "token-mean": aggregated("token"),
    "seq-mean-token-sum": aggregated("sequence_sum"),
    "seq-mean-token-mean": aggregated("sequence"),
    "seq-mean-token-sum-norm": aggregated("sequence_sum", CONSTANT),
}


def close(found: Any, wanted: Any) -> bool:
    return bool(np.allclose(found, wanted, rtol=1e-6, atol=1e-6))


def last_policy_tokens(block: RolloutBlock) -> Any:
    """Where the reward of each rollout stands, among all tokens."""
    assert masked_counts(block["loss_mask"], block.ends).all()
    return [start + int(np.flatnonzero(block.of(row, "loss_mask"))[-1]) for row, start in enumerate(block.starts)]
