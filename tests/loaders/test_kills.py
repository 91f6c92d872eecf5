"""Live training is exact: whoever is killed, and whatever the disk refuses, no completed group is lost, and none is
trained on twice, relative to the last state that was saved."""

from __future__ import annotations

import errno
import json
import multiprocessing.util
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from feeds.redis_server import RedisServer
from loaders.killed import Plan, make_rollouts, opened, train, trained_on, write
from loaders.kills import Outcome, Siege, judge, plan_over
from millstream import ClosedError, StoreError
from millstream.feeds import arrival_log
from millstream.storage import disk
from store.crash import Crash, FailingDisk

multiprocessing.util.get_temp_dir()  # made now: the folder of this run's tests is gone before its last deeds
FUZZ = "MILLSTREAM_FUZZ" in os.environ
MORE, STRIDE = (10, 1) if FUZZ else (1, 3)
"""More kills, and every operation instead of every third."""
GROUPS = 4
SMALL = Plan("", Path(), group_size=2, groups_per_batch=1, batch_size=3, checkpoint_every=2, pause_s=0)
Value = TypeVar("Value")


@pytest.mark.parametrize(("transport", "kills"), [("spool", 6), ("redis", 3), ("http", 3)])
def test_whoever_is_killed_every_completed_group_is_trained_on_as_often_as_was_said(
    tmp_path: Path, transport: str, kills: int
) -> None:
    server = RedisServer(tmp_path)
    if transport == "redis":
        server.start()
    try:
        outcome = Siege(plan_over(transport, tmp_path / "run", server), seed=kills).run(kills * MORE)
    finally:
        server.kill()
    assert outcome.exact, outcome
    assert outcome.groups > 0


# The same without chance: every operation on the disk, one after another, is the last one or refused.


def filled(folder: Path) -> Plan:
    """A spool with everything in it that will ever come, and nobody who has begun to train."""
    made = folder.parent / "filled"
    if not made.exists():
        plan = replace(SMALL, where=os.fspath(made / "spool"), folder=made)
        made.mkdir()
        write(plan.groups, GROUPS)
        for engine in range(plan.engines):
            make_rollouts(plan, engine)
    shutil.copytree(made, folder)
    return replace(SMALL, where=os.fspath(folder / "spool"), folder=folder)


@pytest.fixture
def small_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival_log, "COMPACT_AFTER", 2)
    monkeypatch.setattr(disk, "sync", lambda fd: None)  # faster; where the power fails, that is played


@pytest.mark.filterwarnings("ignore:.*an earlier run left rollouts:UserWarning")  # a state that was never saved
@pytest.mark.usefixtures("small_logs")
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
def test_a_trainer_that_stops_at_any_operation_on_the_disk_goes_on_exactly(tmp_path: Path, power: bool) -> None:
    finished, limit = False, 0
    while not finished:
        limit += STRIDE
        plan = filled(tmp_path / str(limit))
        failing = FailingDisk(plan.folder, limit)
        failing.remember()
        with pytest.MonkeyPatch.context() as patch:
            failing.install(patch)
            try:
                train(plan)
                finished = True
            except Crash:
                if power:
                    failing.blackout()
        train(plan)
        outcome = judge(plan, Outcome(groups=GROUPS))
        assert outcome.exact, (limit, outcome)
    assert limit > 60


class RefusingDisk(FailingDisk):
    """A disk that is full at one operation, and not afterwards."""

    def _step(self) -> None:
        self.count += 1
        if self.count == self.limit:
            raise OSError(errno.ENOSPC, "No space left on device")


def persistently(act: Callable[[], Value]) -> Value:
    """Do something; if the disk is full, hear that and do it again."""
    try:
        return act()
    except StoreError as error:
        assert "No space left" in str(error), error
        assert "free some space" in str(error) and "TokenStoreWriter" not in str(error), error
        return act()


def train_persistently(plan: Plan) -> None:
    """As `train`, in one process that is never killed."""
    trained: list[Any] = []
    with persistently(lambda: opened(plan)) as loader:
        while True:
            try:
                trained += trained_on(persistently(loader.next))
            except ClosedError:
                break
            state = persistently(loader.state_dict)
            persistently(lambda: loader.commit(state))  # noqa: B023 - called at once
        losses = loader.losses
    plan.checkpoint.write_text(json.dumps({"state": state, "trained": trained, "losses": losses}))


@pytest.mark.usefixtures("small_logs")
def test_a_disk_that_is_full_for_a_moment_is_said_and_the_loader_goes_on_exactly(tmp_path: Path) -> None:
    finished, limit = False, 0
    while not finished:
        limit += STRIDE
        plan = filled(tmp_path / str(limit))
        refusing = RefusingDisk(plan.folder, limit)
        with pytest.MonkeyPatch.context() as patch:
            refusing.install(patch)
            train_persistently(plan)
        finished = refusing.count < limit
        outcome = judge(plan, Outcome(groups=GROUPS))
        assert outcome.exact, (limit, outcome)
    assert limit > 60
