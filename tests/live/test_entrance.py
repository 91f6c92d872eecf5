"""Which sources enter, and when: the same journal gives the same window, and what cannot happen again is noticed."""

from __future__ import annotations

import pytest

from millstream.errors import StateError, StoreError
from millstream.live.entrance import AsItWas, AsTheyCome, AsWritten
from millstream.live.events import Event, advance, apply
from millstream.live.led import LOOK_EVERY, AsLed, Leads
from millstream.live.window import Window


def window_of(*names: str, size: int = 3, num_chunks: int | None = None) -> Window:
    window = Window(num_chunks, 1)
    for name in names:
        window.enter(name, size)
    return window


def drawn(window: Window, draws: int) -> Window:
    while window.draws < draws:
        window.draw()
    return window


def brief(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.kind, event.name) for event in events]


def test_at_first_the_newest_enter_and_what_is_older_stays_out() -> None:
    sizes = dict.fromkeys("abcd", 3)
    found = AsTheyCome().first(Window(5, 1), sizes)
    assert brief(found) == [("floor", "c"), ("enter", "c"), ("enter", "d")]
    again = AsTheyCome(["c", "d"], "c").first(Window(5, 1), {**sizes, "e": 3})
    assert brief(again) == [("enter", "e")]


def test_a_source_that_was_replaced_leaves_and_enters_anew() -> None:
    found = AsTheyCome(["a", "b"]).first(window_of("a", "b"), {"a": 5, "b": 3})
    assert brief(found) == [("gone", "a"), ("enter", "a")]


def test_what_happened_behind_a_state_happens_again_before_anything_new() -> None:
    window = window_of("a")
    entrance = AsItWas([Event(2, "enter", "b", 3)], AsTheyCome(["a"]))
    assert entrance.first(window, {"a": 3, "b": 3, "c": 3}) == []
    assert entrance.may_need("b")
    assert entrance.may_need("c")
    assert entrance.later(drawn(window, 1), [("d", 3)], ["c"]) == []
    assert not entrance.may_need("c")
    assert brief(entrance.later(drawn(window, 2), [], [])) == [("enter", "b"), ("gone", "c"), ("enter", "d")]


@pytest.mark.parametrize("first", [Event(1, "enter", "b", 3), Event(1, "enter", "c", 9), Event(1, "gone", "a")])
def test_from_what_cannot_happen_again_on_nothing_does(first: Event) -> None:
    differs: list[bool] = []
    entrance = AsItWas([first, Event(2, "enter", "c", 3)], AsTheyCome(["a"]), 0, lambda: differs.append(True))
    assert brief(entrance.first(window_of("a"), {"a": 3, "c": 3})) == [("enter", "c")]
    assert differs


def test_without_a_game_to_draw_what_happened_at_later_draws_is_not_waited_for() -> None:
    window = Window(None, 1)
    entrance = AsItWas([Event(9, "enter", "b", 3)], AsTheyCome(["a"]))
    entrance.first(window, {"b": 3, "c": 3})
    assert entrance.later(window, [], [], starved=True) == []
    assert entrance.later(window, [], []) == []
    assert brief(entrance.later(window, [], [], starved=True)) == [("enter", "b"), ("enter", "c")]


def test_a_replay_wants_the_same_files() -> None:
    events = [Event(0, "enter", "a", 3), Event(4, "enter", "b", 3)]
    entrance = AsWritten(events)
    window = Window(None, 1)
    assert entrance.first(window, {"a": 3}) == events[:1]
    assert entrance.may_need("b")
    window.enter("a", 3)
    with pytest.raises(StateError, match="b is not there"):
        entrance.later(drawn(window, 4), [], [])


def test_news_waits_for_the_draw_that_was_promised_unless_there_is_no_game() -> None:
    window, entrance = window_of(), Leads(AsTheyCome())
    assert entrance.first(window, {}) == [Event(0, "until", "", LOOK_EVERY)]
    assert entrance.later(window, [("a", 2), ("b", 2)], []) == []
    assert brief(entrance.later(window, [], ["b"], starved=True)) == [("gone", "b"), ("enter", "a")]
    window.enter("a", 2)
    assert entrance.later(drawn(window, LOOK_EVERY - 1), [("c", 2)], []) == []
    assert brief(entrance.later(drawn(window, LOOK_EVERY), [], [])) == [("enter", "c"), ("until", "")]


def test_a_promise_holds_when_the_run_is_gone_on_with() -> None:
    window = drawn(window_of("a"), 10)
    entrance = AsItWas([], Leads(AsTheyCome(["a"])), promised=20)
    assert entrance.first(window, {"a": 3, "b": 3}) == []
    assert entrance.later(drawn(window, 19), [], []) == []
    assert brief(entrance.later(drawn(window, 20), [], [])) == [("enter", "b"), ("until", "")]


def test_who_is_led_does_what_the_leader_did_at_the_same_draws() -> None:
    said: list[Event] = []
    leader, window = Leads(AsTheyCome()), Window(8, 1)
    led, behind = AsLed(lambda: said.pop(0) if said else None, lambda: True), Window(8, 1)
    kept: list[Event] = []

    def do(events: list[Event]) -> None:
        said.extend(events)
        kept.extend(events)
        for event in events:
            apply(window, event)

    do(leader.first(window, {"a": 5, "b": 5}))
    for draw in range(5 * LOOK_EVERY):
        do(leader.later(window, [(f"c{draw}", 5)] if draw % 50 == 7 else [], []))
        window.draw()
    for event in led.first(behind, {}):
        apply(behind, event)
    while behind.draws < window.draws:
        for event in led.later(behind, [], []):
            apply(behind, event)
        behind.draw()
    assert behind.state()[0] == window.state()[0]
    assert brief(kept).count(("until", "")) >= 5


def test_a_draw_that_finds_no_game_but_passes_over_old_ones_is_made_again_too() -> None:
    def told() -> list[Event]:
        return [Event(0, "enter", "a", 8), Event(0, "enter", "b", 8), Event(0, "gone", "b")]

    first, second = Window(8, 1), Window(8, 1)
    for event in told():
        apply(first, event)
    assert first.draw() is None
    assert first.draws == 8
    advance(second, 9, [*told(), Event(first.draws, "enter", "c", 2)])
    apply(first, Event(first.draws, "enter", "c", 2))
    first.draw()
    assert first.state()[0] == second.state()[0]
    with pytest.raises(StoreError, match="never made"):
        advance(Window(8, 1), 1, [])
