"""The window gives each of its games once in a pass, and the same ones to whoever does the same to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import LoaderError, StateError
from millstream.selfplay import Acceptance, Window, WindowEntry
from millstream.selfplay.chunk_feed import ChunkSet
from millstream.selfplay.window import Drawn
from millstream.stages import Queue

SIZES = st.one_of(st.none(), st.integers(1, 12))
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.integers(0, 5)),
        st.just(("draw", 1)),
        st.tuples(st.just("remove"), st.integers(0, 8)),
    ),
    max_size=40,
)


def weight(entry: WindowEntry, index: int) -> float:
    return float((entry.first + 3 * index) % 4)


def play(window: Window, moves: list[tuple[str, int]], first: int = 0) -> list[Drawn]:
    drawn = []
    for number, (move, value) in enumerate(moves, first):
        if move == "enter":
            window.enter(f"{number}.tar", value)
        elif move == "remove":
            window.remove({f"{value}.tar"})
        else:
            drawn += [game for game in (window.draw() for _ in range(value)) if game is not None]
    return drawn


@given(MOVES, st.integers(1, 12))
def test_only_the_newest_come_and_none_twice_in_a_pass(moves: list[tuple[str, int]], size: int) -> None:
    window, seen, passes = Window(size, 3), set[int](), 0
    for number, move in enumerate(moves):
        for game in play(window, [move], number):
            if window.passes != passes:
                seen, passes = set(), window.passes
            assert game.entry in window.entries
            assert window.total - size <= game.chunk < window.total
            assert game.entry.first <= game.chunk < game.entry.stop
            assert game.chunk not in seen
            seen.add(game.chunk)


@given(MOVES, MOVES, SIZES, st.booleans())
def test_a_window_that_stands_where_another_stood_goes_on_like_it(
    before: list[tuple[str, int]], after: list[tuple[str, int]], size: int | None, weighed: bool
) -> None:
    acceptance = Acceptance(weight, gamma=0.5) if weighed else None
    first, second = (Window(size, 5, acceptance=acceptance) for _ in range(2))
    play(first, before)
    second.load(*first.state())
    assert play(first, after, 100) == play(second, after, 100)


def by_place(entry: WindowEntry) -> tuple[int, str]:
    return entry.first, entry.name  # sources without a game begin where the next one does


@given(MOVES, MOVES, st.sets(st.integers(0, 40)), SIZES)
def test_files_that_are_gone_together_leave_as_one_by_one(
    before: list[tuple[str, int]], after: list[tuple[str, int]], gone: set[int], size: int | None
) -> None:
    together, one_by_one = Window(size, 5), Window(size, 5)
    for window in (together, one_by_one):
        play(window, before)
    left = together.remove({f"{number}.tar" for number in gone})
    apart = [entry for number in sorted(gone) for entry in one_by_one.remove({f"{number}.tar"})]
    assert sorted(left, key=by_place) == sorted(apart, key=by_place)
    assert play(together, after, 100) == play(one_by_one, after, 100)


def test_uses_are_counted_and_a_pass_gives_all_games() -> None:
    window = Window(None, 1)
    window.enter("a", 5)
    drawn = play(window, [("draw", 15)])
    assert [sorted(game.chunk for game in drawn[start : start + 5]) for start in (0, 5, 10)] == [list(range(5))] * 3
    assert [game.use for game in drawn] == [0] * 5 + [1] * 5 + [2] * 5
    assert window.passes == 2


def test_without_an_end_a_window_begins_again_and_with_one_it_ends() -> None:
    window = Window(None, 1, endless=False)
    window.enter("a", 2)
    assert [window.draw() is None for _ in range(3)] == [False, False, True]
    window.begin_pass()
    drawn = window.draw()
    assert drawn is not None
    assert drawn.use == 1


def test_heavy_games_are_taken_more_often() -> None:
    weights = np.array([1.0, 2.0, 4.0, 0.0])
    window = Window(None, 9, acceptance=Acceptance(lambda entry, index: float(weights[index])))
    window.enter("a", 4)
    taken = np.bincount([game.chunk for game in play(window, [("draw", 7000)])], minlength=4)
    assert taken / taken[2] == pytest.approx([0.25, 0.5, 1, 0], abs=0.03)


def test_a_million_chunks_cost_few_bytes_each() -> None:
    window = Window(1_000_000, 0)
    for number in range(1000):
        window.enter(f"training-{number:06d}.tar", 1000)
    assert len(window) == 1_000_000
    assert window.nbytes <= 20 * len(window)


def test_many_small_sources_come_and_go_without_growing() -> None:
    window = Window(2000, 0)
    for number in range(20_000):
        left = window.enter(f"{number}.gz", 1)
        assert [entry.name for entry in left] == ([] if number < 2000 else [f"{number - 2000}.gz"])
    assert window.nbytes < 100_000
    assert {game.use for game in play(window, [("draw", 2000)])} == {0}


@pytest.mark.parametrize("stays", [0, 1])
def test_a_window_of_all_games_holds_no_more_than_those_whose_files_are_there(stays: int) -> None:
    window = Window(None, 0)
    for number in range(20_000):
        window.enter(f"{number}.gz", 1)
        if number >= 50 + stays:
            window.remove({f"{number - 50}.gz"})
    facts, arrays = window.state()
    assert len(window) == len(arrays["uses"]) == 50 + stays
    assert window.nbytes < 50_000
    assert len(facts["holes"]) <= stays
    window.begin_pass()
    drawn = play(window, [("draw", 2 * len(window))])
    assert len({game.chunk for game in drawn}) == len(window)
    assert [drawn[0].use, drawn[-1].use] == [0, 1]


@pytest.mark.parametrize("damage", [{"range": [0, 9, 0, 0]}, {"entries": [1]}, {"holes": ["x"]}])
def test_a_damaged_state_is_refused(damage: dict[str, Any]) -> None:
    window = Window(5, 0)
    window.enter("a", 3)
    facts, arrays = window.state()
    with pytest.raises(StateError, match="window of the state"):
        Window(5, 0).load({**facts, **damage}, arrays)


def test_an_empty_window_gives_nothing() -> None:
    assert Window(5, 0).draw() is None
    with pytest.raises(LoaderError, match="num_chunks=0"):
        Window(0, 0)


@pytest.mark.parametrize("wrong", ["a", 2.5, True, 0])
def test_a_window_that_counts_nothing_is_refused_with_a_hint(wrong: Any) -> None:
    with pytest.raises(LoaderError, match=f"num_chunks={wrong!r}: a window has 1 chunk or more") as refused:
        ChunkSet(Queue(), num_chunks=wrong)
    assert refused.value.hint == "pass a whole number; None takes all"
