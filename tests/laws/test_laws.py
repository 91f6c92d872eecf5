"""The six laws, for every loader and kind of run: any data, threads, depth, ranks, batch sizes and stop points."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, assume, given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from laws import Work
from laws.case import Case, Data, Kind, Row, Team, cases, folder
from laws.faults import KINDS
from laws.raw_files import small_steps
from loaders.conversations import Tap
from loaders.samples import follows_its_hint
from millstream import BudgetError, UnknownLength

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
FUZZ = 50 if "MILLSTREAM_FUZZ" in os.environ else 1
ALONE = Work(threads=1, prefetch=1, world_size=1)


@pytest.fixture(scope="module", autouse=True)
def _made_late() -> Iterator[None]:
    """Small windows, and a maker of conversations that is never ahead."""
    with small_steps() as patch:
        Tap().install(patch)
        yield


def law(check: Any) -> Any:
    """A law: tried on generated cases of every kind."""

    @pytest.mark.parametrize("kind", KINDS, ids=repr)
    def tried(kind: Kind) -> None:
        @settings_of(max_examples=kind.cases * FUZZ, deadline=None, database=None, phases=[Phase.generate])
        @given(st.data())
        def on_any_case(drawn: st.DataObject) -> None:
            data = drawn.draw(kind.data)
            check(data, lambda what=None: drawn.draw(cases(data) if what is None else what))

        on_any_case()

    tried.__name__, tried.__doc__ = check.__name__, check.__doc__
    return tried


@law
def test_complete_an_epoch_uses_every_sample_exactly_once(data: Data, draw: Any) -> None:
    """Whether its batches come from `for` or from `next`; and then its length is known."""
    with folder() as place, Team(draw(), place) as run:
        if not data.ends:
            data.check_complete(run, [run.run(20)])
            return
        epochs = [run.epoch(iterated=not number % 2) for number in range(data.epochs if data.runs_on else 1)]
        data.check_complete(run, epochs)
        if data.runs_on:
            data.check_length(run.loaders[0], len(epochs))


@law
def test_same_threads_depth_and_ranks_change_nothing(data: Data, draw: Any) -> None:
    """Nor does what another run has left behind."""
    one = draw()
    other = draw(cases(data, one.global_rows))
    seen = []
    with folder() as place, folder() as elsewhere:
        for case, where in ((one, place), (other, place if data.warms and draw(st.booleans()) else elsewhere)):
            with Team(case, where) as run:
                seen.append([run.step() for _ in range(data.steps)])
    assert seen[0] == seen[1]


@law
def test_resumable_the_rest_of_the_rows_is_equal_on_any_ranks_and_batch_size(data: Data, draw: Any) -> None:
    """Stopped a few times, and each time resumed by other ranks with other batches, until an epoch ends."""
    data = data.in_order()
    got: list[Row] = []
    state: Any = None
    stops = draw(st.integers(2, 4))
    with folder() as place:
        for stop in range(stops):
            case = draw(cases(data))
            with Team(case, place) as run:
                if state is not None:
                    run.load(json.loads(state), len(got))
                    saved, loader = json.loads(state), run.loaders[0]
                    assert loader.step == saved["step"]
                    assert "sample" not in saved or loader.state_dict()["sample"] == saved["sample"]
                got += run.run(case.stop)
                state = json.dumps(run.state())
                run.commit(json.loads(state))
                if stop == stops - 1 and data.ends and data.runs_on:
                    got += run.epoch()
            if draw(st.booleans()):
                data.forget(place)
    if not got:
        return
    with folder() as place, Team(Case(data, ALONE, data.reference_rows, 0), place) as whole:
        expected: list[Row] = []
        while len(expected) < len(got):
            expected += whole.step()
    assert got == expected[: len(got)]


@law
def test_resumable_seeking_resuming_and_batches_of_any_size_keep_steps_exact(data: Data, draw: Any) -> None:
    """Also while rows are made: a step that is not known yet is refused, and nothing changes. Those that came are known
    unless a run in memory began after them."""
    if not data.seeks:
        return
    data = data.in_order()

    def opened(place: Path) -> Team:
        return Team(Case(data, replace(draw().work, world_size=1), Tape.usual, 0), place)

    with folder() as place, Team(Case(data, ALONE, 1, 0), place) as slow:
        tape = Tape(slow.run(200), data.unit)
    with folder() as place:
        run, first = opened(place), 0
        for move, number in draw(st.lists(moves, min_size=1, max_size=12)):
            (loader,) = run.loaders
            if move == "get":
                batch = loader.get_batch(number)
                assert batch.metadata["step"] == len(tape.starts) - 1
                assert data.rows(batch) == tape.take(number)
            elif move == "seek":
                try:
                    loader.seek(number)
                except UnknownLength:
                    assert data.grows and not first <= number < len(tape.starts)
                else:
                    tape.seek(number)
            elif move == "resume":
                state = run.state()
                run.__exit__()
                run = opened(place)
                run.load(state, 0)
                first, tape.size = loader.step if data.forgets else 0, Tape.usual
            else:
                loader.reset()
                tape = Tape(tape.rows, data.unit)
            assert run.loaders[0].step == len(tape.starts) - 1
        with run:
            (loader,) = run.loaders
            data.settle(loader)
            for step, (start, stop) in enumerate(zip(tape.starts, tape.starts[1:], strict=False)):
                try:
                    origins = loader.explain(step)
                except UnknownLength:
                    assert step < first
                else:
                    data.check_origins(loader, origins, tape.rows[start:stop])


class Tape:
    """The rows of a long run, and how a loader with batches of any size goes through them."""

    usual = 3

    def __init__(self, rows: list[Row], unit: int) -> None:
        self.rows, self.unit, self.starts, self.size = rows, unit, [0], self.usual

    def take(self, size: int) -> list[Row]:
        """The next rows, never past the end of an epoch."""
        self.size, start = size, self.starts[-1]
        found = [row for row in self.rows[start : start + size * self.unit] if row.epoch == self.rows[start].epoch]
        self.starts.append(start + len(found))
        return found

    def seek(self, step: int) -> None:
        """Go to a step; those that were not taken yet have as many rows as the last one."""
        while len(self.starts) <= step:
            self.take(self.size)
        self.starts, self.size = self.starts[: step + 1], self.usual


moves = st.one_of(
    st.tuples(st.just("get"), st.integers(1, 5)),
    st.tuples(st.just("get"), st.just(Tape.usual)),
    st.tuples(st.just("seek"), st.integers(0, 20)),
    st.tuples(st.just("resume"), st.just(0)),
    st.tuples(st.just("reset"), st.just(0)),
)


@law
def test_explainable_rows_name_their_origin_and_documents_their_steps(data: Data, draw: Any) -> None:
    """Before they come, where the future is known; and no other steps than those."""
    with folder() as place, Team(draw(), place) as run:
        if not (data.knows_ahead and draw(st.booleans())):
            check_delivered(data, run)
            return
        data.foretell(run)
        first = run.loaders[0]
        for _ in range(2):
            epoch, steps = first.epoch, range(first.step, first.step + first.get_num_batches())
            foretold = {document: first.steps_of(*document) for document in data.documents(run)}
            used: dict[Any, list[int]] = {document: [] for document in foretold}
            told = [[loader.explain(step) for loader in run.loaders] for step in steps]
            for step, origins in zip(steps, told, strict=True):
                assert first.epoch == epoch
                for document in check_step(data, run, origins):
                    if step not in used[document]:
                        used[document].append(step)
            assert first.epoch == epoch + 1
            assert foretold == used
            assert told == [[loader.explain(step) for loader in run.loaders] for step in steps]


def check_delivered(data: Data, run: Team) -> None:
    """Insist that steps can be explained as soon as they came, and are explained alike when more is known."""
    used: dict[Any, set[int]] = {}
    told: list[Any] = []
    epochs = [loader.epoch for loader in run.loaders]
    while len(told) < data.steps - 1 and [loader.epoch for loader in run.loaders] == epochs:
        told.append(None)
        step = run.loaders[0].step
        batches = run.each(lambda loader: loader.next())
        told[step] = [loader.explain(step) for loader in run.loaders]
        for loader, origins, batch in zip(run.loaders, told[step], batches, strict=True):
            for document in data.check_origins(loader, origins, data.rows(batch)):
                used.setdefault(document, set()).add(step)
    run.each(data.settle)
    assert told == [[loader.explain(step) for loader in run.loaders] for step in range(len(told))]
    if [loader.epoch for loader in run.loaders] == epochs and data.counts_steps(run):  # `steps_of` is about the present
        answered = 0
        for document, steps in used.items():
            try:
                named = {step for loader in run.loaders for step in loader.steps_of(*document)}
            except UnknownLength:
                assert data.grows  # some of its rows are still to come
                continue
            answered += 1
            assert named & {*range(len(told))} == steps
        assert answered or not used


def check_step(data: Data, run: Team, told: list[Any]) -> list[Any]:
    """Insist that a step is what was told of it; gives its documents."""
    batches = run.each(lambda loader: loader.next())
    found = []
    for loader, origins, batch in zip(run.loaders, told, batches, strict=True):
        found += data.check_origins(loader, origins, data.rows(batch))
    return found


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
def test_honest_what_the_last_step_leaves_out_is_counted(data: Data, draw: Any) -> None:
    if not data.drops:
        return
    case = draw()
    with folder() as place, Team(case, place) as run:
        size = len(run.epoch())
    assume(size >= case.global_rows * data.unit)  # an epoch without a whole step is refused
    with folder() as place, Team(case, place, drop_last=True) as run:
        rows = run.epoch()
        run.each(data.settle)
        losses = [loader.losses for loader in run.loaders]
    assert {each["dropped_rows"] for each in losses} == {size - len(rows)}
    assert len(rows) % (case.global_rows * data.unit) == 0
    data.check_losses(rows, losses)


@law
def test_bounded_what_is_held_stays_within_the_budget(data: Data, draw: Any) -> None:
    budget = data.budget
    with folder() as place, Team(draw(), place, memory_budget=budget) as run:
        for _ in range(4):
            run.step()
            for loader in run.loaders:
                memory = loader.get_profiling_results()["memory"]
                assert 0 < sum(memory.values()) <= budget, memory


@law
def test_bounded_the_budget_that_an_error_names_is_enough_and_is_kept(data: Data, draw: Any) -> None:
    """Whatever the batch size. More batches than it has room for are refused while they are held."""
    case = Case(data, replace(draw().work, world_size=1), draw(st.integers(1, 9)), 0)
    budget, most = named_budget(case, draw(st.integers(2, 6))) if data.names_budget else (data.budget, None)
    with folder() as place, Team(case, place, memory_budget=budget) as run:
        (loader,) = run.loaders
        for _ in range(20 if data.runs_on else data.steps):
            batch = loader.next()
            memory = loader.get_profiling_results()["memory"]
            assert memory["batches"] > 0 and sum(memory.values()) <= budget, memory
            batch.release()
        if most is not None:
            with pytest.raises(BudgetError):
                _ = [loader.next() for _ in range(most + 1)]


def named_budget(case: Case, batches: int) -> tuple[int, int | None]:
    """What a loader asks for that is given too little; where it says how much a batch takes, room for so many."""
    budget = 1
    for _ in range(3):  # a stream asks for its lanes first, and then for its batches
        try:
            with folder() as place, Team(case, place, memory_budget=budget) as run:
                run.each(case.data.settle)
                run.step()
                return budget, None
        except BudgetError as error:
            named = re.search(r"memory_budget=(\d+) or more", follows_its_hint(error))
            assert named is not None and int(named[1]) > budget, error
            budget = int(named[1])
            parts = re.search(r"the threads take (\d+), a batch (\d+)", error.message)
            if parts is not None:
                assert budget == int(parts[1]) + 2 * int(parts[2])
                return int(parts[1]) + batches * int(parts[2]), batches
    raise AssertionError("what an error asks for is not enough")
