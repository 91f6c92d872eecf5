"""A small network learns from self-play games while more of them come in.

`python examples/chess_selfplay.py games/` takes games of Leela Chess Zero; without a folder some are made up, in which
both sides only hop with their knights. It takes some seconds on a CPU.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from millstream import SelfPlayBatch, SelfPlayDataLoader
from millstream.games import example_folder


class Network(nn.Module):
    """A convolution, and a head each for the policy and for win, draw and loss."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(112, width, 3, padding=1), nn.ReLU(), nn.Flatten())
        self.policy, self.value = nn.Linear(64 * width, 1858), nn.Linear(64 * width, 3)

    def forward(self, planes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of moves, and of win, draw and loss."""
        seen = self.body(planes)
        return self.policy(seen), self.value(seen)


def loss_of(network: Network, batch: SelfPlayBatch) -> torch.Tensor:
    """Cross entropies: with the visits of the search, over legal moves, and with the outcome of the game."""
    policy, value = network(batch.planes)
    legal = policy.masked_fill(batch.policy < 0, -1e9)
    return cross_entropy(legal, batch.policy.clamp(min=0)) + cross_entropy(value, batch.wdl("result"))


def train(folder: Path, steps: int) -> list[float]:
    """Give the loss of each step."""
    torch.manual_seed(0)
    network, losses = Network(), list[float]()
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    with SelfPlayDataLoader(folder, num_chunks=100_000, positions=1 / 2, shuffle_frames=512, batch_size=32) as loader:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = loss_of(network, loader.next())
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


if __name__ == "__main__":
    games = Path(sys.argv[1]) if len(sys.argv) > 1 else example_folder(50, plies=60)
    for step, loss in enumerate(train(games, steps=int(sys.argv[2]) if len(sys.argv) > 2 else 100)):
        print(f"step {step:3}  loss {loss:.3f}")
