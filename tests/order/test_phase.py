"""A phase goes on where every source stands, at any place, and moves no source by what happens to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import OrderError
from millstream.order import Phase, PhaseSettings, SampleOrder, Share, Standing, next_phase
from millstream.order.phase import first_phase

SEED = 5
quotas_of_sources = st.lists(st.integers(1, 6), min_size=2, max_size=4).map(
    lambda q: dict(zip("abcd", q, strict=False))
)


def recipe(quotas: Mapping[str, int], samples: int = 23, **settings: Any) -> PhaseSettings:
    sources = {name: Share(samples, quota=quota) for name, quota in quotas.items()}
    return PhaseSettings(
        **{"seed": SEED, "row_length": 12, "global_rows": 4, "sources": sources, "epoch_size": 60, **settings}
    )


def rows(phase: Phase, first: int, count: int) -> list[tuple[str, int]]:
    """Source and sample at the positions of a phase."""
    sources, samples = np.empty(count, np.uint64), np.empty(count, np.uint64)
    phase.plan(SEED).rows(first, sources, samples)
    return [(phase.active[int(source)], int(sample)) for source, sample in zip(sources, samples, strict=True)]


def samples_of(name: str, found: list[tuple[str, int]]) -> list[int]:
    return [sample for source, sample in found if source == name]


standings = st.builds(
    lambda samples, epoch, used, factor: (
        Standing(samples, "none", 1, epoch, offset=0, begun=samples).after(used).recut(samples * factor, factor)
    ),
    samples=st.integers(1, 30),
    epoch=st.integers(0, 5),
    used=st.integers(0, 100),
    factor=st.integers(1, 4),
)


@given(standing=standings, first=st.integers(0, 200), second=st.integers(0, 200))
def test_moving_on_twice_is_moving_on_once(standing: Standing, first: int, second: int) -> None:
    assert standing.after(first).after(second) == standing.after(first + second)


@given(standing=standings, used=st.integers(0, 200), factor=st.integers(1, 5))
def test_shorter_rows_leave_the_same_tokens(standing: Standing, used: int, factor: int) -> None:
    standing = standing.after(used)

    assert standing.recut(standing.samples * factor, factor).left == standing.left * factor


@given(quotas=quotas_of_sources, position=st.integers(0, 300), start=st.integers(0, 40))
def test_positions_and_uses_are_each_others_inverse_at_any_place(
    quotas: dict[str, int], position: int, start: int
) -> None:
    phase = replace(first_phase(recipe(quotas)), mixed=start)
    plan = phase.plan(SEED)
    used = [plan.used(number, position) for number in range(len(quotas))]
    ((name, _),) = rows(phase, position, 1)

    assert sum(used) == position
    assert plan.position_of(phase.active.index(name), used[phase.active.index(name)]) == position
    for number in range(len(quotas)):
        assert plan.used(number, plan.position_of(number, position)) == position


@given(quotas=quotas_of_sources)
def test_a_source_goes_through_its_own_order_whatever_it_is_mixed_with(quotas: dict[str, int]) -> None:
    """The key is that of its name: neither its place among the sources, nor their number or weights are in it."""
    found = rows(first_phase(recipe(quotas)), 0, 200)
    turned = rows(first_phase(recipe(dict(reversed(quotas.items())))), 0, 200)
    fewer = rows(first_phase(recipe(dict.fromkeys(list(quotas)[:-1], 1))), 0, 200)

    for name in quotas:
        order = SampleOrder(23, seed=SEED, name=name)
        own = [int(sample) for epoch in range(9) for sample in order.at(range(23), epoch)]
        for mixed in (found, turned, fewer):
            used = samples_of(name, mixed)
            assert used == own[: len(used)]


@given(quotas=quotas_of_sources, step=st.integers(1, 40), global_rows=st.integers(1, 9), ranks=st.integers(1, 3))
def test_a_phase_that_keeps_the_mixture_goes_on_with_its_places(
    quotas: dict[str, int], step: int, global_rows: int, ranks: int
) -> None:
    first = first_phase(recipe(quotas))
    position = first.clock().step(step)[2]

    second = next_phase(first, recipe(quotas, global_rows=global_rows * ranks, ranks=ranks), step)

    assert rows(second, 0, 90) == rows(first, position, 90)


@given(
    quotas=quotas_of_sources,
    other=st.lists(st.integers(0, 6), min_size=4, max_size=4).filter(any),
    step=st.integers(1, 40),
    back=st.integers(1, 40),
)
def test_whatever_the_weights_become_each_source_goes_on_where_it_stood(
    quotas: dict[str, int], other: list[int], step: int, back: int
) -> None:
    """Also one that was taken out, when it returns."""
    first = first_phase(recipe(quotas))
    second = next_phase(first, recipe({name: q for name, q in zip("abcd", other, strict=True) if q}), step)
    third = next_phase(second, recipe(quotas), step + back)
    stretches = (
        rows(first, 0, first.clock().step(step)[2]),
        rows(second, 0, second.clock().step(back)[2]),
        rows(third, 0, 100),
    )

    for name in "abcd":
        order = SampleOrder(23, seed=SEED, name=name)
        own = [int(sample) for epoch in range(30) for sample in order.at(range(23), epoch)]
        used = [sample for stretch in stretches for sample in samples_of(name, stretch)]
        assert used == own[: len(used)]


@given(quotas=quotas_of_sources)
def test_a_mixtures_epoch_lasts_until_the_first_source_is_exhausted(quotas: dict[str, int]) -> None:
    phase = first_phase(recipe(quotas, epoch_size=None))
    epoch = rows(phase, 0, phase.size + 1)

    assert all(len(set(samples_of(name, epoch[:-1]))) == len(samples_of(name, epoch[:-1])) for name in quotas)
    assert len(samples_of(epoch[-1][0], epoch)) == 24  # the next row would be the first to repeat


def test_a_phase_follows_its_own_recipe_and_no_other() -> None:
    mine = recipe({"a": 1, "b": 2})
    others = (
        recipe({"a": 2, "b": 2}),
        recipe({"b": 2, "a": 1}),
        recipe({"a": 1}),
        replace(mine, row_length=6),
        replace(mine, global_rows=8),
        replace(mine, ranks=2),
        replace(mine, drop_last=True),
        replace(mine, epoch_size=None),
    )

    assert first_phase(mine).follows(mine)
    assert not any(first_phase(mine).follows(other) for other in others)


def alone(**settings: Any) -> PhaseSettings:
    shuffle = settings.pop("shuffle", "global")
    sources = {"a": Share(settings.pop("samples", 10), shuffle)}
    return recipe({}, **{"sources": sources, "global_rows": 2, "epoch_size": None, **settings})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"row_length": 5}, "cannot become rows of 5"),
        ({"row_length": 24}, "cannot become rows of 24"),
        ({"row_length": 6, "padded": True}, "cannot become rows of 6"),
        ({"shuffle": "local"}, "in the middle of an epoch with shuffle='global'"),
    ],
)
def test_what_a_begun_epoch_cannot_follow_is_an_error_until_it_has_ended(
    change: dict[str, Any], complaint: str
) -> None:
    first = first_phase(alone())

    with pytest.raises(OrderError, match=complaint) as caught:
        next_phase(first, alone(**change), step=3)

    assert "epoch has ended" in str(caught.value.hint)
    assert next_phase(first, alone(**change), step=5).epoch == 1


def test_drop_last_that_leaves_no_step_is_an_error() -> None:
    with pytest.raises(OrderError, match="leaves no step"):
        first_phase(alone(global_rows=11, drop_last=True)).clock()
