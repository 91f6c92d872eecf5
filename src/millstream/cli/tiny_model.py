"""A language model small enough to read: a few past tokens -> one hidden layer -> the next token. Numpy only.

It exists so that the demo can show a loss that falls, which it only does when real batches arrive.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.integer]


class TinyModel:
    """Embeddings of the last `context` tokens, a tanh layer, a softmax; trained with Adam.

    >>> model = TinyModel(vocab_size=5, context=2, width=8, hidden=16)
    >>> contexts, targets = np.array([[0, 1], [1, 2], [2, 3]] * 20), np.array([2, 3, 4] * 20)
    >>> first, *_, last = [model.train(contexts, targets) for _ in range(60)]
    >>> first > 1.5 and last < 0.1
    True
    """

    def __init__(self, vocab_size: int, *, context: int = 4, width: int = 48, hidden: int = 160, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)

        def drawn(*shape: int, spread: float) -> Floats:
            return (generator.standard_normal(shape) * spread).astype(np.float32)

        self.context = context
        self.weights = {
            "embedding": drawn(vocab_size, width, spread=0.3),
            "hidden": drawn(context * width, hidden, spread=(context * width) ** -0.5),
            "hidden_bias": np.zeros(hidden, np.float32),
            "output": drawn(hidden, vocab_size, spread=0.01),
            "output_bias": np.zeros(vocab_size, np.float32),
        }
        self._mean = {name: np.zeros_like(weight) for name, weight in self.weights.items()}
        self._square = {name: np.zeros_like(weight) for name, weight in self.weights.items()}
        self._steps = 0

    def examples(self, ids: Ints, labels: Ints) -> tuple[Ints, Ints]:
        """Cut rows of a batch into (the last `context` tokens, the next token), as many as there are."""
        contexts = sliding_window_view(ids, self.context, axis=1).reshape(-1, self.context)
        return contexts, labels[:, self.context - 1 :].reshape(-1)

    def loss(self, contexts: Ints, targets: Ints) -> float:
        """The mean cross entropy, in nats."""
        return self._forward(contexts, targets)[0]

    def train(self, contexts: Ints, targets: Ints, rate: float = 0.01) -> float:
        """Take one step and give the loss before it."""
        loss, past, active, chances = self._forward(contexts, targets)
        chances[np.arange(len(targets)), targets] -= 1
        chances /= len(targets)
        below = (chances @ self.weights["output"].T) * (1 - active * active)
        slopes = {
            "output": active.T @ chances,
            "output_bias": chances.sum(0),
            "hidden": past.T @ below,
            "hidden_bias": below.sum(0),
            "embedding": self._embedding_slope(contexts, below @ self.weights["hidden"].T),
        }
        self._adam(slopes, rate)
        return loss

    def _forward(self, contexts: Ints, targets: Ints) -> tuple[float, Floats, Floats, Floats]:
        weights = self.weights
        past = weights["embedding"][contexts].reshape(len(contexts), -1)
        active = np.tanh(past @ weights["hidden"] + weights["hidden_bias"])
        scores = active @ weights["output"] + weights["output_bias"]
        scores -= scores.max(1, keepdims=True)
        chances = np.exp(scores)
        sums = chances.sum(1, keepdims=True)
        chances /= sums
        loss = np.log(sums[:, 0]) - scores[np.arange(len(targets)), targets]
        return float(loss.mean()), past, active, chances

    def _embedding_slope(self, contexts: Ints, slope: Floats) -> Floats:
        """Add up the slopes of equal tokens: sort them, then sum each stretch."""
        tokens = contexts.reshape(-1)
        order = np.argsort(tokens, kind="stable")
        ids, starts = np.unique(tokens[order], return_index=True)
        total = np.zeros_like(self.weights["embedding"])
        total[ids] = np.add.reduceat(slope.reshape(len(tokens), -1)[order], starts, axis=0)
        return total

    def _adam(self, slopes: dict[str, Floats], rate: float) -> None:
        self._steps += 1
        scale = rate * (1 - 0.99**self._steps) ** 0.5 / (1 - 0.9**self._steps)
        for name, slope in slopes.items():
            mean, square = self._mean[name], self._square[name]
            mean += 0.1 * (slope - mean)
            square += 0.01 * (slope * slope - square)
            self.weights[name] -= scale * mean / (np.sqrt(square) + 1e-8)


def unigram_entropy(tokens: Ints, vocab_size: int) -> float:
    """What is left to guess, in nats, when only the frequency of each token is known.

    >>> round(unigram_entropy(np.array([0, 1, 0, 1]), 4), 3)
    0.693
    """
    counts = np.bincount(np.asarray(tokens, dtype=np.int64), minlength=vocab_size).astype(np.float64)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
