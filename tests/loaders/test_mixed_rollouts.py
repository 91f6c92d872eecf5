"""Rollouts beside texts, chats and streams: what is said of them lies beside their rows, and the laws hold."""

from __future__ import annotations

import gc
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forks import in_child
from laws import make_store
from millstream import CharTokenizer, LoaderError, MemoryFeed, MixedDataLoader, PretrainDataLoader, RolloutDataLoader
from rollouts.samples import random_rollouts

LENGTH = 24
RECORDS = random_rollouts(groups=5, size=4, mean_length=8)


def rollouts(**given: Any) -> Any:
    return RolloutDataLoader(RECORDS, framework="numpy", max_length=LENGTH, **given)


def mixed(**given: Any) -> Any:
    texts = PretrainDataLoader(make_store([300], start=5000), chunk_size=LENGTH, framework="numpy")
    sources = {"web": (texts, 0.5), "rl": (rollouts(), 0.5)}
    return MixedDataLoader(sources, mix_block=2, **{"batch_size": 4, "epoch_size": 40, **given})


def alone() -> dict[Any, tuple[list[int], list[float]]]:
    """What each rollout is by itself: its labels, and what is said of them."""
    with rollouts() as loader:
        return {
            name: (labels.tolist(), advantages.tolist())
            for batch in loader
            for name, labels, advantages in zip(
                batch.metadata["rollout_id"],
                np.pad(batch.labels, ((0, 0), (0, LENGTH - batch.labels.shape[1])), constant_values=-100),
                np.pad(batch.metadata["advantages"], ((0, 0), (0, LENGTH - batch.labels.shape[1]))),
                strict=True,
            )
        }


def test_rows_of_rollouts_are_what_they_are_alone_and_those_of_texts_have_nothing_beside_them() -> None:
    expected, seen = alone(), Counter[Any]()
    with mixed() as loader:
        for batch in loader:
            facts = batch.metadata
            for row, source in enumerate(facts["source"]):
                name = facts["rollout_id"][row]
                assert (source == "web") == (name is None)
                advantages = facts["advantages"][row]
                if source == "web":
                    assert not advantages.any()
                    continue
                assert (batch.labels[row].tolist(), advantages.tolist()) == expected[name]
                seen[name] += 1
            halves = batch.split(2)
            assert [half.metadata["rollout_id"] for half in halves] == [
                facts["rollout_id"][:2],
                facts["rollout_id"][2:],
            ]
    assert seen == Counter(list(expected))


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_mixture_goes_on_from_its_state_on_other_ranks(ranks: int) -> None:
    with mixed() as whole:
        names = [whole.next().metadata["rollout_id"] for _ in range(6)]
    with mixed() as begun:
        for _ in range(2):
            begun.next()
        state = json.loads(json.dumps(begun.state_dict()))
    loaders = [mixed(rank=rank, world_size=ranks, batch_size=4 // ranks) for rank in range(ranks)]
    for loader in loaders:
        loader.load_state_dict(state)
    rest = [[name for loader in loaders for name in loader.next().metadata["rollout_id"]] for _ in range(4)]
    assert names[2:] == rest
    for loader in loaders:
        loader.close()


def test_a_child_that_forgets_a_mixture_takes_no_rollouts_from_its_parent() -> None:
    """Without a cache they lie in a folder of their own, which goes with the mixture."""
    loader = mixed()
    folder = loader._run.members["rl"].store.path.parent

    def forget() -> None:
        nonlocal loader
        del loader
        gc.collect()

    in_child(forget)()
    assert folder.exists(), "the child has removed it"
    forget()
    assert not folder.exists()


def test_rollouts_lie_beside_streams_of_raw_files(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("the mill by the stream " * 400)
    tokenizer = CharTokenizer.train([path.read_text()])
    stream = PretrainDataLoader(path, tokenizer=tokenizer, chunk_size=LENGTH, streaming=True, framework="numpy")
    own = rollouts(pad_id=stream.shape.pad_id)
    with MixedDataLoader({"web": (stream, 0.5), "rl": (own, 0.5)}, batch_size=4, mix_block=2, epoch_size=40) as loader:
        expected, seen = alone(), Counter[Any]()
        for batch in loader:
            for row, name in enumerate(batch.metadata["rollout_id"]):
                if name is not None:
                    assert batch.metadata["advantages"][row].tolist() == expected[name][1]
                    seen[name] += 1
    assert seen == Counter(list(expected))


@pytest.mark.parametrize(
    ("given", "told"),
    [({"packing": True}, "packing"), ({"keep_groups": True}, "keep_groups"), ({"loss": "rollout"}, "rollout")],
)
def test_what_a_mixture_cannot_keep_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(LoaderError, match=told):
        MixedDataLoader({"rl": (rollouts(**given), 1.0)})


def test_feeds_are_not_mixed() -> None:
    feed = RolloutDataLoader(MemoryFeed(), framework="numpy")
    with pytest.raises(LoaderError, match="is a feed"):
        MixedDataLoader({"rl": (feed, 1.0)})
