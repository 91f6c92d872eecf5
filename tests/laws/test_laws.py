"""The six laws, for every loader and kind of run: any data, threads, depth, ranks, batch sizes and stop points."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, assume, given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from laws import Work, live_kinds, token_kinds
from laws.case import Case, Data, Kind, Row, Team, cases, folder
from loaders.conversations import made_late
from millstream import UnknownLength

__all__ = ["made_late"]
pytestmark = [pytest.mark.usefixtures("made_late"), pytest.mark.filterwarnings("ignore::UserWarning")]
KINDS: list[Kind] = [*token_kinds.KINDS, *live_kinds.KINDS]
FUZZ = 50 if "MILLSTREAM_FUZZ" in os.environ else 1


def law(check: Any) -> Any:
    """A law: tried on generated cases of every kind."""

    @pytest.mark.parametrize("kind", KINDS, ids=repr)
    def tried(kind: Kind) -> None:
        @settings_of(max_examples=kind.cases * FUZZ, deadline=None, database=None, phases=[Phase.generate])
        @given(st.data())
        def on_any_case(drawn: st.DataObject) -> None:
            data = drawn.draw(kind.data)
            check(data, lambda: drawn.draw(cases(data)))

        on_any_case()

    tried.__name__, tried.__doc__ = check.__name__, check.__doc__
    return tried


@law
def test_complete_an_epoch_uses_every_sample_exactly_once(data: Data, draw: Any) -> None:
    case = draw()
    if data.ends_alone:
        case = replace(case, work=replace(case.work, world_size=1))
    with folder() as place, Team(case, place) as run:
        if not data.ends:
            data.check_complete([run.run(20)])
            return
        data.check_complete([run.epoch() for _ in range(2 if data.runs_on else 1)])


@law
def test_same_threads_depth_and_ranks_change_nothing(data: Data, draw: Any) -> None:
    one, other = draw(), draw()
    seen = []
    for case in (one, Case(data, other.work, one.global_rows, 0)):
        with folder() as place, Team(case, place) as run:
            seen.append([run.step() for _ in range(data.steps)])
            data.forget(place)
    assert seen[0] == seen[1]


@law
def test_resumable_the_rest_of_the_rows_is_equal_on_any_ranks_and_batch_size(data: Data, draw: Any) -> None:
    """Stopped three times, and each time gone on with by other ranks with other batches."""
    got: list[Row] = []
    state: Any = None
    with folder() as place:
        for _ in range(3):
            case = draw()
            with Team(case, place) as run:
                if state is not None:
                    run.load(json.loads(state), len(got))
                got += run.run(case.stop)
                state = json.dumps(run.state())
                run.commit(json.loads(state))
            data.forget(place)
    if not got:
        return
    with folder() as place, Team(Case(data, Work(1, 1, 1), min(data.step_rows), 0), place) as whole:
        expected: list[Row] = []
        while len(expected) < len(got):
            expected += whole.step()
    assert got == expected[: len(got)]


@law
def test_explainable_rows_name_their_origin_and_documents_their_steps(data: Data, draw: Any) -> None:
    used: dict[Any, set[int]] = {}
    case = draw()
    with folder() as place, Team(case, place) as run:
        for _ in range(3):
            step, epoch = run.loaders[0].step, run.loaders[0].epoch
            batches = run.each(lambda loader: loader.next())
            for loader, batch in zip(run.loaders, batches, strict=True):
                told, rows = loader.explain(step), data.rows(batch)
                assert [origin.row for origin in told] == list(range(len(rows)))
                for origin, row in zip(told, rows, strict=True):
                    for document in data.check_origin(loader, origin, row):
                        used.setdefault(document, set()).add(step)
            if run.loaders[0].epoch != epoch:  # `steps_of` is about the present one
                break
            for (document, source), steps in used.items():
                try:
                    named = set(run.loaders[0].steps_of(document, source))
                except UnknownLength:
                    continue  # rows are still being made
                assert steps <= named


@law
def test_honest_what_comes_and_what_is_lost_add_up(data: Data, draw: Any) -> None:
    if not data.spoils:
        return
    data, case = data.spoiled(), draw()
    assume(data.given_units() >= case.global_rows)
    with folder() as place, Team(Case(data, case.work, case.global_rows, 0), place) as run:
        rows = run.epoch()
        losses = [loader.losses for loader in run.loaders]
    assert data.kept_units(rows) + data.lost_units(losses) == data.given_units()


@law
def test_bounded_what_is_held_stays_within_the_budget(data: Data, draw: Any) -> None:
    budget = data.budget
    with folder() as place, Team(draw(), place, memory_budget=budget) as run:
        for _ in range(4):
            run.step()
            for loader in run.loaders:
                memory = loader.get_profiling_results()["memory"]
                assert 0 < sum(memory.values()) <= budget, memory
