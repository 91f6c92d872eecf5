"""Training from a feed: each rollout as often as was said, by rules, and exactly from the last committed state on."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from millstream import (
    LoaderError,
    LossWarning,
    RecordError,
    RolloutDataLoader,
    StateError,
    TrainingBatch,
    UnknownLength,
    WaitTimeout,
)
from millstream.feeds import Control, Gather, MemoryFeed, SpoolFeed
from millstream.feeds.admission import JournalReader
from millstream.feeds.spool import SpoolSource
from millstream.loaders import Agreement
from rollouts.samples import random_rollouts

LIVE = {"groups_per_batch": 2, "group_size": 4, "timeout_s": 20}


def filled(groups: int = 6, *, close: bool = True, **given: Any) -> MemoryFeed:
    feed = MemoryFeed()
    source = feed.source()
    for record in random_rollouts(groups=groups, **given):
        source.put({**record, "policy_version": 0})
    if close:
        source.close()
    return feed


def spooled(path: Path, groups: int = 6, seed: int = 0, **given: Any) -> None:
    with SpoolSource(path, producer=f"engine-{seed}", **given) as source:
        for record in random_rollouts(seed, groups=groups):
            name = f"{seed}/{record['rollout_id']}"
            source.put({**record, "rollout_id": name, "group_id": f"{seed}/{record['group_id']}", "policy_version": 0})


def opened(feed: Any, **given: Any) -> Any:
    live = {**LIVE, **given.pop("live", {})}
    return RolloutDataLoader(feed, live=live, framework="numpy", **{"batch_size": 8, **given})


def ids(batch: TrainingBatch) -> list[Any]:
    found: list[Any] = batch.metadata["rollout_id"]
    return found


def test_every_rollout_is_trained_on_once_in_each_pass_in_another_order() -> None:
    with opened(filled(), batch_size=4, live={"passes": 2}) as loader:
        batches = list(loader)
    seen = Counter(name for batch in batches for name in ids(batch))
    assert seen == {record["rollout_id"]: 2 for record in random_rollouts(groups=6)}
    first, second = (
        [name for batch in batches for name in ids(batch) if batch.metadata["epoch"] == epoch] for epoch in (0, 1)
    )
    assert sorted(first) == sorted(second)
    assert first != second


def test_advantages_are_those_of_whole_groups_however_steps_are_cut() -> None:
    with opened(filled(), batch_size=8) as whole, opened(filled(), batch_size=3) as cut:
        found = [
            {
                name: row[row != 0].tolist()[:1]
                for batch in loader
                for name, row in zip(ids(batch), batch.metadata["advantages"], strict=True)
            }
            for loader in (whole, cut)
        ]
    assert found[0] == found[1]


def test_a_profile_tells_how_long_kept_and_dropped_rollouts_are() -> None:
    with opened(filled(), live={"group_size": 3, "groups_per_batch": 1}) as loader:
        list(loader)
        losses, found = loader.losses, loader.get_profiling_results()["mean_lengths"]
    assert found == {fate: losses[f"{fate}_tokens"] / losses[fate] for fate in ("arrived", "cut", "late")}


def test_a_feed_has_no_length_goes_nowhere_and_ends_when_its_producers_close_it() -> None:
    with opened(filled(2)) as loader:
        with pytest.raises(UnknownLength, match="no length"):
            loader.get_num_batches()
        with pytest.raises(LoaderError, match="cannot go"):
            loader.seek(7)
        loader.seek(0)
        assert len(list(loader)) == 1
        assert list(loader) == []
        with pytest.raises(LoaderError, match="the feed has ended"):
            loader.next()


def test_who_waits_too_long_hears_what_is_missing() -> None:
    feed = filled(1, close=False)
    with (
        opened(feed, live={"timeout_s": 0.1}) as loader,
        pytest.raises(WaitTimeout, match="1 of 2 groups complete") as told,
    ):
        loader.next()
    assert "producers" in str(told.value)


def test_close_ends_the_wait_of_another_thread_within_a_second() -> None:
    loader = opened(MemoryFeed(), live={"timeout_s": None})
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            loader.next()
        except LoaderError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.2)
    loader.close()
    waiting.join(2)
    assert not waiting.is_alive()
    assert len(errors) == 1


def test_the_policy_version_counts_rollout_batches_unless_the_trainer_says_it() -> None:
    feed = filled(6)
    with opened(feed) as loader:
        loader.next()
        assert loader.policy_version == 1
        assert feed.source().control().policy_version == 1
        loader.policy_version = 5
        loader.next()
        assert loader.policy_version == 5
        with pytest.raises(LoaderError, match="went back"):
            loader.policy_version = 4


def test_what_aged_in_the_queue_is_not_trained_on() -> None:
    with opened(filled(6), live={"max_staleness": 0}) as loader:
        assert len(ids(loader.next())) == 8
        with pytest.raises(LoaderError, match="has ended"):
            loader.next()  # version 1 is trained now, and everything is of version 0
        assert loader.losses["stale"] == 16


@pytest.mark.parametrize("steps", [0, 1, 3, 4])
def test_a_state_goes_on_in_another_process_exactly_where_it_was_saved(tmp_path: Path, steps: int) -> None:
    spooled(tmp_path / "spool")
    how: dict[str, Any] = {"batch_size": 4, "cache_dir": tmp_path / "cache", "live": {"passes": 2}}
    with opened(tmp_path / "spool", **how) as loader:
        before = [ids(loader.next()) for _ in range(steps)]
        state = loader.state_dict()
        rest = [ids(batch) for batch in loader]
    assert len(before + rest) == 12
    with opened(tmp_path / "spool", **how) as again:
        again.load_state_dict(state)
        assert [ids(batch) for batch in again] == rest


def test_what_was_committed_is_let_go_and_never_comes_again(tmp_path: Path) -> None:
    spooled(tmp_path / "spool")
    how: dict[str, Any] = {"cache_dir": tmp_path / "cache"}
    with opened(tmp_path / "spool", **how) as loader:
        seen = ids(loader.next())
        loader.state_dict()
        state = loader.state_dict()
        loader.commit(state)
        assert list((tmp_path / "spool").glob("engine-0/*.rollouts")) == []  # the sidecar holds what waits
        assert len(list((tmp_path / "cache" / "sidecars").iterdir())) == 1
    spooled(tmp_path / "spool", seed=1)
    with opened(tmp_path / "spool", **how) as again:
        again.load_state_dict(state)
        rest = [name for batch in again for name in ids(batch)]
    assert Counter(seen + rest) == Counter(
        f"{seed}/{record['rollout_id']}" for seed in (0, 1) for record in random_rollouts(seed, groups=6)
    )


def test_reset_goes_back_to_the_last_committed_state(tmp_path: Path) -> None:
    spooled(tmp_path / "spool")
    with opened(tmp_path / "spool", cache_dir=tmp_path / "cache") as loader:
        first = ids(loader.next())
        loader.reset()
        assert ids(loader.next()) == first
        loader.commit(loader.state_dict())
        second = ids(loader.next())
        loader.reset()
        assert ids(loader.next()) == second


def test_reset_does_not_warn_of_what_the_run_itself_has_left(tmp_path: Path) -> None:
    spooled(tmp_path / "spool")
    with opened(tmp_path / "spool", cache_dir=tmp_path / "cache") as loader:
        first = ids(loader.next())
        loader.state_dict()
        loader.reset()
        assert ids(loader.next()) == first  # a warning would be an error
    with opened(tmp_path / "spool", cache_dir=tmp_path / "cache") as loader:
        with pytest.warns(LossWarning, match="an earlier run left rollouts here"):
            assert ids(loader.next()) == first
        loader.reset()
        assert ids(loader.next()) == first


def test_without_a_place_for_what_waits_there_is_no_state() -> None:
    with opened(filled()) as loader, pytest.raises(LoaderError, match="cache_dir"):
        loader.state_dict()


def test_states_of_other_loaders_are_refused(tmp_path: Path) -> None:
    spooled(tmp_path / "spool")
    with opened(tmp_path / "spool", cache_dir=tmp_path / "cache") as loader:
        state = loader.state_dict()
        with pytest.raises(StateError, match="seed"):
            loader.load_state_dict({**state, "seed": 5})
        with pytest.raises(StateError, match="sidecar"):
            loader.load_state_dict({**state, "sidecar": {"file": "admission-00.bin"}})
        with pytest.raises(StateError):
            loader.load_state_dict({**state, "phases": [[0, 1]]})
    with RolloutDataLoader(random_rollouts(), framework="numpy") as fixed, pytest.raises(StateError, match="loader"):
        fixed.load_state_dict(state)


def test_the_journal_gives_the_same_batches_again_and_explains_every_step(tmp_path: Path) -> None:
    spooled(tmp_path / "spool")
    how: dict[str, Any] = {"batch_size": 3, "cache_dir": tmp_path / "cache", "balance": "karmarkar_karp"}
    with opened(SpoolFeed(tmp_path / "spool", keep=True), **how) as loader:
        seen = [ids(batch) for batch in loader]
        assert [
            [span.id for origin in loader.explain(step) for span in origin.spans] for step in range(len(seen))
        ] == seen
        assert loader.steps_of(seen[4][0]) == [4]
        loader.commit(loader.state_dict())
    spooled(tmp_path / "spool", seed=2)  # what came later changes nothing
    with opened(SpoolFeed(tmp_path / "other"), **how, live={"replay_journal": True}) as again:
        spooled(tmp_path / "other", seed=2)
        spooled(tmp_path / "other", seed=0)
        assert [ids(again.next()) for _ in seen] == seen


def test_ranks_follow_the_journal_of_the_first_and_share_its_batches(tmp_path: Path) -> None:
    spooled(tmp_path / "spool")
    how: dict[str, Any] = {"batch_size": 2, "cache_dir": tmp_path / "cache", "world_size": 2}
    with opened(tmp_path / "spool", rank=0, **how) as first, opened(tmp_path / "spool", rank=1, **how) as second:
        seen = [(ids(first.next()), ids(second.next())) for _ in range(6)]
        state = first.state_dict()
        with pytest.raises(StateError, match="rank 1"):
            first.load_state_dict(second.state_dict())
        names = Counter(name for pair in seen for half in pair for name in half)
        assert names == Counter(f"0/{record['rollout_id']}" for record in random_rollouts(groups=6))
        assert state["step"] == 6


def test_ranks_compare_their_plans_before_the_first_batch_of_a_feed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[Any] = []
    monkeypatch.setattr(Agreement, "check", lambda _, plan: compared.append(plan()))
    with opened(filled(2), batch_size=4, world_size=2, rank=0, cache_dir=tmp_path) as loader:
        loader.next()
    assert [plan["step"] for plan in compared] == [0]


def test_nothing_more_is_received_while_something_waits_for_room() -> None:
    feed = filled(4, close=False)
    with opened(feed, batch_size=4, live={"groups_per_batch": 1, "capacity_groups": 1}) as loader:
        for _ in range(3):
            loader.next()
            feed.source().put([{**record, "group_id": "more"} for record in random_rollouts(9, groups=1)])
        assert feed.counters()["received"] == 16


def test_a_rank_that_follows_lets_in_what_the_first_has_let_in_and_no_more(tmp_path: Path) -> None:
    spooled(tmp_path / "spool", gather=Gather(most_rollouts=1))
    how: dict[str, Any] = {"batch_size": 2, "cache_dir": tmp_path / "cache", "world_size": 2}
    how["live"] = {"groups_per_batch": 1, "capacity_groups": 1}
    with opened(tmp_path / "spool", rank=0, **how) as first, opened(tmp_path / "spool", rank=1, **how) as second:
        for _ in range(5):
            assert len(set(ids(first.next()) + ids(second.next()))) == 4
            assert second._run.intake.decide.held == first._run.intake.decide.held <= 5
            first.commit(first.state_dict())  # what the second has not let in would be gone


def test_groups_stay_together_where_they_are_kept() -> None:
    with opened(filled(), batch_size=1, keep_groups=True) as loader:
        for batch in loader:
            assert len(set(batch.metadata["group_id"])) == 1
            assert batch.metadata["rows"] == 4


class Deaf:
    """A listener that fails at its first batch."""

    def __init__(self) -> None:
        self.heard: list[TrainingBatch] = []

    def on_batch(self, batch: TrainingBatch) -> None:
        self.heard.append(batch)
        if len(self.heard) == 1:
            raise RuntimeError("not now")


def test_a_batch_that_a_listener_did_not_take_comes_again_and_nothing_is_lost(tmp_path: Path) -> None:
    listener = Deaf()
    with opened(filled(), callbacks=[listener], micro_tokens=60, cache_dir=tmp_path) as loader:
        with pytest.raises(RuntimeError, match="not now"):
            loader.next()
        assert (loader.step, loader.policy_version) == (0, 1)
        with pytest.raises(LoaderError, match="a listener failed"):
            loader.get_batch(3)
        with pytest.raises(LoaderError, match="a listener failed"):
            loader.get_micro_batches()
        assert loader.state_dict()["step"] == 0  # it stands before that batch
        names = [name for batch in loader for name in ids(batch)]
    assert len(names) == len(set(names)) == 24
    assert ids(listener.heard[0]) == ids(listener.heard[1])


def test_a_state_does_not_wait_for_rollouts_that_another_thread_waits_for(tmp_path: Path) -> None:
    feed = filled(3, close=False)
    with opened(feed, cache_dir=tmp_path, live={"timeout_s": None}) as loader:
        first = ids(loader.next())
        waiting = threading.Thread(target=loader.next)
        waiting.start()
        state = loader.state_dict()
        loader.commit(state)
        assert state["step"] == 1 and waiting.is_alive()
        for record in random_rollouts(9, groups=1):
            names = {"rollout_id": f"9/{record['rollout_id']}", "group_id": "9"}
            feed.source().put({**record, **names, "policy_version": 0})
        waiting.join(20)
        assert not waiting.is_alive() and loader.step == 2 and len(first) == 8


def test_a_fixed_set_says_that_it_has_no_policy_version() -> None:
    with RolloutDataLoader(random_rollouts(), framework="numpy") as loader:
        with pytest.raises(LoaderError, match="has no policy_version"):
            loader.policy_version  # noqa: B018
        with pytest.raises(LoaderError, match="has no policy_version"):
            loader.policy_version = 3
    with opened(filled()) as feed, pytest.raises(LoaderError, match="no fixed set"):
        feed.rollouts  # noqa: B018


def test_an_explained_row_of_rollouts_names_its_id(tmp_path: Path) -> None:
    with (
        opened(filled(2), cache_dir=tmp_path) as feed,
        RolloutDataLoader(random_rollouts(groups=2), framework="numpy") as fixed,
    ):
        for loader in (feed, fixed):
            batch = loader.next()
            assert [span.id for origin in loader.explain(0) for span in origin.spans] == ids(batch)


def test_micro_batches_of_a_feed_share_their_denominator() -> None:
    with opened(filled(), micro_tokens=60) as loader:
        for step in loader.iterate_micro_batches():
            assert len({micro.metadata["loss_denominator"] for micro in step}) == 1
            assert sum(len(ids(micro)) for micro in step) == 8


def test_a_rollout_the_model_cannot_take_stops_the_run_with_its_name_and_nothing_is_lost(tmp_path: Path) -> None:
    spooled(tmp_path / "spool")
    with opened(tmp_path / "spool", max_length=8, cache_dir=tmp_path / "cache") as loader:
        for _ in range(2):
            with pytest.raises(RecordError, match="has room for 8"):
                loader.next()
        state = loader.state_dict()
    with opened(tmp_path / "spool", cache_dir=tmp_path / "cache") as again:
        again.load_state_dict(state)
        assert sum(len(ids(batch)) for batch in again) == 24


def test_what_is_left_of_a_group_of_two_is_dropped_where_an_estimator_compares() -> None:
    """The other one failed: with nothing to compare, its advantage would be an error for ever."""
    records = random_rollouts(groups=2, size=2)
    records[0]["finish"] = "error"
    feed = MemoryFeed()
    with feed.source() as source:
        source.put([{**record, "extra": {"group_size": 2}, "policy_version": 0} for record in records])
    with opened(feed, live={"group_size": None, "groups_per_batch": 1}) as loader:
        assert [sorted(ids(batch)) for batch in loader] == [["1-0", "1-1"]]
        assert (loader.losses["incomplete"], loader.losses["error"]) == (1, 1)


def test_what_would_drop_or_compare_nothing_is_refused() -> None:
    with pytest.raises(LoaderError, match="drop_last"):
        opened(MemoryFeed(), drop_last=True)
    with pytest.raises(LoaderError, match="groups of one"):
        opened(MemoryFeed(), live={"group_size": 1})


def test_a_paced_producer_hears_again_when_all_its_groups_were_dropped() -> None:
    """Groups without spread are not trained on: who waited for the next batch to be delivered would wait for ever."""
    feed, wanted = MemoryFeed(), {"dynamic_sampling": True, "max_staleness": 1, "groups_per_batch": 1}
    told = []

    def produce() -> None:
        source, begun = feed.source(), 0
        while not (word := source.control()).closed:
            told.append(word.groups_until)
            if word.groups_until is None or begun >= word.groups_until:
                time.sleep(0.01)
                continue
            for sample in range(2):
                reward = float(sample) if begun == 7 else 0.0  # the first that teaches anything
                source.put(
                    {
                        "rollout_id": f"{begun}-{sample}",
                        "group_id": begun,
                        "token_ids": [5, 6],
                        "loss_mask": [0, 1],
                        "reward": reward,
                        "finish": "stop",
                        "policy_version": 0,
                    }
                )
            begun += 1
        source.close()

    producer = threading.Thread(target=produce)
    feed.tell(Control(0, 0, 0))
    producer.start()
    with opened(feed, live={**wanted, "group_size": 2}) as loader:
        assert set(loader.next().metadata["group_id"]) == {7}
    producer.join(5)
    assert not producer.is_alive()  # it heard that the feed was closed


def test_the_other_ranks_end_when_the_first_does(tmp_path: Path) -> None:
    spooled(tmp_path / "spool", groups=2)
    how: dict[str, Any] = {"batch_size": 4, "cache_dir": tmp_path / "cache", "world_size": 2}
    with opened(tmp_path / "spool", rank=0, **how) as first, opened(tmp_path / "spool", rank=1, **how) as second:
        halves = [len(list(loader)) for loader in (first, second)]
    assert halves == [1, 1]


@pytest.mark.parametrize("limit", [{"max_length": 16}, {"model_config": {"vocab_size": 970}}])
def test_rollouts_the_model_cannot_take_are_left_out_where_that_was_asked_for(limit: dict[str, Any]) -> None:
    how: dict[str, Any] = {"on_bad": "skip", "advantages": {"allow_singleton": True}, **limit}
    with opened(filled(), live={"group_size": "any", "group_timeout_s": 0.01}, **how) as loader:
        trained = sum(len(ids(batch)) for batch in loader)
        left_out = sum(loader.losses.get(reason, 0) for reason in ("too_long", "unknown_id"))
    assert trained + left_out == 24
    assert left_out > 0
    with RolloutDataLoader(random_rollouts(groups=6), framework="numpy", **how) as fixed:
        assert len(fixed.rollouts.block) == 24 - left_out


@pytest.mark.parametrize(
    ("said", "told", "counted"),
    [
        (8, "group 'g0' has 4 rollouts, and group_size says 8", {"short_groups": 6}),
        (3, "group 'g0' has more than 3 rollouts, and group_size says 3", {"late": 6}),
    ],
)
def test_groups_of_another_size_than_was_said_are_counted_and_told_once(
    said: int, told: str, counted: dict[str, int]
) -> None:
    feed = MemoryFeed()
    with feed.source() as source:
        source.put([{**record, "policy_version": 0} for record in random_rollouts(groups=6)])
    with opened(feed, live={"group_size": said}) as loader:
        with pytest.warns(LossWarning) as warned:
            trained = sum(len(ids(batch)) for batch in loader)
        assert [told in str(each.message) for each in warned] == [True]
        assert counted.items() <= loader.losses.items() and trained == 24 - counted.get("late", 0)


@pytest.mark.parametrize("way", ["memory", "spool"])
def test_who_interrupts_a_step_between_the_feed_and_the_line_and_goes_on_loses_nothing(
    way: str, tmp_path: Path
) -> None:
    feed: Any = filled()
    if way == "spool":
        spooled(tmp_path / "spool", gather=Gather(most_rollouts=4))
        feed = SpoolFeed(tmp_path / "spool")
    receive, interrupted = feed.receive, list[Any]()

    def received(timeout_s: float) -> Any:
        arrivals = receive(timeout_s)
        if arrivals and len(interrupted) < 2:
            interrupted.append(arrivals)
            raise KeyboardInterrupt
        return arrivals

    feed.receive = received
    with opened(feed) as loader:
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                loader.next()
        names = [name for batch in loader for name in ids(batch)]
        assert len(names) == len(set(names)) == 24 and "repeated" not in loader.losses


def test_a_version_that_the_trainer_says_is_told_at_once() -> None:
    feed = filled(6)
    with opened(feed) as loader:
        loader.next()
        loader.policy_version = 9
        assert feed.source().control().policy_version == 9


def test_the_last_rollout_batch_can_be_shown_and_rows_say_whether_they_came_again() -> None:
    replay = {"share": 0.5, "max_uses": 2}
    with opened(filled(3), live={"replay": replay}) as loader:
        assert not any(loader.next().metadata["replayed"])
        assert "group 'g0'" in str(loader.show(0))
        assert Counter(loader.next().metadata["replayed"]) == {True: 4, False: 4}


def test_rollouts_over_http_need_a_folder(tmp_path: Path) -> None:
    with pytest.raises(LoaderError, match="and none was given"):
        RolloutDataLoader("http://127.0.0.1:0")
    live = {**LIVE, "feed": {"directory": tmp_path / "inbox", "token": "secret"}}
    with RolloutDataLoader("http://127.0.0.1:0", live=live, framework="numpy"):
        assert (tmp_path / "inbox").is_dir()
    with RolloutDataLoader("http://127.0.0.1:0", live=live, cache_dir=tmp_path / "cache", rank=1, world_size=2):
        pass


@pytest.mark.parametrize("in_time", [True, False])
def test_who_begins_without_the_state_of_an_earlier_run_is_told_what_waits_and_may_load_it(
    tmp_path: Path, in_time: bool
) -> None:
    spooled(tmp_path / "spool")
    how: dict[str, Any] = {"cache_dir": tmp_path / "cache"}
    with opened(tmp_path / "spool", **how) as loader:
        loader.next()
        state = loader.state_dict()
        loader.commit(state)
    with opened(tmp_path / "spool", **how) as again:
        with pytest.warns(LossWarning, match="an earlier run left rollouts"):
            assert list(again) == []  # all of it is in the sidecar
        assert (tmp_path / "cache" / "admissions.jsonl.1").exists()
        if in_time:
            again.load_state_dict(state)
            assert sum(len(ids(batch)) for batch in again) == 16
            assert [len(again.explain(step)) for step in range(3)] == [8, 8, 8]
    with opened(tmp_path / "spool", **how) as resumed:
        resumed.load_state_dict(state)
        assert sum(len(ids(batch)) for batch in resumed) == 16
        assert [len(resumed.explain(step)) for step in range(3)] == [8, 8, 8]
    assert len(list(JournalReader(tmp_path / "cache" / "admissions.jsonl.2"))) == 1  # the end that the other run saw


def test_a_state_of_a_journal_that_is_gone_is_refused_and_leaves_the_others(tmp_path: Path) -> None:
    spooled(tmp_path / "spool")
    how: dict[str, Any] = {"cache_dir": tmp_path / "cache"}
    with opened(tmp_path / "spool", **how) as loader:
        loader.next()
        state = loader.state_dict()
    (tmp_path / "cache" / "admissions.jsonl").unlink()
    with opened(filled(), **how) as other, pytest.warns(LossWarning):
        assert len(list(other)) == 3
    with opened(tmp_path / "spool", **how) as again, pytest.raises(StateError, match="nor is one beside it"):
        again.load_state_dict(state)
    assert len(list(JournalReader(tmp_path / "cache" / "admissions.jsonl"))) == 4  # and the end


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"packing": 1}, "packing must be True or False"),
        ({"keep_groups": "a"}, "keep_groups must be True or False"),
        ({"compute_advantages": "no"}, "compute_advantages must be True or False"),
        ({"advantages": [1]}, "is no settings"),
        ({"live": [4]}, "is no settings"),
        ({"live": {"group_size": "four"}}, "group_size is 'four'"),
        ({"live": {"group_size": 0}}, "group_size is 0"),
        ({"live": {"replay": {"uses": 2}}}, "no setting 'uses'"),
    ],
)
def test_settings_that_cannot_work_are_errors_with_a_hint(given: dict[str, Any], told: str) -> None:
    with pytest.raises(LoaderError, match=told):
        RolloutDataLoader(MemoryFeed(), **given)
