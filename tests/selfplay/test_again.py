"""Stages that fail end only themselves: the next call begins others where the trainer stands, and no row is lost."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import FingerprintError, MillstreamError, StageError
from millstream.games import Game
from millstream.loaders import SelfPlayDataLoader
from millstream.selfplay import admission
from millstream.storage import disk
from selfplay.growing_games import Row, add, chunks_of, live, loader, rows_of, three_archives

MEMORY: dict[str, Any] = {"cache_dir": None}
PASS: dict[str, Any] = {"watch": False, "num_chunks": None}
KINDS: dict[str, dict[str, Any]] = {
    "watched": {},
    "watched, in memory": MEMORY,
    "passes": PASS,
    "passes, in memory": {**PASS, **MEMORY},
    "heavy games more often": {"hanse": 0.5, "positions": 2},
    "not shuffled": {**PASS, "shuffle": False},
}
ALWAYS = set(range(1, 10_000))
every_kind = pytest.mark.parametrize("how", KINDS.values(), ids=KINDS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return three_archives(tmp_path / "games")


class Fails:
    """A predicate that refuses short games, and that fails at some of its calls."""

    def __init__(self, *calls: int) -> None:
        self.calls, self.seen = set(calls), count(1)

    def __call__(self, game: Game) -> bool | str:
        if next(self.seen) in self.calls:
            raise ZeroDivisionError("for a moment")
        return len(game.frames) > 1 or "too short"

    def __repr__(self) -> str:
        return "Fails"


def insist(run: SelfPlayDataLoader) -> tuple[list[Row], int]:
    """The rows of the next step, asked for until they come, and how often that failed."""
    for failures in range(9):
        try:
            return rows_of(run.next()), failures
        except MillstreamError as error:
            assert "for a moment" in str(error) or "No space left" in str(error)
    raise AssertionError("it fails again and again")


def steps(run: SelfPlayDataLoader, number: int) -> tuple[list[list[Row]], int]:
    """The rows of some steps, and how often asking for them failed."""
    found = [insist(run) for _ in range(number)]
    return [rows for rows, _ in found], sum(failures for _, failures in found)


@every_kind
@pytest.mark.parametrize("calls", [(1,), (9, 30, 31), (75,)], ids=str)
def test_a_predicate_that_fails_once_loses_no_row(
    folder: Path, tmp_path: Path, how: dict[str, Any], calls: Sequence[int]
) -> None:
    with live(folder, tmp_path / "whole", predicates=[Fails()], **how) as run:
        expected, _ = steps(run, 60)
        losses = None if how.get("cache_dir", True) is None else run.state_dict()["losses"]
    with live(folder, tmp_path / "failed", predicates=[Fails(*calls)], **how) as run:
        found, failures = steps(run, 60)
        assert (run.step, len(run.explain(59))) == (60, len(expected[59]))
        if losses is not None:
            assert run.state_dict()["losses"] == losses
    assert found == expected
    assert 1 <= failures <= len(calls)  # two threads may fail at once


@every_kind
def test_what_it_failed_with_is_raised_and_a_state_can_be_saved_then(
    folder: Path, tmp_path: Path, how: dict[str, Any]
) -> None:
    with live(folder, tmp_path / "whole", predicates=[Fails()], **how) as run:
        expected, _ = steps(run, 30)
    fails = Fails()
    with live(folder, tmp_path / "failed", predicates=[fails], **how) as run:
        found, _ = steps(run, 5)
        fails.calls = ALWAYS
        with pytest.raises(StageError, match="ZeroDivisionError: for a moment") as failed:
            while True:
                found.append(rows_of(run.next()))
        assert isinstance(failed.value.__cause__, ZeroDivisionError)
        fails.calls = set()
        assert 5 <= run.step == len(found) < 30
        assert [len(run.explain(step)) for step in range(run.step)] == [len(rows) for rows in found]
        if how.get("watch", True) and "cache_dir" in how:  # which has no state
            found += steps(run, 30 - run.step)[0]
            assert found == expected
            return
        state = run.state_dict()
    with live(folder, tmp_path / "failed", predicates=[Fails()], **how) as run:
        run.load_state_dict(state)
        assert found + steps(run, 30 - run.step)[0] == expected


@pytest.mark.parametrize("how", [{}, PASS], ids=["watched", "passes"])
def test_a_disk_that_is_full_for_a_moment_loses_no_row(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    monkeypatch.setattr(admission, "LOOK_EVERY", 8)
    write, written, fails_at = disk.write, count(1), 0

    def full(fd: int, data: Any, offset: int) -> None:
        if "admissions" in str(Path(f"/proc/self/fd/{fd}").readlink()) and next(written) == fails_at:
            write(fd, bytes(data)[: len(data) // 2], offset)
            raise OSError(errno.ENOSPC, "No space left on device")
        write(fd, data, offset)

    with live(folder, tmp_path / "whole", **how) as run:
        expected, _ = steps(run, 60)
    journal = (tmp_path / "whole" / "admissions.jsonl").read_text().splitlines()
    monkeypatch.setattr(disk, "write", full)
    for fails_at in range(1, 6 if how else 9):
        written = count(1)
        with live(folder, tmp_path / str(fails_at), **how) as run:
            found, failures = steps(run, 60)
            assert len(run.explain(0)) == len(expected[0])
        assert (found, failures) == (expected, 1), fails_at
        lines = (tmp_path / str(fails_at) / "admissions.jsonl").read_text().splitlines()
        shorter = min(len(lines), len(journal))  # it is as far ahead as it got
        assert [line.split(',"chain"')[0] for line in lines[1:shorter]] == [
            line.split(',"chain"')[0] for line in journal[1:shorter]
        ]


def test_what_has_entered_ahead_enters_at_the_same_draw_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "LOOK_EVERY", 8)
    fails = Fails()
    with live(folder, tmp_path / "run", predicates=[fails]) as run:
        found, _ = steps(run, 4)
        add(folder, 3)
        while chunks_of(run) == 24:  # it is in the journal, ahead of the trainer
            found += steps(run, 1)[0]
        fails.calls = ALWAYS
        with pytest.raises(StageError):
            while True:
                found.append(rows_of(run.next()))
        fails.calls = set()
        found += steps(run, 40)[0]
        state = run.state_dict()
        behind, _ = steps(run, 10)
    with live(folder, tmp_path / "run", predicates=[Fails()]) as run:
        run.load_state_dict(state)
        assert steps(run, 10)[0] == behind
    journal = tmp_path / "run" / "admissions.jsonl"
    with live(folder, tmp_path / "alone", predicates=[Fails(20)], replay=journal) as run:
        assert steps(run, len(found)) == (found, 1)


def test_ranks_that_replay_a_journal_stay_in_step_when_stages_fail(folder: Path, tmp_path: Path) -> None:
    with live(folder, tmp_path / "run", predicates=[Fails()]) as run:
        found = [row for rows in steps(run, 40)[0] for row in rows]
    replay = {"replay": tmp_path / "run" / "admissions.jsonl", "world_size": 2, "batch_size": 5}
    runs = [
        live(folder, tmp_path / "pair", predicates=[Fails(*calls)], rank=rank, **replay)
        for rank, calls in enumerate([(), (3, 30)])
    ]
    pairs = [[insist(run) for run in runs] for _ in range(26)]
    states = [run.state_dict() for run in runs]
    for run in runs:
        run.close()
    assert [row for pair in pairs for rows, _ in pair for row in rows] == found[:260]
    assert sum(failures for _, (_, failures) in pairs) == 2
    assert states[0]["journal"] == states[1]["journal"]


@pytest.mark.parametrize("failing", [0, 1])
def test_a_rank_whose_stages_fail_stays_in_step_with_the_others(folder: Path, tmp_path: Path, failing: int) -> None:
    def ranks(run: Path, *calls: int) -> list[SelfPlayDataLoader]:
        how = {"world_size": 2, "batch_size": 4}
        return [
            live(folder, run, rank=rank, predicates=[Fails(*calls) if rank == failing else Fails()], **how)
            for rank in range(2)
        ]

    def trained(runs: Sequence[SelfPlayDataLoader]) -> tuple[list[list[Row]], int]:
        found = [[insist(run) for run in runs] for _ in range(30)]
        state = [run.state_dict() for run in runs]
        assert state[0] == state[1]
        for run in runs:
            run.close()
        return [rows for step in found for rows, _ in step], sum(failures for step in found for _, failures in step)

    expected, _ = trained(ranks(tmp_path / "whole"))
    assert trained(ranks(tmp_path / "failed", 5, 40)) == (expected, 2)


def test_files_that_a_state_does_not_know_are_refused_however_often_they_are_asked_for(
    folder: Path, tmp_path: Path
) -> None:
    with loader(folder) as run:
        steps(run, 3)
        state = run.state_dict()
    add(folder, 3)
    with loader(folder) as run:
        run.load_state_dict(state)
        for _ in range(3):
            with pytest.raises(MillstreamError, match="not those that the state was saved for") as refused:
                run.next()
            assert isinstance(refused.value.__cause__ or refused.value, FingerprintError)
        assert run.state_dict() == state


def test_the_journal_of_an_epoch_outlives_what_happens_at_the_start_of_the_next(folder: Path, tmp_path: Path) -> None:
    fails = Fails()
    with live(folder, tmp_path / "run", predicates=[fails], **PASS) as run:
        first = [rows_of(batch) for batch in run]
        state = run.state_dict()
        assert state["epoch"] == 1
        fails.calls = ALWAYS
        with pytest.raises(StageError):
            run.next()
        fails.calls = set()
        second = [rows_of(batch) for batch in run]
        assert [[origin.use for origin in run.explain(step)] for step in range(len(first))] == [
            [use for _, _, use, _ in rows] for rows in first
        ]
    with live(folder, tmp_path / "run", predicates=[Fails()], **PASS) as run:
        run.load_state_dict(state)
        assert [rows_of(batch) for batch in run] == second
        assert len(run.explain(0)) == len(first[0])
