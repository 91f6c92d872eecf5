"""Rollout batches that are made ahead of the trainer: the same as if they were not, and nothing is lost or doubled."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws.test_faults import in_child
from loaders.test_rollout_feed import filled, ids, opened, spooled
from millstream import LoaderError, RecordError, StateError
from millstream.admission import JournalReader
from millstream.feeds import MemoryFeed, SpoolFeed
from millstream.loaders.runs import JOURNAL
from rollouts.samples import random_rollouts

LONG_S = 30
"""What takes longer than this hangs."""


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def ready(loader: Any, batches: int) -> None:
    """Wait until so many rollout batches are cut ahead."""
    wait_for(lambda: loader.get_profiling_results()["ready_batches"] == batches)


def entries(folder: Path) -> list[tuple[int, int, bool]]:
    return [(each.step, each.policy_version, each.withdrawn) for each in JournalReader(folder / JOURNAL)]


def test_prefetch_receives_cuts_writes_and_rates_before_anything_is_asked_for(tmp_path: Path) -> None:
    with opened(filled(), cache_dir=tmp_path) as loader:
        loader.prefetch(2)
        ready(loader, 2)
        wait_for(lambda: len(entries(tmp_path)) == 2)
        assert loader.step == 0
        assert loader.losses.get("cut", 0) == 0  # nothing was handed over
        assert loader.get_profiling_results()["memory"]["rollouts"] > 0
        names = [name for batch in loader for name in ids(batch)]
        assert len(names) == len(set(names)) == loader.losses["cut"] == 24


def test_the_next_rollout_batch_is_made_while_the_trainer_has_the_one_before() -> None:
    with opened(filled()) as loader:
        loader.next()
        ready(loader, 1)
        assert (loader.step, loader.get_profiling_results()["ready_batches"]) == (1, 1)


def test_where_only_the_newest_weights_count_nothing_is_cut_ahead(tmp_path: Path) -> None:
    feed = MemoryFeed()
    source = feed.source()
    records = random_rollouts(groups=4)
    with opened(feed, cache_dir=tmp_path, live={"max_staleness": 0}, prefetch=3) as loader:
        source.put([{**record, "policy_version": 0} for record in records[:8]])
        loader.next()
        source.put([{**record, "policy_version": 1} for record in records[8:]])
        wait_for(lambda: feed.counters()["received"] == 16)  # they are received all the same
        assert loader.get_profiling_results()["ready_batches"] == 0
        assert entries(tmp_path) == [(0, 0, False)]
        assert len(ids(loader.next())) == 8 and "stale" not in loader.losses


def test_a_version_that_was_not_expected_withdraws_what_was_cut_ahead(tmp_path: Path) -> None:
    """What is too old for it is counted, what still fits is trained on."""
    feed = MemoryFeed()
    source, records = feed.source(), random_rollouts(groups=8)
    source.put([{**record, "policy_version": 0} for record in records[:24]])
    with opened(feed, cache_dir=tmp_path, live={"max_staleness": 2}, prefetch=2) as loader:
        first = ids(loader.next())
        ready(loader, 2)
        source.put([{**record, "policy_version": 1} for record in records[24:]])
        loader.policy_version = 3
        second = ids(loader.next())
        assert (len(first), sorted(second)) == (8, sorted(record["rollout_id"] for record in records[24:]))
        assert loader.losses["stale"] == 16 and loader.losses["cut"] == 16
        assert [len(loader.explain(step)) for step in range(2)] == [8, 8]
    written = entries(tmp_path)
    assert written[:4] == [(0, 0, False), (1, 1, False), (2, 2, False), (1, 1, True)]
    assert [entry for entry in written if not entry[2]][-1] == (1, 3, False)


class Told:
    """Trains with versions that the trainer says, or does not."""

    def __init__(self, versions: list[int], staleness: int | None, replay: bool) -> None:
        self.versions = versions
        self.live: dict[str, Any] = {"max_staleness": staleness, "groups_per_batch": 1}
        if replay:
            self.live["replay"] = {"share": 0.5, "max_uses": 2}
            self.live["groups_per_batch"] = 2

    def feed(self) -> MemoryFeed:
        feed = MemoryFeed()
        with feed.source() as source:
            for number, record in enumerate(random_rollouts(groups=8, size=2)):
                source.put({**record, "policy_version": number // 6})
        return feed

    def run(self, *, inline: bool, prefetch: int) -> tuple[list[Any], dict[str, int]]:
        found: list[Any] = []
        live = {**self.live, "group_size": 2, "policy_version": 3}
        with opened(self.feed(), batch_size=2, live=live, prefetch=prefetch) as loader:
            loader._run.intake.inline = inline
            for number, version in enumerate([*self.versions, *[0] * 40]):
                if version:
                    loader.policy_version += version - 1
                if not inline and number % 2:
                    time.sleep(0.002)  # sometimes it is ahead, sometimes not
                try:
                    batch = loader.next()
                except LoaderError as error:
                    assert "the feed has ended" in str(error)
                    break
                found.append((batch.metadata["policy_version_trained"], ids(batch)))
            return found, loader.losses


@given(
    versions=st.lists(st.integers(0, 3), max_size=6),
    staleness=st.sampled_from([None, 0, 1, 2, 4]),
    prefetch=st.integers(1, 3),
    replay=st.booleans(),
)
def test_running_ahead_changes_nothing_whatever_versions_are_trained(
    versions: list[int], staleness: int | None, prefetch: int, replay: bool
) -> None:
    told = Told(versions, staleness, replay)
    assert told.run(inline=False, prefetch=prefetch) == told.run(inline=True, prefetch=prefetch)


def test_a_state_describes_what_was_handed_over_and_what_was_cut_ahead_comes_again_once(tmp_path: Path) -> None:
    spooled(tmp_path / "spool")
    how: dict[str, Any] = {"cache_dir": tmp_path / "cache", "prefetch": 2}
    with opened(tmp_path / "spool", **how) as loader:
        first = ids(loader.next())
        ready(loader, 2)
        state = json.loads(json.dumps(loader.state_dict()))
        loader.commit(state)
        assert state["journal"]["entries"] == 1
    with opened(tmp_path / "spool", **how) as again:
        again.load_state_dict(state)
        names = first + [name for batch in again for name in ids(batch)]
        assert len(names) == len(set(names)) == again.losses["cut"] == 24
    assert [step for step, _, _ in entries(tmp_path / "cache")] == [0, 1, 2, 3]  # the last is the end


TRAINER = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from loaders.test_feed_ahead import ready
from loaders.test_rollout_feed import ids, opened
folder = Path({folder!r})
with opened(folder / "spool", cache_dir=folder / "cache", prefetch=2) as loader:
    names = ids(loader.next())
    state = loader.state_dict()
    loader.commit(state)
    ready(loader, 2)
    (folder / "checkpoint.json").write_text(json.dumps([state, names]))
    print("ahead", flush=True)
    time.sleep(600)
"""


