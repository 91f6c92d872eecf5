"""GRPO while an engine samples: one thread makes rollouts, the trainer takes batches of them, and the reward rises.

The policy learns to count on: after 6 come 7, 8, 9 and the token that stops. `python examples/grpo_loop.py` takes some
seconds on a CPU; another process or machine would use `open_source(…)` in the place of `feed.source()`.
"""

from __future__ import annotations

import sys
import threading
import time
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from millstream import MemoryFeed, RolloutDataLoader, RolloutSource, TrainingBatch

STOP, MOST_TOKENS, GROUP_SIZE = 10, 12, 8
LIVE = {"group_size": GROUP_SIZE, "groups_per_batch": 16, "max_staleness": 2, "timeout_s": 60}


class Engine(threading.Thread):
    """Samples groups with the weights that were published last, as many as the trainer wants."""

    def __init__(self, source: RolloutSource, policy: nn.Module) -> None:
        super().__init__(daemon=True)
        self.source, self.published, self.goes_on = source, (0, deepcopy(policy)), True

    def run(self) -> None:
        """Begin groups until `stop` is set."""
        word, left, number = None, 0, 0
        with self.source:
            while self.goes_on:
                if (told := self.source.control()) != word:
                    word, left = told, told.groups_wanted or 0
                if left == 0:
                    time.sleep(0.001)
                    continue
                left, number = left - 1, number + 1
                self.source.put(sample_group(number, *self.published))

    def stop(self) -> None:
        """Finish the present group."""
        self.goes_on = False
        self.join()


@torch.no_grad()
def sample_group(number: int, version: int, policy: nn.Module) -> list[dict[str, Any]]:
    """Answers to one prompt, with the log-probability of each token under the weights that sampled it."""
    ids = torch.full((GROUP_SIZE, 1), number % 9)
    logprobs = torch.zeros(GROUP_SIZE, 1)
    for _ in range(MOST_TOKENS - 1):
        chances = torch.distributions.Categorical(logits=policy(ids[:, -1]))
        token = chances.sample()
        ids, logprobs = torch.cat([ids, token[:, None]], 1), torch.cat([logprobs, chances.log_prob(token)[:, None]], 1)
    return [
        record(f"{number}/{row}", number, version, ids[row].tolist(), logprobs[row].tolist())
        for row in range(GROUP_SIZE)
    ]


def record(name: str, group: int, version: int, ids: list[int], logprobs: list[float]) -> dict[str, Any]:
    """A rollout: cut after the token that stops, and scored by how far it counted without a mistake."""
    length = ids.index(STOP) + 1 if STOP in ids else len(ids)
    right = list(range(ids[0], STOP + 1))
    hits = next((place for place, token in enumerate(right) if ids[:length][place : place + 1] != [token]), len(right))
    return {
        "rollout_id": name,
        "group_id": group,
        "token_ids": ids[:length],
        "loss_mask": [0] + [1] * (length - 1),
        "sampling_logprobs": logprobs[:length],
        "policy_version": version,
        "reward": (hits - 1) / (len(right) - 1),
        "finish": "stop" if ids[length - 1] == STOP else "length",
    }


def grpo_loss(logits: torch.Tensor, batch: TrainingBatch, most: float = 2.0) -> torch.Tensor:
    """One update per batch, so the ratio is that to the weights that sampled, truncated (TIS)."""
    facts = batch.metadata
    chosen = logits.log_softmax(-1).gather(-1, batch.labels.clamp(min=0)[..., None])[..., 0]
    ratio = (chosen.detach() - facts["sampling_logprobs"]).exp().clamp(max=most)
    return -(ratio * facts["advantages"] * chosen * batch.loss_mask).sum() / facts["loss_denominator"]


def train(steps: int, seed: int = 0) -> list[float]:
    """Give the mean reward of each step."""
    torch.manual_seed(seed)
    policy = nn.Sequential(nn.Embedding(STOP + 1, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, STOP + 1))
    optimizer, feed, rewards = torch.optim.Adam(policy.parameters(), lr=5e-3), MemoryFeed(), list[float]()
    with RolloutDataLoader(feed, live=LIVE, batch_size=16 * GROUP_SIZE) as loader:
        engine = Engine(feed.source(), policy)
        engine.start()
        for step in range(steps):
            batch = loader.next()
            optimizer.zero_grad()
            grpo_loss(policy(batch.input_ids), batch).backward()
            optimizer.step()
            engine.published = (step + 1, deepcopy(policy))
            rewards.append(batch.metadata["statistics"]["mean_reward"])
        engine.stop()
    return rewards


if __name__ == "__main__":
    rewards = train(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
    for step in range(0, len(rewards), max(1, len(rewards) // 20)):
        print(f"step {step:4}  reward {rewards[step]:.2f}  {'█' * round(40 * rewards[step])}")
