"""A schedule against a slow model of it: tapes that are only ever read forwards, and a list of what was read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import OrderError
from millstream.order import PhaseSettings, SampleOrder, Schedule, Share
from millstream.order.shuffle import LOCAL_GROUP_BLOCKS, local_blocks
from stretches import Stretch, runs

TOKENS = {"a": 240, "b": 96, "c": 131}
"""Input tokens of each source."""
SHUFFLES: dict[str, Any] = {"a": "global", "b": "none", "c": "local"}


class Tape:
    """A source as a strip of (first token, tokens), cut shorter in place; when it ends, the next epoch is written."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.seed, self.epoch = name, seed, -1
        self.strip: list[tuple[int, int]] = []

    def cut(self, length: int) -> None:
        self.strip = [(first + at, length) for first, whole in self.strip for at in range(0, whole, length)]

    def read(self, length: int) -> int:
        """Give the sample, in rows of `length`, that is next."""
        if not self.strip:
            self.epoch += 1
            samples = TOKENS[self.name] // length
            order = SampleOrder(
                samples,
                shuffle=SHUFFLES[self.name],
                seed=self.seed,
                name=self.name,
                block_samples=local_blocks(length),
                group_blocks=LOCAL_GROUP_BLOCKS,
            )
            self.strip = [(int(sample) * length, length) for sample in order.at(range(samples), self.epoch)]
        first, whole = self.strip.pop(0)
        assert whole == length
        return first // length


def recipe_of(stretch: Stretch, seed: int, length: int) -> PhaseSettings:
    shares = {
        name: Share(TOKENS[name] // length, SHUFFLES[name], quota)
        for name, quota in zip(TOKENS, stretch.quotas, strict=True)
        if quota
    }
    return PhaseSettings(seed, length, stretch.ranks * stretch.rows, shares, stretch.ranks, epoch_size=50)


def lived(run: list[Stretch], seed: int) -> Iterator[tuple[Schedule, int, int]]:
    """Live through a run: (schedule, step, row length) of each step."""
    schedule, step, length = None, 0, 24
    for stretch in run:
        length = length // stretch.factor if length % stretch.factor == 0 else length
        recipe = recipe_of(stretch, seed, length)
        schedule = Schedule.start(recipe) if schedule is None else schedule.change(recipe, step)
        for _ in range(stretch.steps):
            yield schedule, step, length
            step += 1


@given(run=runs(least_steps=1), seed=st.integers(0, 3))
@settings(max_examples=150)
def test_every_row_is_the_next_one_of_its_source_through_any_changes(run: list[Stretch], seed: int) -> None:
    tapes = {name: Tape(name, seed) for name in TOKENS}
    present = 24
    for schedule, step, length in lived(run, seed):
        if length != present:
            present = length
            for tape in tapes.values():
                tape.cut(length)
        names, samples = schedule.rows(step)
        assert samples.tolist() == [tapes[name].read(length) for name in names]


@given(run=runs(least_steps=1), seed=st.integers(0, 3))
def test_the_past_stays_as_it_was_and_ranks_only_cut_it(run: list[Stretch], seed: int) -> None:
    history = []
    for schedule, step, _ in lived(run, seed):
        names, samples = schedule.rows(step)
        history.append((schedule.place(step), names, samples.tolist()))
        parts = [schedule.rows(step, rank) for rank in range(schedule.phase_at(step).ranks)]
        assert [name for part, _ in parts for name in part] == names
        assert [sample for _, part in parts for sample in part.tolist()] == samples.tolist()

    for step, (place, names, samples) in enumerate(history):
        assert (schedule.place(step), *schedule.rows(step)[:1]) == (place, names)
        assert schedule.rows(step)[1].tolist() == samples


@given(run=runs(least_steps=1), seed=st.integers(0, 3))
def test_steps_follow_each_other_and_never_straddle_epochs(run: list[Stretch], seed: int) -> None:
    """The offset counts rows of the present length: where rows become shorter, it grows by the same factor."""
    epoch, offset, present = 0, 0, 24
    for schedule, step, length in lived(run, seed):
        place = schedule.place(step)
        offset, present = offset * (present // length), length
        if place.epoch != epoch:
            assert (place.epoch, place.offset) == (epoch + 1, 0)
        else:
            assert place.offset == offset
        assert 1 <= place.rows <= schedule.phase_at(step).global_rows
        epoch, offset = place.epoch, place.offset + place.rows


@given(run=runs(least_steps=1), seed=st.integers(0, 3), name=st.sampled_from(list(TOKENS)), first=st.integers(0, 95))
def test_the_steps_of_some_tokens_are_those_that_used_them(
    run: list[Stretch], seed: int, name: str, first: int
) -> None:
    tokens = (first, min(first + 30, 96))
    used: dict[int, set[int]] = {}
    for schedule, step, length in lived(run, seed):
        for source, sample in zip(*schedule.rows(step), strict=True):
            start = int(sample) * length
            if source == name and start < tokens[1] and start + length > tokens[0]:
                used.setdefault(schedule.place(step).epoch, set()).add(step)
    lived_steps = sum(stretch.steps for stretch in run)

    for epoch in range(schedule.place(lived_steps - 1).epoch + 1):
        found = [step for step in schedule.steps_of(name, tokens, range(0), epoch) if step < lived_steps]
        assert found == sorted(used.get(epoch, set()))


@given(run=runs(least_steps=1), step=st.integers(0, 60))
def test_changing_to_what_it_does_already_changes_nothing(run: list[Stretch], step: int) -> None:
    *_, (schedule, _, length) = lived(run, seed=0)
    step = max(step, schedule.phase_at(10**6).step)
    again = schedule.change(recipe_of(run[-1], 0, length), step)

    assert again == schedule


def test_drop_last_leaves_out_the_short_step_and_nothing_else() -> None:
    recipe = PhaseSettings(0, 8, 4, {"a": Share(11, "none")}, drop_last=True)
    run = Schedule.start(recipe)

    assert [run.rows(step)[1].tolist() for step in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]]
    steps = [run.steps_of("a", (8 * sample, 8 * sample + 8), range(0), epoch=1) for sample in (0, 7, 8, 10)]
    assert steps == [[2], [3], [], []]
    changed = run.change(replace(recipe, drop_last=False), step=1)
    assert [changed.rows(step)[1].tolist() for step in (1, 2)] == [[4, 5, 6, 7], [8, 9, 10]]


@pytest.mark.parametrize("step", [-1, 2**62, 0.5])
def test_steps_that_no_run_has_are_refused(step: Any) -> None:
    with pytest.raises(OrderError, match="step"):
        Schedule.start(PhaseSettings(0, 8, 4, {"a": Share(11)})).place(step)
