"""What a loss is divided by: the sum over all micro-batches and ranks of an update is one mean, however it is cut."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import examples
from loaders.conversations import Chats, document, made_late, sizes
from millstream import TokenStoreWriter, TrainingBatch
from millstream.loaders import ConversationDataLoader

__all__ = ["made_late"]
pytestmark = pytest.mark.usefixtures("made_late")

ROWS = 24
"""Of an update: 1 to 4 ranks times 1 to 4 micro-batches, and what is left is the batch size."""
cuts = st.sampled_from([(r, a) for r in (1, 2, 3, 4) for a in (1, 2, 3, 4) if ROWS % (r * a) == 0])
means = st.sampled_from(["token", "sequence"])


def loss_at(label: int, place: int) -> float:
    """A loss that each token has wherever its conversation lies: it follows from the token and its place in it."""
    return 1 + math.sin(12.9898 * label + 78.233 * place)


def scaled(batch: TrainingBatch) -> float:
    """The part of an update's loss that one micro-batch of one rank adds."""
    labels = np.asarray(batch.labels)
    weights = np.asarray(batch.loss_mask if batch.loss_weights is None else batch.loss_weights, np.float64)
    if batch.position_ids is None:
        places = np.broadcast_to(np.arange(labels.shape[1]), labels.shape)
    else:
        places = np.asarray(batch.position_ids)
    trained = np.argwhere(labels >= 0)
    total = math.fsum(weights[r, c] * loss_at(int(labels[r, c]), int(places[r, c])) for r, c in trained.tolist())
    return total / batch.metadata["loss_denominator"] if batch.metadata["loss_denominator"] else 0.0


def updates(data: Chats, ranks: int, accumulation: int, mean: Any, count: int) -> list[float]:
    """The loss of the first updates of a run."""
    shared = {"batch_size": ROWS // (ranks * accumulation), "world_size": ranks, "accumulation": accumulation}
    loaders = [data.loader(rank=rank, loss=mean, **shared) for rank in range(ranks)]
    try:
        steps = [[loader.next() for loader in loaders] for _ in range(count * accumulation)]
        for at in range(0, len(steps), accumulation):
            facts = {
                (batch.metadata["num_loss_tokens"], batch.metadata["loss_denominator"])
                for step in steps[at : at + accumulation]
                for batch in step
            }
            assert len(facts) == 1
            ((tokens, _),) = facts
            assert tokens == sum(b.metadata["loss_tokens"] for step in steps[at : at + accumulation] for b in step)
        return [
            math.fsum(scaled(batch) for step in steps[at : at + accumulation] for batch in step)
            for at in range(0, len(steps), accumulation)
        ]
    finally:
        for loader in loaders:
            loader.close()


@given(data=st.builds(Chats, sizes, st.just("made"), st.booleans()), ways=st.tuples(cuts, cuts), mean=means)
@examples(12)
def test_the_loss_of_an_update_does_not_depend_on_how_it_is_cut(
    data: Chats, ways: tuple[tuple[int, int], tuple[int, int]], mean: str
) -> None:
    """Of a whole update: at the end of an epoch steps are cut elsewhere, so updates hold other rows."""
    with data.loader(batch_size=ROWS) as probe:
        whole = probe._run.phase.size // ROWS
    one, other = (updates(data, *way, mean, whole) for way in ways)
    assert one == pytest.approx(other, rel=1e-12, abs=1e-12)


@given(sizes=sizes, mean=means)
@examples(12)
def test_the_loss_of_an_epoch_is_the_mean_of_its_conversations(sizes: tuple[int, ...], mean: str) -> None:
    """One update as long as the epoch: packed or not, it is the mean that is written down by hand.

    To the last digits of the batch's weights, which are float32 as tensors are.
    """
    found = [document(number, size) for number, size in enumerate(sizes)]
    losses = [
        [
            (weight, loss_at(token, place))
            for place, (token, weight) in enumerate(zip(ids[1:], weights[1:], strict=True))
        ]
        for ids, weights in found
    ]
    sums = [math.fsum(w * loss for w, loss in each) for each in losses]
    weights = [math.fsum(w for w, _ in each) for each in losses]
    if mean == "token":
        by_hand = math.fsum(sums) / math.fsum(weights)
    else:
        trained = [(s, w) for s, w in zip(sums, weights, strict=True) if w]
        by_hand = math.fsum(s / w for s, w in trained) / len(trained)
    got = []
    for packing in (False, True):
        with Chats(sizes, "made", packing).loader(batch_size=100, loss=mean) as loader:
            got.append(scaled(loader.next()))
    assert got[0] == pytest.approx(got[1], rel=1e-12)
    assert got[0] == pytest.approx(by_hand, rel=1e-12 if mean == "token" else 1e-6)


def test_a_mean_of_means_is_wrong_and_the_denominators_are_right(tmp_path: Any) -> None:
    """Micro-batch A has 10 tokens of loss 2, B 2 tokens of loss 4: 3.0 as a mean of means, 2.3333 in truth."""
    with TokenStoreWriter(tmp_path / "s", dtype="weighted") as writer:
        for count in (10, 2):
            writer.append([1] + [2] * count, weights=[0.0] + [1.0] * count)
    for accumulation, ranks in ((2, 1), (1, 2)):
        shared: Any = {"batch_size": 1, "shuffle": False, "framework": "numpy", "max_length": 16}
        loaders = [
            ConversationDataLoader(tmp_path / "s", accumulation=accumulation, rank=rank, world_size=ranks, **shared)
            for rank in range(ranks)
        ]
        first, second = [loaders[0].next(), loaders[0].next()] if ranks == 1 else [loader.next() for loader in loaders]
        for loader in loaders:
            loader.close()
        sums = [2.0 * first.metadata["loss_tokens"], 4.0 * second.metadata["loss_tokens"]]
        assert sum(sums) / 12 == pytest.approx(2.3333, abs=1e-4)
        total = sum(s / b.metadata["loss_denominator"] for s, b in zip(sums, (first, second), strict=True))
        assert total == pytest.approx(28 / 12, abs=1e-12)
        assert sum(s / b.metadata["loss_tokens"] for s, b in zip(sums, (first, second), strict=True)) / 2 == 3.0
