"""How many batches an epoch has, for every loader: one number, whatever was taken meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import examples
from loaders.kinds import BOUNDED, KINDS
from millstream import UnknownLength

taken = st.lists(st.integers(1, 5), min_size=1, max_size=3)


def steps_of_an_epoch(kind: str, **given: Any) -> int:
    """Count them, with nothing but steps of the loader's own size."""
    with BOUNDED[kind](**given) as loader:
        return sum(1 for _ in loader.get_iterator())


@pytest.mark.parametrize("kind", BOUNDED)
@given(batch_size=st.integers(1, 5), sizes=taken, drop_last=st.booleans())
@examples(8)
def test_an_epoch_has_as_many_batches_as_its_own_size_gives_whatever_was_taken(
    kind: str, batch_size: int, sizes: list[int], drop_last: bool
) -> None:
    if drop_last:  # every kind has a step of two
        batch_size, sizes = 1 + batch_size % 2, [1 + size % 2 for size in sizes]
    given = {"batch_size": batch_size, "drop_last": drop_last}
    expected = steps_of_an_epoch(kind, **given)
    with BOUNDED[kind](**given) as loader:
        if kind == "stream":  # knows its length once it was read
            for _ in loader.get_iterator():
                pass
            loader.reset()
        assert loader.get_num_batches() == len(loader) == expected
        epoch = loader.epoch
        for size in sizes:
            dropped = loader.losses.get("dropped_rows")
            loader.get_batch(size)
            if loader.epoch != epoch:
                break
            assert loader.get_num_batches() == len(loader) == expected
            assert loader.losses.get("dropped_rows") == dropped


def test_a_feed_has_no_length_whatever_was_taken() -> None:
    with KINDS["rollout feed"](batch_size=2) as loader:
        for size in (1, 3, 2):
            with pytest.raises(UnknownLength):
                loader.get_num_batches()
            loader.get_batch(size)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kind", [kind for kind in BOUNDED if kind != "self-play"])
def test_a_state_of_odd_batches_does_not_change_the_number_on_any_rank(kind: str, ranks: int) -> None:
    given = {"batch_size": 3, "rank": ranks - 1, "world_size": ranks}
    expected = steps_of_an_epoch(kind, **given)
    with BOUNDED[kind](**given) as loader:
        if kind == "stream":  # knows its length once it was read, and so do its states
            list(loader)
        assert loader.get_num_batches() == expected
        loader.get_batch(2)
        state = loader.state_dict()
    with BOUNDED[kind](**given) as loader:
        loader.load_state_dict(state)
        assert loader.get_num_batches() == expected
        loader.get_batch(1)
        assert loader.get_num_batches() == expected
