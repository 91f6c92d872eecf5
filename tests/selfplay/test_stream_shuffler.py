"""Every number of a moving range is drawn once, and which one comes depends on nothing but what happened before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import OrderError
from millstream.selfplay.chunk_feed import FileOrder, StreamShuffler, stream_shuffler

MOVES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 6), st.integers(0, 8)), max_size=12)


def moved(shuffler: StreamShuffler, move: tuple[int, int, int]) -> list[int]:
    """Both bounds go on, and some numbers are drawn."""
    more, less, draws = move
    shuffler.extend(shuffler.upper + more)
    shuffler.advance(min(shuffler.lower + less, shuffler.upper))
    return [number for number in (shuffler.draw() for _ in range(draws)) if number is not None]


@given(MOVES, st.integers(0, 2**63))
def test_each_number_in_the_range_comes_once(moves: list[tuple[int, int, int]], seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_shuffler, "STALE", 2)
        shuffler, drawn = StreamShuffler(seed), list[int]()
        for move in moves:
            new = moved(shuffler, move)
            assert all(shuffler.lower <= number < shuffler.upper for number in new)
            drawn += new
        drawn += iter(shuffler.draw, None)
    assert len(set(drawn)) == len(drawn)
    assert set(range(shuffler.lower, shuffler.upper)) <= set(drawn)


@given(MOVES, MOVES)
def test_one_that_stands_where_another_stood_goes_on_like_it(
    before: list[tuple[int, int, int]], after: list[tuple[int, int, int]]
) -> None:
    first, second = StreamShuffler(3), StreamShuffler(3)
    for move in before:
        moved(first, move)
    second.restore(first.unseen(), first.lower, first.upper, first.draws, first.advanced)
    assert [moved(first, move) for move in after] == [moved(second, move) for move in after]


def test_a_pass_begins_again_with_all_of_the_range_in_another_order() -> None:
    shuffler = StreamShuffler(1)
    shuffler.extend(100)
    first = list(iter(shuffler.draw, None))
    shuffler.reset()
    second = list(iter(shuffler.draw, None))
    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second


def test_whoever_looks_at_the_bounds_meanwhile_never_sees_them_go_back() -> None:
    class Seen(StreamShuffler):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name in ("lower", "upper"):
                seen.append((name, value))

    seen = list[tuple[str, object]]()
    shuffler = Seen(1)
    seen.clear()
    shuffler.extend(10)
    shuffler.advance(3)
    shuffler.reset()
    assert seen == [("upper", 10), ("lower", 3)]
    assert len(shuffler) == 7


def test_every_place_is_as_likely_as_any_other() -> None:
    firsts = []
    for seed in range(4000):
        shuffler = StreamShuffler(seed)
        shuffler.extend(8)
        firsts.append(shuffler.draw() or 0)
    counts = np.bincount(firsts)
    assert ((counts - 500) ** 2 / 500).sum() < 24.3  # chi squared, 7 degrees of freedom, p = 0.001


def test_the_order_of_this_version_stays() -> None:
    shuffler = StreamShuffler(2026)
    shuffler.extend(1000)
    assert [shuffler.draw() for _ in range(6)] == [878, 957, 129, 797, 429, 490]


def test_bounds_do_not_go_back() -> None:
    shuffler = StreamShuffler()
    shuffler.extend(5)
    with pytest.raises(OrderError, match="goes back from 5 to 4"):
        shuffler.extend(4)


@given(MOVES)
def test_file_order_draws_what_a_shuffler_may_lowest_first(moves: list[tuple[int, int, int]]) -> None:
    ordered, unseen = FileOrder(), list[int]()
    for move in moves:
        upper = ordered.upper
        drawn = moved(ordered, move)
        unseen += range(upper, ordered.upper)
        unseen = [number for number in unseen if number >= ordered.lower]
        assert drawn == unseen[: len(drawn)]
        del unseen[: len(drawn)]
    again = FileOrder()
    again.restore(ordered.unseen(), ordered.lower, ordered.upper, ordered.draws, ordered.advanced)
    assert list(iter(ordered.draw, None)) == list(iter(again.draw, None)) == unseen
