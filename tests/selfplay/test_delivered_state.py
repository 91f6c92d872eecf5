"""The mirror stands where the reservoir stands, without any frame, and holds no more than the window and the slots."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import StateError
from millstream.games import ORIGIN
from millstream.selfplay import DeliveredState, Event, Window
from millstream.selfplay.chunk_feed import FrameShuffler, GamePlace, ReservoirMoves, joined
from millstream.stages import Queue
from selfplay.games import a_game

NOTHING = np.zeros(0, ORIGIN)


def origins(*chunks: int) -> np.ndarray:
    found = np.zeros(len(chunks), ORIGIN)
    found["chunk"] = chunks
    return found


def entered(chunk: int, draw: int) -> ReservoirMoves:
    """A game of one position goes into a free slot."""
    return ReservoirMoves(origins(chunk), np.zeros(0, np.uint32), NOTHING, GamePlace(draw, chunk, 0, "a", chunk, 1, 1))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 30), st.booleans())
def test_its_slots_are_those_of_the_reservoir(plies: list[int], frames: int, drains: bool) -> None:
    shuffler, mirror = FrameShuffler(Queue(), frames=frames, seed=3), DeliveredState(Window(None, 0), frames)
    for chunk, count in enumerate(plies):
        mirror.follow([piece.moves for piece in shuffler.process(a_game(chunk, plies=count))])
    left = list(shuffler.finish())
    if drains:
        mirror.follow([piece.moves for piece in left])
        assert not len(mirror.origins)
    else:
        rest = np.concatenate([NOTHING, *(piece.frames.origins for piece in left)])
        untold = np.concatenate([NOTHING, *(piece.moves.filled for piece in left)])
        assert sorted(rest.tolist()) == sorted([*mirror.origins.tolist(), *untold.tolist()])


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 30), st.integers(1, 8))
def test_moves_that_are_joined_do_the_same(plies: list[int], frames: int, together: int) -> None:
    shuffler, each, whole = (
        FrameShuffler(Queue(), frames=frames, seed=3),
        *(DeliveredState(Window(None, 0), frames) for _ in "ab"),
    )
    pieces = [piece for chunk, count in enumerate(plies) for piece in shuffler.process(a_game(chunk, plies=count))]
    moves = [part for piece in [*pieces, *shuffler.finish()] for part in piece.moves.split(len(piece) // 2)]
    for first in range(0, len(moves), together):
        some = moves[first : first + together]
        each.follow(some)
        whole.follow(joined(some))
        assert len(joined(some)) <= 2
        assert (each.origins.tolist(), each.counter, each.place) == (whole.origins.tolist(), whole.counter, whole.place)
        copy = whole.copy()
        assert copy.state()[0] == whole.state()[0]
        whole = copy  # it goes on as the other one would


def test_sources_are_known_as_long_as_the_window_the_slots_or_the_place_need_them() -> None:
    mirror = DeliveredState(Window(2, 0), 4)
    mirror.note(
        [Event(0, "floor", "a"), Event(0, "enter", "a", 2), Event(2, "enter", "b", 2), Event(3, "until", "", 9)]
    )
    mirror.follow([entered(0, 1)])
    assert mirror.catch_up() == []
    mirror.follow([entered(2, 3)])
    assert mirror.catch_up() == []
    assert [entry.name for entry in mirror.entries] == ["a", "b"]  # a's frame is in a slot
    left = ReservoirMoves(NOTHING, np.array([0], np.uint32), origins(3), GamePlace(4, 3, 0, "b", 1, 1, 1))
    mirror.follow([left])
    assert [entry.name for entry in mirror.catch_up()] == ["a"]
    assert mirror.origins["chunk"].tolist() == [3, 2]
    assert mirror.entry == mirror.window.entries[0]


def test_a_state_of_a_larger_reservoir_is_refused() -> None:
    mirror = DeliveredState(Window(2, 0), 4)
    mirror.note([Event(0, "enter", "a", 2)])
    mirror.follow([entered(0, 1), entered(1, 2)])
    state = mirror.state()
    again = DeliveredState(Window(2, 0), 4)
    again.load(*state)
    assert again.state()[0] == state[0]
    with pytest.raises(StateError, match="shuffle_frames"):
        DeliveredState(Window(2, 0), 1).load(*state)


def test_it_does_not_grow_with_a_run() -> None:
    mirror, window = DeliveredState(Window(8, 0), 4), Window(8, 0)
    for number in range(500):
        event = Event(window.draws, "enter", f"{number}.tar", 4)
        window.enter(event.name, event.chunks)
        mirror.note([event, Event(window.draws, "until", "", 9)])
        game = window.draw()
        assert game is not None
        full = number >= 4
        slots = np.array([number % 4] if full else [], np.uint32)
        here, none = origins(game.chunk), NOTHING
        place = GamePlace(game.number, game.chunk, game.use, game.entry.name, game.index, 1, 1)
        mirror.follow([ReservoirMoves(none if full else here, slots, here if full else none, place)])
        mirror.catch_up()
    assert len(mirror._events) <= 1
    assert len(mirror.entries) <= 2 + 4 + 1
