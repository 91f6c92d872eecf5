"""Ranks that are processes of their own: together they have the rows of one, and none outlives the first."""

from __future__ import annotations

import multiprocessing.util
import time
from pathlib import Path

import pytest

from loaders.rank_processes import LONGEST_S, Ranks, Rows, facts_of
from selfplay.growing_games import add, live, three_archives

multiprocessing.util.get_temp_dir()  # made now: the folder of this run's tests is gone before its last deeds


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return three_archives(tmp_path / "games")


def replayed(folder: Path, run: Path, rows: int) -> Rows:
    """The same from the journal, by one rank."""
    found = Rows()
    with live(folder, run / "again", replay=run / "admissions.jsonl", batch_size=14) as alone:
        while len(found) < rows:
            found += facts_of(alone.next())
    return found[:rows]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_ranks_together_have_the_rows_of_one_whichever_comes_first(
    folder: Path, tmp_path: Path, order: tuple[int, int]
) -> None:
    with Ranks(folder, tmp_path / "run", tmp_path / "trails", number=2, batch_size=7) as ranks:
        ranks.start(order[0])
        time.sleep(0.2)
        assert order[0] == 0 or not ranks.made(1)
        ranks.start(order[1])
        ranks.wait_for_steps(3)
        add(folder, 3)
        journal = tmp_path / "run" / "admissions.jsonl"
        ranks.wait_for(lambda: "training-0003.tar" in journal.read_text())
        ranks.wait_for_steps(5)
        ranks.kill(0, 1)
        rows = ranks.rows()
    assert rows == replayed(folder, tmp_path / "run", len(rows))


def test_three_ranks_that_are_killed_go_on_as_one(folder: Path, tmp_path: Path) -> None:
    with Ranks(folder, tmp_path / "run", tmp_path / "trails", number=3, batch_size=3) as ranks:
        ranks.start(2, 0, 1)
        ranks.wait_for_steps(ranks.save_at + 20)
        ranks.kill(1, 0, 2)
        state, rows = ranks.state(0), ranks.rows()
        assert state == ranks.state(1) == ranks.state(2)
    behind, found = rows[9 * ranks.save_at :], Rows()
    with live(folder, tmp_path / "run", batch_size=9) as alone:
        alone.load_state_dict(state)
        while len(found) < len(behind):
            found += facts_of(alone.next())
    assert len(behind) >= 9 * 20
    assert found == behind


def test_when_the_first_rank_is_killed_the_others_end_with_an_error_and_do_not_wait_for_ever(
    folder: Path, tmp_path: Path
) -> None:
    with Ranks(folder, tmp_path / "run", tmp_path / "trails", number=3, batch_size=7) as ranks:
        ranks.start(0, 1, 2)
        ranks.wait_for_steps(3)
        ranks.kill(0)
        for rank, process in ranks.processes.items():
            process.join(LONGEST_S)
            assert process.exitcode == 0, "it waits"
            assert "rank 0 has ended, and this rank waits for what it says" in ranks.error(rank)
            assert "load the last state" in ranks.error(rank)
