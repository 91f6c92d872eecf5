"""A reservoir loses nothing, doubles nothing, and does what its counter and seed say."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import LoaderError
from millstream.games import FRAME, ORIGIN, SLOT_BYTES, FrameBlock, Reservoir

MASK = (1 << 64) - 1
PINNED = [542, 345, 761, 811, 235, 72]


def block(first: int, count: int) -> FrameBlock:
    """Frames that are known by their number; some have no legal move, some all 1858."""
    rng = np.random.default_rng(first)
    sizes = rng.choice([0, 20, 63, 64, 65, 218, 1858], count, p=[0.05, 0.6, 0.1, 0.1, 0.1, 0.04, 0.01])
    fields, origins = np.zeros(count, FRAME), np.zeros(count, ORIGIN)
    fields["visits"] = origins["chunk"] = np.arange(first, first + count)
    moves = [np.sort(rng.choice(1858, size, replace=False)) for size in sizes]
    return FrameBlock(
        fields,
        np.cumsum(sizes, dtype=np.uint32),
        np.concatenate([*moves, []]).astype(np.uint16),
        rng.random(sizes.sum()).astype(np.float32),
        origins,
    )


def mixed(word: int) -> int:
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ word >> 27) * 0x94D049BB133111EB & MASK
    return word ^ word >> 31


def drawn(seed: int, counter: int, limit: int) -> int:
    """The slot that a reservoir takes, said again."""
    word = (counter * 0xD1342543DE82EF95 + 0x632BE59BD9B4E019) & MASK
    return mixed(mixed((seed + 0x9E3779B97F4A7C15) & MASK) ^ word) * limit >> 64


class Model:
    """A reservoir of frame numbers in a list."""

    def __init__(self, capacity: int, seed: int) -> None:
        self.capacity, self.seed, self.counter = capacity, seed, 0
        self.slots: list[int] = []

    def exchange(self, numbers: range) -> list[int]:
        out = []
        for number in numbers:
            if len(self.slots) < self.capacity:
                self.slots.append(number)
            else:
                slot = drawn(self.seed, self.counter, self.capacity)
                out.append(self.slots[slot])
                self.slots[slot] = number
            self.counter += 1
        return out

    def drain(self, most: int) -> list[int]:
        out = []
        for _ in range(min(most, len(self.slots))):
            slot = drawn(self.seed, self.counter, len(self.slots))
            out.append(self.slots[slot])
            self.slots[slot] = self.slots[-1]
            self.slots.pop()
            self.counter += 1
        return out


steps = st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=12)


@given(st.integers(1, 30), st.integers(0, MASK), steps)
def test_what_leaves_is_what_a_list_would_give_whole_and_unchanged(
    capacity: int, seed: int, steps: list[tuple[bool, int]]
) -> None:
    reservoir, model, number = Reservoir(capacity, seed), Model(capacity, seed), 0
    given_frames = [FrameBlock.empty()]
    for takes, count in steps:
        if takes:
            given_frames.append(block(number, count))
            left, wanted = reservoir.exchange(given_frames[-1]), model.exchange(range(number, number + count))
            number += count
        else:
            left, wanted = reservoir.drain(count), model.drain(count)
        whole = FrameBlock.concat(given_frames).select(wanted)
        assert left.frames.fields.tobytes() == whole.fields.tobytes()
        assert left.frames.origins.tobytes() == whole.origins.tobytes()
        assert left.frames.policy().tobytes() == whole.policy().tobytes()
        assert np.array_equal(left.frames.moves, whole.moves)
        assert reservoir.origins()["chunk"].tolist() == model.slots
        assert (len(reservoir), reservoir.counter) == (len(model.slots), model.counter)


@given(st.integers(1, 20), st.lists(st.integers(0, 30), max_size=6))
def test_how_frames_are_cut_into_blocks_changes_nothing(capacity: int, cuts: list[int]) -> None:
    whole, pieces = Reservoir(capacity, 3), Reservoir(capacity, 3)
    everything = block(0, sum(cuts))
    expected = whole.exchange(everything).frames
    starts = np.cumsum([0, *cuts])
    found = [pieces.exchange(everything.select(np.arange(a, b))).frames for a, b in pairwise(starts)]
    assert FrameBlock.concat(found).fields.tobytes() == expected.fields.tobytes()
    assert pieces.drain(99).frames.fields.tobytes() == whole.drain(99).frames.fields.tobytes()


def test_slots_can_be_followed_from_what_leaves() -> None:
    """Somebody who never sees a frame knows where each one is from."""
    reservoir = Reservoir(16, 5)
    reservoir.exchange(block(0, 16))
    slots = list(reservoir.origins())
    for first in range(16, 100, 7):
        coming = block(first, 7)
        for slot, origin in zip(reservoir.exchange(coming).slots, coming.origins, strict=True):
            slots[slot] = origin
        assert slots == list(reservoir.origins())
    while len(reservoir):
        for slot in reservoir.drain(3).slots:
            slots[slot] = slots[-1]
            slots.pop()
        assert slots == list(reservoir.origins())


@pytest.mark.parametrize("drained", [0, 5])
def test_slots_and_counter_are_the_whole_state(drained: int) -> None:
    first = Reservoir(16, 5)
    everything = block(0, 50)
    first.exchange(everything)
    first.drain(drained)
    second = Reservoir(16, 5)
    second.exchange(block(7, 33))
    second.restore(everything.select(first.origins()["chunk"]), first.counter)
    assert second.nbytes == first.nbytes
    for each in (block(50, 20), block(70, 3)):
        assert second.exchange(each).frames.fields.tobytes() == first.exchange(each).frames.fields.tobytes()
    assert second.drain(16).frames.policy().tobytes() == first.drain(16).frames.policy().tobytes()


def test_slots_that_are_drawn_are_the_ones_that_were_pinned() -> None:
    reservoir = Reservoir(1000, 42)
    reservoir.exchange(block(0, 1000))
    assert reservoir.exchange(block(1000, 6)).slots.tolist() == PINNED
    assert [drawn(42, counter, 1000) for counter in range(1000, 1006)] == PINNED


def test_every_slot_is_drawn_about_as_often() -> None:
    reservoir, frames = Reservoir(8, 1), block(0, 8)
    reservoir.exchange(frames)
    counts = np.bincount(np.concatenate([reservoir.exchange(frames).slots for _ in range(1000)]), minlength=8)
    assert counts.min() > 850
    assert counts.max() < 1150


def test_bytes_are_those_of_the_slots_and_of_what_does_not_fit_into_them() -> None:
    reservoir = Reservoir(100, 0)
    assert reservoir.nbytes == 100 * 1372
    reservoir.exchange(block(0, 100))
    assert reservoir.nbytes > 100 * 1372
    reservoir.drain(100)
    assert reservoir.nbytes == 100 * 1372


def test_threads_may_share_one() -> None:
    reservoir = Reservoir(50, 0)
    blocks = [block(first, 25) for first in range(0, 1000, 25)]
    with ThreadPoolExecutor(4) as pool:
        left = [each.frames.fields["visits"] for each in pool.map(reservoir.exchange, blocks)]
    left.append(reservoir.drain(50).frames.fields["visits"])
    assert sorted(np.concatenate(left).tolist()) == list(range(1000))


def test_impossible_reservoirs_are_refused() -> None:
    for capacity in (0, -1, 1 << 32):
        with pytest.raises(LoaderError):
            Reservoir(capacity, 0)
    with pytest.raises(LoaderError):
        Reservoir(3, 0).restore(block(0, 4), 0)


def test_a_slot_takes_the_bytes_that_are_said() -> None:
    assert Reservoir(100, seed=1).nbytes == 100 * SLOT_BYTES