def test_a_trainer_that_is_killed_after_cutting_ahead_loses_and_doubles_nothing(tmp_path: Path) -> None:
    spooled(tmp_path / "spool")
    tests = os.fspath(Path(__file__).parents[1])
    program = TRAINER.format(tests=tests, folder=os.fspath(tmp_path))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None and trainer.stdout.readline() == "ahead\n"
        trainer.send_signal(signal.SIGKILL)
    assert len(entries(tmp_path / "cache")) == 3  # two of which nothing was handed over
    state, names = json.loads((tmp_path / "checkpoint.json").read_text())
    with opened(tmp_path / "spool", cache_dir=tmp_path / "cache") as again:
        again.load_state_dict(state)
        names += [name for batch in again for name in ids(batch)]
        again.commit(again.state_dict())
    assert Counter(names) == Counter(f"0/{record['rollout_id']}" for record in random_rollouts(groups=6))
    assert [step for step, _, _ in entries(tmp_path / "cache")] == [0, 1, 2, 3]
    assert list((tmp_path / "spool").glob("*/*.rollouts")) == []


def of_two(rank: int, folder: Path, **how: Any) -> Any:
    return opened(folder / "spool", rank=rank, world_size=2, batch_size=4, cache_dir=folder / "cache", **how)


def test_other_ranks_run_ahead_too_and_follow_what_is_withdrawn(tmp_path: Path) -> None:
    spooled(tmp_path / "spool")
    with of_two(0, tmp_path, prefetch=2) as first, of_two(1, tmp_path, prefetch=2) as second:
        names = ids(first.next()) + ids(second.next())
        for loader in (first, second):
            ready(loader, 2)
        second.policy_version = 7  # before the first does
        first.policy_version = 7
        for _ in range(2):
            batches = first.next(), second.next()
            assert {batch.metadata["policy_version_trained"] for batch in batches} == {7}
            names += [name for batch in batches for name in ids(batch)]
        assert len(names) == len(set(names)) == 24


def test_a_rank_that_trains_what_the_first_has_withdrawn_is_told(tmp_path: Path) -> None:
    spooled(tmp_path / "spool")
    with of_two(0, tmp_path) as first, of_two(1, tmp_path) as second:
        for loader in (first, second):
            loader.next()
            ready(loader, 1)
        first.policy_version = 7
        first.next()
        second.next()  # of version 1: nobody told it of another
        with pytest.raises(StateError, match="rank 0 has withdrawn rollout batch 1"):
            second.next()


