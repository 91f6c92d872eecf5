"""The state of a batch: a trainer that has read ahead saves a state at the batch that it trained on."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.corpora import corpus, stream
from loaders.mixtures import Source, mixed
from millstream import DataLoader, LoaderError, TrainingBatch
from millstream.loaders import example_loader

FILES = (("jsonl", (5, 3, 6, 2)), ("txt", (4, 4)))
KINDS: dict[str, Callable[[], DataLoader[TrainingBatch]]] = {
    "store": lambda: example_loader(batch_size=2),
    "stream": lambda: stream(corpus(FILES), batch_size=2),
    "mixture with a stream": lambda: mixed({"web": Source(corpus(FILES), weight=1.0, streaming=True)}, batch_size=2),
}


def ids(batch: TrainingBatch) -> Any:
    return batch.input_ids.tolist()


@pytest.mark.parametrize("kind", KINDS)
@given(delivered=st.integers(1, 7), back=st.integers(0, 6))
def test_a_state_after_a_batch_goes_on_with_the_next_one(kind: str, delivered: int, back: int) -> None:
    with KINDS[kind]() as loader:
        states = [loader.state_dict()]
        batches = []
        for _ in range(delivered):
            batches.append(loader.next())
            states.append(loader.state_dict())
        at = max(0, delivered - 1 - back)
        assert loader.state_dict(after=batches[at]) == loader.state_dict(after=at) == states[at + 1]
        assert loader.state_dict(before=batches[at]) == loader.state_dict(before=at) == states[at]
        assert loader.state_dict() == states[-1]  # the run did not move
        with KINDS[kind]() as other:
            other.load_state_dict(loader.state_dict(before=batches[at]))
            assert [ids(other.next()) for _ in batches[at:]] == [ids(batch) for batch in batches[at:]]


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=8), data=st.data())
def test_it_is_the_state_that_was_saved_then_whatever_the_sizes_of_steps(sizes: list[int], data: st.DataObject) -> None:
    with example_loader(batch_size=2) as loader:
        states, batches = [loader.state_dict()], []
        for size in sizes:
            batches.append(ids(loader.get_batch(size)))
            states.append(loader.state_dict())
        step = data.draw(st.integers(0, len(sizes)))
        found, saved = loader.state_dict(before=step), states[step]
        if step == 0:  # nothing has been cut into steps yet, by whatever size
            del found["phases"][0]["global_rows"], saved["phases"][0]["global_rows"]
            found["phases"][0]["global_rows"] = saved["phases"][0]["global_rows"] = 2
        assert found == saved
        loader.load_state_dict(found)
        assert [ids(loader.get_batch(size)) for size in sizes[step:]] == batches[step:]


def test_what_was_not_delivered_or_is_no_batch_is_refused() -> None:
    with example_loader(batch_size=2) as loader:
        batch = loader.next()
        for wrong in ({"after": 1}, {"after": -1}, {"before": 2}, {"before": -1}, {"after": batch, "before": batch}):
            with pytest.raises(LoaderError):
                loader.state_dict(**wrong)
        things: list[Any] = [batch.input_ids, "0", 1.5, True, {}]
        for thing in things:
            with pytest.raises(LoaderError, match="does not say which step"):
                loader.state_dict(after=thing)


def test_batches_of_several_steps_stand_for_the_last_or_are_refused() -> None:
    with example_loader(batch_size=2) as loader:
        one, other = loader.next(), loader.next()
        assert loader.state_dict(after=TrainingBatch.merge([one, other]))["step"] == 2
        assert loader.state_dict(after=[other, other])["step"] == 2  # micro-batches of one step
        with pytest.raises(LoaderError, match="does not say which step"):
            loader.state_dict(after=[one, other])


def test_a_batch_whose_labels_were_taken_out_can_be_moved_copied_and_sent() -> None:
    batch = example_loader(batch_size=2, framework="torch").next()
    labels = batch.pop("labels")
    assert labels.shape == (2, 4)
    for other in (batch.to("cpu"), batch.to("numpy"), batch.copy(), pickle.loads(pickle.dumps(batch))):
        assert list(other) == ["input_ids", "attention_mask"]
        assert other.metadata["step"] == 0
        merged = TrainingBatch.merge(other.split(2))
        assert list(merged) == ["input_ids", "attention_mask"]
        assert merged.input_ids.tolist() == batch.input_ids.tolist()
