"""Steps of changing size against slow models: a list of sizes, and a phase for every change."""

from __future__ import annotations

from dataclasses import replace
from math import log2
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream.order import Phase, PhaseSettings, Schedule, Share, StepPhase, next_phase
from millstream.order.phase import first_phase

CHANGES = 100_000

resizes = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 9)), max_size=12)
"""How many steps are taken, and the rows of a step from there on."""


@given(changes=st.lists(st.tuples(st.integers(-5, 6), st.integers(1, 3)), max_size=40), asked=st.integers(-1, 60))
def test_changes_are_those_of_a_list_that_is_searched_from_its_end(changes: list[tuple[int, int]], asked: int) -> None:
    last, model, step = StepPhase(0, "0", 2, 1), [(0, 2)], 0
    for moved, rows in changes:
        step = max(1, step + moved)
        last = last.resized(step, str(step), rows)
        model = [each for each in model if each[0] < step]
        if model[-1][1] != rows:
            model.append((step, rows))
        assert [(phase.step, phase.rows) for phase in last][::-1] == model
        assert all(phase.place == str(phase.step) for phase in last)
        found = last.at(asked)
        expected = next((each for each in reversed(model) if each[0] <= asked), None)
        assert (found and (found.step, found.rows)) == expected


def test_a_change_shares_its_past_and_any_step_is_a_few_leaps_away() -> None:
    last = StepPhase(0, 0, 8, 1)
    for step in range(1, CHANGES):
        before, last = last, last.resized(step, step, 4 + step % 2)
        assert last.before is before
    for step in (0, 1, 7, CHANGES // 3, CHANGES - 2, CHANGES - 1):
        phase, leaps = last, 0
        while phase.step > step:
            assert phase.far is not None and phase.before is not None
            phase, leaps = phase.far if phase.far.step >= step else phase.before, leaps + 1
        assert leaps <= 3 * log2(CHANGES)
        assert last.at(step) == phase


def test_phases_are_equal_by_what_they_say_however_long_they_are() -> None:
    def made(last_rows: int) -> StepPhase[int]:
        phase = StepPhase(0, 0, 8, 1)
        for step in range(1, 5000):
            phase = phase.resized(step, step, 4 + step % 2)
        return phase.resized(5000, 5000, last_rows)

    assert made(9) == made(9)
    assert made(9) != made(7)
    assert made(9) != made(9).before


def recipe_of(quotas: tuple[int, ...], *, drop_last: bool, epoch_size: int | None, ranks: int = 1) -> PhaseSettings:
    shares = {
        name: Share(samples, "global", quota)
        for (name, samples), quota in zip({"a": 37, "b": 23}.items(), quotas, strict=True)
        if quota
    }
    return PhaseSettings(3, 8, 4 * ranks, shares, ranks, drop_last=drop_last, epoch_size=epoch_size)


def slow_and_fast(
    first: PhaseSettings, then: PhaseSettings, changes: list[tuple[int, int]]
) -> tuple[Schedule, Schedule, int]:
    """A run with a phase for every change, and the same with changes inside its phases; and the step after both."""
    phases: list[Phase] = [first_phase(first)]
    schedule, step = Schedule.start(first), 0
    for number, (moved, rows) in enumerate(changes):
        step += moved
        total = rows * first.ranks
        recipe = replace(then, global_rows=total) if number == 1 else phases[-1].settings(first.seed, total)
        schedule = schedule.change(recipe, step) if number == 1 else schedule.resize(total, step)
        if not phases[-1].follows(recipe):
            phases.append(next_phase(phases[-1], recipe, step))
    return Schedule(first.seed, tuple(phases)), schedule, step


@given(
    changes=resizes,
    quotas=st.tuples(*[st.sampled_from([(1, 0), (2, 1), (0, 1), (1, 3)])] * 2),
    drop_last=st.booleans(),
    epoch_size=st.sampled_from([None, 20]),
    ranks=st.integers(1, 3),
    name=st.sampled_from(["a", "b"]),
    samples=st.tuples(st.integers(0, 20), st.integers(1, 3)),
)
@example(  # an epoch of a mixture ends in the middle of one of the source that stays: resizing there ends that one
    changes=[(2, 3), (3, 4), (3, 5), (3, 2), (8, 3)],
    quotas=((2, 1), (1, 0)),
    drop_last=False,
    epoch_size=None,
    ranks=1,
    name="a",
    samples=(0, 3),
)
@settings(max_examples=150, deadline=None)
def test_a_change_inside_a_phase_is_the_same_as_a_phase_of_its_own(
    changes: list[tuple[int, int]],
    quotas: tuple[tuple[int, ...], tuple[int, ...]],
    drop_last: bool,
    epoch_size: int | None,
    ranks: int,
    name: str,
    samples: tuple[int, int],
) -> None:
    if drop_last:
        changes = [(moved, min(rows, 20 // ranks)) for moved, rows in changes]
    given_as: dict[str, Any] = {"drop_last": drop_last, "epoch_size": epoch_size, "ranks": ranks}
    first, then = (recipe_of(each, **given_as) for each in quotas)
    slow, fast, last = slow_and_fast(first, then, changes)

    for step in range(last + 30):
        wanted, found = slow.place(step), fast.place(step)
        assert (found.epoch, found.offset, found.rows) == (wanted.epoch, wanted.offset, wanted.rows)
        for rank in (None, *range(ranks)):
            names, numbers = fast.rows(step, rank)
            expected_names, expected_numbers = slow.rows(step, rank)
            assert (names, numbers.tolist()) == (expected_names, expected_numbers.tolist())
        assert fast.phase_at(step) == slow.phase_at(step)
    for epoch in range(fast.place(last).epoch + 1):
        asked = range(samples[0], samples[0] + samples[1])
        assert fast.steps_of(name, None, asked, epoch) == slow.steps_of(name, None, asked, epoch)


def test_a_size_that_no_step_had_leaves_nothing_out() -> None:
    recipe = PhaseSettings(0, 8, 4, {"a": Share(12, "none")}, drop_last=True)
    run = Schedule.start(recipe).resize(9, 2)  # of the four rows that are left, that makes no step

    assert run.rows(2)[1].tolist() == list(range(9))
    assert run.resize(1, 2).rows(2)[1].tolist() == [8]
    assert run.change(replace(recipe, global_rows=2), 2).rows(2)[1].tolist() == [8, 9]
    assert run.resize(4, 2) == Schedule.start(recipe)


def test_the_schedule_before_a_step_is_the_one_of_that_time() -> None:
    schedules = [Schedule.start(recipe_of((2, 1), drop_last=False, epoch_size=None))]
    for step in range(1, 40):
        before = schedules[-1]
        change = before.change(recipe_of((1, 1 + step % 2), drop_last=False, epoch_size=None), step)
        schedules.append(change if step % 7 == 0 else before.resize(1 + step % 4, step))
    for step, schedule in enumerate(schedules[:-1], start=1):
        assert schedules[-1].until(step) == schedule
        assert schedules[-1].until(step).past == schedule.past


def test_changing_the_size_copies_nothing_of_the_changes_before() -> None:
    run = Schedule.start(PhaseSettings(0, 8, 8, {"a": Share(1000)}))
    for step in range(1, CHANGES // 10):
        before, run = run, run.resize(4 + step % 2, step)
        (phase,), (phase_before,) = run.phases, before.phases
        assert phase.sources is phase_before.sources
        assert phase.steps.before == phase_before.steps if step == 1 else phase.steps.before is phase_before.steps
    assert run.phases[0].steps.number == CHANGES // 10 - 1