@pytest.mark.parametrize("max_staleness", [0, 4])
def test_a_rank_that_trains_another_version_than_the_first_is_told_at_once(tmp_path: Path, max_staleness: int) -> None:
    spooled(tmp_path / "spool")
    live = {"max_staleness": max_staleness, "timeout_s": None}
    with of_two(0, tmp_path, live=live) as first, of_two(1, tmp_path, live=live) as second:
        first.next()
        second.policy_version = 7
        differs = "rank 0 trains version 0 in rollout batch 0, and this rank trains version 7"
        for _ in range(2):
            with pytest.raises(StateError, match=differs):
                second.next()


def test_a_replay_that_trains_another_version_is_told_at_once(tmp_path: Path) -> None:
    spooled(tmp_path / "spool")
    how: dict[str, Any] = {"cache_dir": tmp_path / "cache"}
    with opened(SpoolFeed(tmp_path / "spool", keep=True), **how) as loader:
        steps = [ids(loader.next()), ids(loader.next())]
    live = {"replay_journal": True, "timeout_s": None}
    with opened(SpoolFeed(tmp_path / "spool"), **how, live=live) as again:
        assert ids(again.next()) == steps[0]
        again.policy_version = 5
        with pytest.raises(
            StateError, match="the journal trains version 1 in rollout batch 1, and this run trains version 5"
        ):
            again.next()


def test_a_replay_of_a_journal_leaves_out_what_was_withdrawn(tmp_path: Path) -> None:
    spooled(tmp_path / "spool")

    def train(loader: Any) -> list[list[Any]]:
        steps = [ids(loader.next())]
        if not loader._run.checkpoint.replays:
            ready(loader, 1)
        loader.policy_version = 5
        return steps + [ids(loader.next()) for _ in range(2)]

    how: dict[str, Any] = {"cache_dir": tmp_path / "cache"}
    with opened(SpoolFeed(tmp_path / "spool", keep=True), **how) as loader:
        steps = train(loader)
    assert any(withdrawn for _, _, withdrawn in entries(tmp_path / "cache"))
    with opened(SpoolFeed(tmp_path / "spool"), **how, live={"replay_journal": True}) as again:
        assert train(again) == steps


def test_a_replay_ends_with_what_was_handed_over_before_the_loader_was_closed(tmp_path: Path) -> None:
    spooled(tmp_path / "spool")
    how: dict[str, Any] = {"cache_dir": tmp_path / "cache"}
    with opened(SpoolFeed(tmp_path / "spool", keep=True), **how, prefetch=2) as loader:
        steps = [ids(loader.next())]
        ready(loader, 2)
    with opened(SpoolFeed(tmp_path / "spool"), **how, live={"replay_journal": True}) as again:
        assert [ids(batch) for batch in again] == steps


def test_an_error_comes_behind_the_rollout_batches_before_it_and_again_until_it_is_mended() -> None:
    feed = MemoryFeed()
    records = [{**record, "policy_version": 0} for record in random_rollouts(groups=4)]
    with opened(feed, max_length=max(len(record["token_ids"]) for record in records), prefetch=2) as loader:
        source = feed.source()
        for record in records[:8]:
            source.put(record)
        length = len(records[8]["token_ids"])
        source.put({name: np.resize(v, 999) if np.size(v) == length else v for name, v in records[8].items()})
        loader.prefetch(2)
        wait_for(lambda: feed.counters()["received"] == 9)
        assert len(ids(loader.next())) == 8
        for _ in range(2):
            with pytest.raises(RecordError, match="999 tokens"):
                loader.next()


def test_a_forked_child_is_told_that_the_feed_belongs_to_its_parent(tmp_path: Path) -> None:
    with opened(filled(), cache_dir=tmp_path) as loader:
        loader.next()
        told = in_child(loader.next)
        assert isinstance(told, LoaderError) and "was forked" in str(told)
        assert in_child(loader.close) is None
        assert len(list(loader)) == 2
    assert len(entries(tmp_path)) == 4  # the child wrote nothing


def test_closing_and_forgetting_a_loader_end_its_thread() -> None:
    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "millstream-intake"]

    wait_for(lambda: not threads())
    with opened(MemoryFeed()) as closed:
        closed.prefetch(1)
        assert len(threads()) == 1
    wait_for(lambda: not threads())
    loader = opened(MemoryFeed())
    loader.prefetch(1)
    forgotten = weakref.ref(loader)
    del loader
    gc.collect()
    assert forgotten() is None
    wait_for(lambda: not threads())
