"""Which sources enter, and when: the same journal gives the same window, and what cannot happen again is noticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import StateError, StoreError
from millstream.selfplay import Event, EventSource, LivePolicy, Window, apply, sort_key
from millstream.selfplay.admission import (
    LOOK_EVERY,
    FollowerPolicy,
    LeaderPolicy,
    ReplayPolicy,
    ResumedPolicy,
    SnapshotPolicy,
)
from millstream.selfplay.events import advance, unpacked


def window_of(*names: str, size: int = 3, num_chunks: int | None = None) -> Window:
    window = Window(num_chunks, 1)
    for name in names:
        window.enter(name, size)
    return window


def drawn(window: Window, draws: int) -> Window:
    while window.draws < draws:
        window.draw()
    return window


def files(names: str, size: int = 3, stamp: str = "") -> list[EventSource]:
    """Sources whose names have one letter."""
    return [EventSource(name, size, stamp) for name in names]


def seen(names: str) -> set[int]:
    return {source.mark for source in files(names)}


def brief(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.kind, event.name) for event in events]


def test_at_first_the_newest_enter_and_what_is_older_stays_out() -> None:
    found = LivePolicy().first(Window(5, 1), files("abcd"))
    assert brief(found) == [("floor", "c"), ("enter", "c"), ("enter", "d")]
    assert unpacked(found[0].stamp) == seen("ab")


def test_what_comes_while_a_run_is_down_enters_by_whichever_name_as_it_would_have_while_it_ran() -> None:
    left_out, late = seen("bc"), files("a", stamp="came late")
    again = LivePolicy(seen("de") | left_out).first(Window(5, 1), [*files("bcdef"), *late])
    assert brief(again) == [("enter", "a"), ("enter", "f")]
    running = LivePolicy(seen("de") | left_out).later(window_of("d", "e"), [*late, *files("f")], [])
    assert brief(running) == brief(again)


@given(st.integers(0, 10**30), st.integers(0, 10**30))
def test_numbers_in_names_compare_as_numbers_however_many_digits_they_have(first: int, second: int) -> None:
    plain, padded = (sorted((first, second), key=lambda n: sort_key(f"a/training.{n:{by}}.gz")) for by in ("", "031d"))
    assert plain == padded == sorted((first, second))


@given(st.text("ab.-_", min_size=1), st.text("ab.-_", min_size=1), st.integers(0, 99), st.integers(0, 99))
def test_names_with_numbers_of_one_width_or_none_compare_as_text(one: str, two: str, first: int, second: int) -> None:
    for names in ([one, two], [f"{one}{first:02d}", f"{two}{second:02d}"], [f"{one}{first:02d}", f"{one}{two}"]):
        assert sorted(names, key=sort_key) == sorted(names)


def test_the_newest_have_the_largest_numbers() -> None:
    found = LivePolicy().first(Window(2, 1), [EventSource(f"training.{number}.gz", 1) for number in (40, 8, 9)])
    assert brief(found) == [("floor", "training.9.gz"), ("enter", "training.9.gz"), ("enter", "training.40.gz")]


def test_a_source_that_was_replaced_leaves_and_enters_anew() -> None:
    for other in (files("a", size=5, stamp="another"), files("a", stamp="another")):
        with_b = other + files("b")
        assert brief(LivePolicy(seen("ab")).first(window_of("a", "b"), with_b)) == [("gone", "a"), ("enter", "a")]
        assert brief(LivePolicy(seen("ab")).first(window_of("b"), with_b)) == [("enter", "a")]  # it had left
        assert brief(LivePolicy(seen("ab"), leave=False).first(window_of("a", "b"), with_b)) == []


@pytest.mark.parametrize("there", ["abc", "ac", "c"])
def test_what_happened_behind_a_state_happens_again_whatever_is_there_now_and_news_come_then(there: str) -> None:
    window, behind = window_of("a"), [Event(2, "enter", "b", 3), Event(4, "gone", "a")]
    entrance = ResumedPolicy(behind, LivePolicy(seen("b")))
    assert entrance.first(window, files(there)) == []
    assert entrance.may_need("b")
    assert entrance.later(drawn(window, 1), files("d"), ["c"]) == []
    assert entrance.later(drawn(window, 2), [], []) == behind[:1]
    assert not entrance.may_need("b")
    apply(window, [behind[0]])
    assert entrance.later(drawn(window, 4), [], []) == behind[1:]
    apply(window, [behind[1]])
    b_is_gone = [] if "b" in there else [("gone", "b")]
    a_is_back = [("enter", "a")] if "a" in there else []
    assert brief(entrance.later(drawn(window, 5), [], [])) == [*b_is_gone, *a_is_back, ("enter", "d")]
    assert brief(entrance.later(window, files("e"), ["d"])) == [("gone", "d"), ("enter", "e")]


def test_a_replay_wants_the_same_files() -> None:
    events = [Event(0, "enter", "a", 3), Event(4, "enter", "b", 3)]
    entrance = ReplayPolicy(events)
    window = Window(None, 1)
    assert entrance.first(window, files("a")) == events[:1]
    assert entrance.may_need("b")
    window.enter("a", 3)
    with pytest.raises(StateError, match="b is not there"):
        entrance.later(drawn(window, 4), [], [])


def test_news_waits_for_the_draw_that_was_promised_unless_there_is_no_game() -> None:
    window, entrance = window_of(), LeaderPolicy(LivePolicy())
    assert entrance.first(window, []) == [Event(0, "until", "", LOOK_EVERY)]
    assert entrance.later(window, files("ab", 2), []) == []
    found = entrance.later(window, [], ["b"], starved=True)
    assert brief(found) == [("gone", "b"), ("enter", "a"), ("until", "")]
    window.enter("a", 2)
    assert entrance.later(drawn(window, LOOK_EVERY - 1), files("c", 2), []) == []
    assert brief(entrance.later(drawn(window, LOOK_EVERY), [], [])) == [("enter", "c"), ("until", "")]


def test_a_promise_holds_when_the_run_is_gone_on_with() -> None:
    window = drawn(window_of("a", "b"), 10)
    entrance = ResumedPolicy([], LeaderPolicy(LivePolicy(seen("ab"))), promised=20)
    assert entrance.first(window, files("ac")) == []
    assert entrance.later(drawn(window, 19), [], []) == []
    assert brief(entrance.later(drawn(window, 20), [], [])) == [("gone", "b"), ("enter", "c"), ("until", "")]


def test_who_is_led_does_what_the_leader_did_at_the_same_draws() -> None:
    said: list[Event] = []
    leader, window = LeaderPolicy(LivePolicy()), Window(8, 1)
    led, behind = FollowerPolicy(lambda: said.pop(0) if said else None, lambda: True), Window(8, 1)
    kept: list[Event] = []

    def do(events: list[Event]) -> None:
        said.extend(events)
        kept.extend(events)
        for event in events:
            apply(window, [event])

    do(leader.first(window, files("ab", 5)))
    for draw in range(5 * LOOK_EVERY):
        do(leader.later(window, [EventSource(f"c{draw}", 5)] if draw % 50 == 7 else [], []))
        window.draw()
    for event in led.first(behind, []):
        apply(behind, [event])
    while behind.draws < window.draws:
        for event in led.later(behind, [], []):
            apply(behind, [event])
        behind.draw()
    assert behind.state()[0] == window.state()[0]
    assert brief(kept).count(("until", "")) >= 5


@pytest.mark.parametrize("shown", range(5))
def test_who_is_led_takes_in_all_that_the_leader_did_where_there_was_no_game(shown: int) -> None:
    leader, window = LeaderPolicy(LivePolicy()), Window(8, 1)
    said = leader.first(window, []) + leader.later(window, files("ab", 5), [], starved=True)
    lines = iter([*said[:shown], None, *said[shown:]])  # the last ones show a little later
    led, entered = FollowerPolicy(lambda: next(lines, None), lambda: True), Window(8, 1)
    events = led.first(entered, [])
    if len(events) == 1:
        events += led.later(entered, [], [], starved=True)
    assert events == said


def test_a_pass_has_what_was_there_when_it_began() -> None:
    entrance, window = SnapshotPolicy(LivePolicy()), Window(3, 1)
    assert brief(entrance.first(window, files("ab"))) == [("floor", "b"), ("enter", "b"), ("until", "")]
    assert entrance.later(window, files("c"), ["b"]) == []


def test_a_draw_that_finds_no_game_but_passes_over_old_ones_is_made_again_too() -> None:
    def told() -> list[Event]:
        return [Event(0, "enter", "a", 8), Event(0, "enter", "b", 8), Event(0, "gone", "b")]

    first, second = Window(8, 1), Window(8, 1)
    for event in told():
        apply(first, [event])
    assert first.draw() is None
    assert first.draws == 8
    advance(second, 9, [*told(), Event(first.draws, "enter", "c", 2)])
    apply(first, [Event(first.draws, "enter", "c", 2)])
    first.draw()
    assert first.state()[0] == second.state()[0]
    with pytest.raises(StoreError, match="never made"):
        advance(Window(8, 1), 1, [])
