"""Rollouts for tests: groups of answers of random lengths, a prompt, sampled tokens, now and then a tool's."""

from __future__ import annotations

from typing import Any

import numpy as np

from millstream.rollouts import FINISHES


def random_rollouts(
    seed: int = 0, *, groups: int = 4, size: int = 4, mean_length: int = 12, tools: bool = True, full: bool = True
) -> list[dict[str, Any]]:
    """Records as an inference engine would give them; with `full`, all columns of tokens."""
    rng = np.random.default_rng(seed)
    made = []
    for group in range(groups):
        prompt = rng.integers(1, 1000, rng.integers(1, 5))
        for sample in range(size):
            answer = rng.integers(1, 1000, 1 + rng.poisson(mean_length))
            mask = np.concatenate([np.zeros(len(prompt), bool), np.ones(len(answer), bool)])
            if tools and len(answer) > 6 and rng.random() < 0.3:
                mask[len(prompt) + 2 : len(prompt) + 4] = False
            tokens = np.concatenate([prompt, answer])
            made.append(
                {
                    "rollout_id": f"{group}-{sample}",
                    "group_id": f"g{group}",
                    "token_ids": tokens.astype(np.uint32),
                    "loss_mask": mask,
                    "reward": float(rng.choice([0.0, 0.5, 1.0])),
                    "finish": FINISHES[int(rng.random() < 0.1)],
                    **(_columns(rng, mask) if full else {}),
                }
            )
    return made


def _columns(rng: np.random.Generator, mask: Any) -> dict[str, Any]:
    length = len(mask)
    return {
        "sampling_logprobs": np.where(mask, -rng.exponential(size=length), 0).astype(np.float32),
        "ref_logprobs": np.where(mask, -rng.exponential(size=length), 0).astype(np.float32),
        "values": rng.normal(size=length).astype(np.float32),
        "policy_version": np.full(length, int(rng.integers(0, 3)), np.uint32),
    }
