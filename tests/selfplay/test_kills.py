"""A self-play run that is killed goes on as if nothing had happened, while archives come and go."""

from __future__ import annotations

import multiprocessing.util
from pathlib import Path

from selfplay.siege import Plan, Siege, differences, judge, replayed

multiprocessing.util.get_temp_dir()  # made now: the folder of this run's tests is gone before its last deeds
KILLS = 4


def test_whenever_it_is_killed_no_game_is_lost_or_comes_twice_and_its_journal_replays_it(tmp_path: Path) -> None:
    plan = Plan(tmp_path)
    outcome = Siege(plan).run(0.3, lambda so_far: so_far.kills < KILLS)
    history = judge(plan, outcome)
    assert outcome.exact, outcome
    assert outcome.made_again
    steps = min(outcome.steps, 150)
    assert not differences(history, replayed(plan, steps))


def test_a_file_that_is_deleted_under_the_run_costs_its_own_games_and_the_journal_says_which(tmp_path: Path) -> None:
    plan = Plan(tmp_path, early=0.3, pause_s=0.1)
    outcome = Siege(plan, seed=1).run(0.3, lambda so_far: so_far.kills < 2)
    history = judge(plan, outcome)
    assert outcome.exact, outcome
    assert not differences(history, replayed(plan, min(outcome.steps, 400)))
