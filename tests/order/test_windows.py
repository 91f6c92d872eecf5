"""Rows in windows whose samples are numbered through: windows in order in every epoch, rows shuffled inside them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream._core import OrderSpec, derive
from millstream.errors import OrderError
from millstream.order import UNKNOWN, PhaseSettings, Schedule, Share, Shuffle, Windows, source_key
from millstream.order.phase import first_phase

SEED = 7
bins_of = st.lists(st.integers(0, 12), min_size=1, max_size=8).filter(any)
PINNED = [
    [1, 0, 2, 3, 4, 6, 7, 8, 5, 9],
    [0, 2, 1, 4, 3, 7, 5, 8, 6, 9],
    [0, 1, 2, 4, 3, 5, 8, 6, 7, 9],
]


def stream(*bins: int, gaps: tuple[int, ...] = ()) -> Windows:
    return Windows(bins, rows=0, capacity=64, always_in_order=True, gaps=gaps)


def order_of(windows: Windows, samples: int | None = None, shuffle: Shuffle = "global") -> OrderSpec:
    """The order that a run with these windows has."""
    share = Share(windows.samples if samples is None else samples, shuffle, packed=True)
    return first_phase(PhaseSettings(SEED, 64, 4, {"data": share})).order("data", 0, SEED, {"data": windows})[0]


def at(order: OrderSpec, epoch: int, positions: range | list[int]) -> list[int]:
    out = np.empty(len(positions), np.uint64)
    order.at(epoch, np.array(positions, np.uint64), out)
    return [int(sample) for sample in out]


def inverse(order: OrderSpec, epoch: int, samples: range | list[int]) -> list[int]:
    out = np.empty(len(samples), np.uint64)
    order.inverse(epoch, np.array(samples, np.uint64), out)
    return [int(position) for position in out]


def slow_model(windows: Windows, epoch: int, shuffle: Shuffle) -> list[int]:
    """An epoch by the definition: each window is a permutation of its own rows, under its own key."""
    key = derive(source_key(SEED, "data"), epoch)
    numbers = list(range(len(windows.bins)))
    if not windows.always_in_order and shuffle != "none" and not (windows.first_in_order and epoch == 0):
        numbers = at(OrderSpec("global", len(numbers), source_key(SEED, "data")), epoch, range(len(numbers)))
    rows: list[int] = []
    for number in numbers:
        first, count = sum(windows.bins[:number]), windows.bins[number]
        inside = list(range(count))
        if count and shuffle != "none":
            inside = at(OrderSpec("global", count, key), number + 1, inside)
        rows.extend(first + row for row in inside)
    return rows


def test_the_first_positions_of_numbered_windows_are_pinned() -> None:
    """A failure here means that every run over a stream would change its order: make a new order version instead."""
    order = order_of(stream(3, 0, 2, 4, 1))

    assert [at(order, epoch, range(10)) for epoch in range(3)] == PINNED


@given(
    bins=bins_of,
    epoch=st.integers(0, 3),
    shuffle=st.sampled_from(["none", "global", "local"]),
    always=st.booleans(),
    first=st.booleans(),
)
def test_an_epoch_is_that_of_the_slow_model_and_has_an_inverse(
    bins: list[int], epoch: int, shuffle: Shuffle, always: bool, first: bool
) -> None:
    windows = replace(stream(*bins), always_in_order=always, first_in_order=first)
    order, everything = order_of(windows, shuffle=shuffle), range(windows.samples)

    assert at(order, epoch, everything) == slow_model(windows, epoch, shuffle)
    assert sorted(at(order, epoch, everything)) == list(everything)
    assert at(order, epoch, inverse(order, epoch, everything)) == list(everything)


@given(bins=bins_of, epoch=st.integers(0, 3))
def test_windows_come_in_order_in_every_epoch(bins: list[int], epoch: int) -> None:
    order = order_of(stream(*bins))
    first = 0
    for count in bins:
        rows = range(first, first + count)
        assert sorted(at(order, epoch, rows)) == list(rows)
        first += count


def test_rows_of_different_epochs_differ_inside_each_window() -> None:
    order = order_of(stream(40, 40))
    for rows in (range(40), range(40, 80)):
        assert len({tuple(at(order, epoch, rows)) for epoch in range(5)}) == 5


@given(bins=bins_of, known=st.integers(0, 8), epoch=st.integers(0, 3), unknown=st.booleans())
def test_windows_that_are_not_there_yet_change_nothing_before_them(
    bins: list[int], known: int, epoch: int, unknown: bool
) -> None:
    whole, part = stream(*bins), stream(*bins[:known])
    order = order_of(part, UNKNOWN if unknown else whole.samples)

    assert at(order, epoch, range(part.samples)) == at(order_of(whole), epoch, range(part.samples))
    if part.samples < whole.samples:
        with pytest.raises(IndexError, match="not known yet"):
            at(order, epoch, [part.samples])
        with pytest.raises(IndexError, match="no such sample"):
            inverse(order, epoch, [part.samples])


@given(bins=bins_of, skipped=st.integers(1, 8), epoch=st.integers(0, 3), more=st.integers(0, 2**50))
def test_a_gap_keeps_the_windows_behind_it_and_knows_nothing_of_its_rows(
    bins: list[int], skipped: int, epoch: int, more: int
) -> None:
    """One window has the rows of all that were skipped, the others have none."""
    bins = [bins[0] + more, *bins[1:]]
    before = sum(bins[:skipped])
    whole, part = stream(*bins), stream(before, *[0] * (len(bins[:skipped]) - 1), *bins[skipped:], gaps=(0,))
    behind = range(before, whole.samples)

    assert at(order_of(part), epoch, behind) == at(order_of(whole), epoch, behind)
    assert inverse(order_of(part), epoch, behind) == inverse(order_of(whole), epoch, behind)
    if before:
        with pytest.raises(IndexError, match="gap"):
            at(order_of(part), epoch, [before - 1])
        with pytest.raises(IndexError, match="gap"):
            inverse(order_of(part), epoch, [0])


@pytest.mark.parametrize("samples", [9, 11])
def test_only_windows_that_come_in_order_may_be_fewer_than_their_rows_and_none_more(samples: int) -> None:
    windows = stream(3, 0, 2, 4, 1)
    if samples < windows.samples:
        with pytest.raises(OrderError, match="into 10 of 64"):
            order_of(windows, samples)
    with pytest.raises(OrderError, match="into 10 of 64"):
        order_of(replace(windows, always_in_order=False, first_in_order=True), samples)


@given(bins=bins_of, rows=st.integers(1, 5), epoch=st.integers(0, 2), sample=st.integers(0, 95))
def test_the_steps_of_a_row_are_those_that_hold_it(bins: list[int], rows: int, epoch: int, sample: int) -> None:
    windows = stream(*bins)
    sample %= windows.samples
    schedule = Schedule.start(
        PhaseSettings(SEED, 64, rows, {"data": Share(windows.samples, packed=True)}), {"data": windows}
    )
    steps = -(-windows.samples // rows)
    holding = [step for step in range(epoch * steps, (epoch + 1) * steps) if sample in schedule.rows(step)[1].tolist()]

    assert schedule.steps_of("data", (64 * sample, 64 * sample + 64), range(0), epoch) == holding
    assert schedule.steps_of("data", None, range(sample, sample + 1), epoch) == holding
    with pytest.raises(IndexError, match="no such sample"):
        schedule.steps_of("data", None, range(windows.samples, windows.samples + 1), epoch)
