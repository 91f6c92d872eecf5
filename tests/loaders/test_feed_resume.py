"""Going on with a feed: whoever is refused changes nothing, and what lies on disk may be newer than the state."""

from __future__ import annotations

import errno
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from loaders.test_rollout_feed import filled, ids, opened, spooled
from millstream import BusyError, LoaderError, LossWarning, StateError, StoreError, WaitTimeout
from millstream.feeds import SpoolFeed
from millstream.feeds.admission import JournalReader
from millstream.loaders.rollouts import steps
from millstream.loaders.runs import JOURNAL
from millstream.loaders.runs import feed as feed_runs
from millstream.storage import disk


@pytest.fixture
def how(tmp_path: Path) -> dict[str, Any]:
    spooled(tmp_path / "spool")
    return {"batch_size": 4, "cache_dir": tmp_path / "cache"}


def test_every_state_that_was_saved_can_be_gone_on_with_until_one_is_committed(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    with opened(tmp_path / "spool", **how) as loader:
        states, steps = [], []
        for _ in range(6):
            states.append(json.loads(json.dumps(loader.state_dict())))
            steps.append(ids(loader.next()))
        loader.commit(states[2])
    shutil.copytree(tmp_path, tmp_path / "after")  # sidecars and the journal reach behind all states but the last
    for number in (2, 3, 5):
        shutil.rmtree(tmp_path / "spool")
        shutil.rmtree(tmp_path / "cache")
        shutil.copytree(tmp_path / "after", tmp_path, dirs_exist_ok=True)
        with opened(tmp_path / "spool", **how) as again:
            again.load_state_dict(states[number])
            assert [ids(batch) for batch in again] == steps[number:]
            assert len(list(JournalReader(tmp_path / "cache" / JOURNAL))) == 4  # and the end
    with opened(tmp_path / "spool", **how) as again, pytest.raises(StateError, match="is missing"):
        again.load_state_dict(states[1])


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("prefetch", [1, 3])
def test_a_state_of_a_batch_is_the_state_that_was_saved_then(
    tmp_path: Path, how: dict[str, Any], passes: int, prefetch: int
) -> None:
    how |= {"batch_size": 2, "prefetch": prefetch, "live": {"groups_per_batch": 1, "passes": passes}}
    with opened(tmp_path / "spool", **how) as loader:
        states, batches = [loader.state_dict()], []
        for batch in loader:
            batches.append(batch)
            states.append(loader.state_dict())
        assert len(batches) == 12 * passes
        for step, batch in enumerate(batches):
            assert loader.state_dict(before=batch) == loader.state_dict(before=step) == states[step]
            assert loader.state_dict(after=batch) == states[step + 1]
        loader.commit(states[5])
        assert loader.state_dict(before=5) == states[5]
        with pytest.raises(LoaderError, match="not known any more"):
            loader.state_dict(before=4)
        chosen = loader.state_dict(before=7)
    with opened(tmp_path / "spool", **how) as again:
        again.load_state_dict(json.loads(json.dumps(chosen)))
        assert [ids(batch) for batch in again] == [ids(batch) for batch in batches[7:]]


def test_the_states_of_64_steps_are_kept_and_no_more(tmp_path: Path) -> None:
    spooled(tmp_path / "spool", groups=40)
    live = {"groups_per_batch": 1}
    with opened(tmp_path / "spool", batch_size=1, cache_dir=tmp_path / "cache", live=live) as loader:
        rows = [ids(loader.next()) for _ in range(100)]
        assert loader.state_dict(before=36)["step"] == 36
        with pytest.raises(LoaderError, match="not known any more: the last 64 steps are"):
            loader.state_dict(before=35)
        state = loader.state_dict(before=50)
        loader.load_state_dict(state)
        assert [ids(loader.next()) for _ in range(50)] == rows[50:]


def test_states_are_kept_within_the_memory_budget(tmp_path: Path, how: dict[str, Any]) -> None:
    def trained(memory_budget: int | None) -> tuple[int, int]:
        """Bytes of rollouts that are held after six steps, and how many of their states are known."""
        cache = tmp_path / f"cache-{memory_budget}"
        with opened(tmp_path / "spool", **{**how, "cache_dir": cache, "memory_budget": memory_budget}) as loader:
            for _ in range(5):
                loader.next()
            known = 0
            for step in range(5):
                with suppress(LoaderError):
                    known += loader.state_dict(before=step)["step"] == step
            return loader.get_profiling_results()["memory"]["rollouts"], known

    held, known = trained(None)
    assert known == 5
    less, fewer = trained(held)
    assert less <= held // 2 + held // 3
    assert 0 < fewer < 5


def test_reset_goes_back_to_the_state_that_was_loaded(tmp_path: Path, how: dict[str, Any]) -> None:
    with opened(tmp_path / "spool", **how) as loader:
        loader.next()
        state = loader.state_dict()
        loader.commit(state)  # the spool lets go of everything: the sidecar has it
    with opened(tmp_path / "spool", **how) as again:
        again.load_state_dict(state)
        step = ids(again.next())
        again.reset()
        assert ids(again.next()) == step


def test_a_second_trainer_on_a_spool_is_refused_and_the_first_goes_on(tmp_path: Path, how: dict[str, Any]) -> None:
    with opened(tmp_path / "spool", **how) as loader:
        loader.next()
        with pytest.raises(BusyError, match=r"another consumer takes from this spool\n.*wait for it to end"):
            opened(tmp_path / "spool", **how)
        loader.commit(loader.state_dict())
        assert sum(len(ids(batch)) for batch in loader) == 20


@pytest.mark.parametrize("saved", [False, True])
def test_a_second_trainer_with_the_same_cache_dir_is_refused_and_leaves_the_journal_of_the_first(
    tmp_path: Path, how: dict[str, Any], saved: bool
) -> None:
    spooled(tmp_path / "other")
    with opened(tmp_path / "spool", **how) as loader, opened(tmp_path / "other", **how) as second:
        loader._run.intake.inline = True  # nothing is written ahead
        loader.next()
        for _ in range(2):
            with pytest.raises(StoreError, match="another writer is at work here"):
                second.state_dict() if saved else second.next()
        assert len(list(JournalReader(tmp_path / "cache" / JOURNAL))) == 1
        assert list((tmp_path / "cache").glob(f"{JOURNAL}.[0-9]*")) == []


def test_the_journal_of_another_run_is_put_aside_even_if_the_first_deed_is_a_state(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    with opened(filled(), **how) as earlier:
        assert len(list(earlier)) == 6
    with opened(tmp_path / "spool", **how) as loader:
        loader.load_state_dict(loader.state_dict())
    assert len(list(JournalReader(tmp_path / "cache" / f"{JOURNAL}.1"))) == 4  # and the end


@pytest.mark.parametrize("again", [False, True])
def test_a_state_from_before_the_first_cut_puts_aside_whatever_journal_it_finds(
    tmp_path: Path, how: dict[str, Any], again: bool
) -> None:
    def entries(name: str) -> int:
        return len(list(JournalReader(tmp_path / "cache" / name)))

    with opened(tmp_path / "spool", **how) as loader:
        loader._run.intake.inline = True  # nothing is written ahead
        first = loader.state_dict()
        steps = [ids(loader.next()) for _ in range(3)]
        later = loader.state_dict()
        if again:
            loader.load_state_dict(first)  # in the same process
            assert (entries(f"{JOURNAL}.1"), entries(JOURNAL)) == (2, 0)
            loader.load_state_dict(later)  # its journal is brought back
            assert entries(JOURNAL) == 2
        steps += [ids(batch) for batch in loader]
    with opened(filled(), **how) as foreign, pytest.warns(LossWarning):
        foreign._run.intake.inline = True
        foreign.next()
    with opened(tmp_path / "spool", **how) as resumed:
        resumed.load_state_dict(first)
        assert [ids(batch) for batch in resumed] == steps
    assert [entries(f"{JOURNAL}{aside}") for aside in (".1", ".2", "")] == [4, 1, 4]  # with the ends


def test_a_state_that_is_refused_changes_nothing(tmp_path: Path, how: dict[str, Any]) -> None:
    with opened(tmp_path / "spool", **how) as loader:
        state = loader.state_dict()
        steps = [ids(loader.next()) for _ in range(3)]
        wrong = [
            {**state, "feed": {**state["feed"], "log": "another"}},
            {**state, "journal": {"offset": 100, "entries": 1, "chain": "0" * 32}},
            {**state, "phases": []},
        ]
        for each in wrong:
            with pytest.raises(StateError):
                loader.load_state_dict(each)
        steps += [ids(batch) for batch in loader]
        names = [name for step in steps for name in step]
        assert len(names) == len(set(names)) == 24
        journaled = [name for entry in JournalReader(tmp_path / "cache" / JOURNAL) for group in entry.groups
                     for (name, _), _ in group.names]  # fmt: skip
        assert sorted(journaled) == sorted(names)


def of_two(rank: int, folder: Path, spool: str = "spool") -> Any:
    how: dict[str, Any] = {"batch_size": 2, "cache_dir": folder / "cache", "live": {"timeout_s": 0.1}}
    return opened(folder / spool, rank=rank, world_size=2, **how)


def shared(first: Any, second: Any) -> list[Any]:
    return sorted(ids(first.next()) + ids(second.next()))


@pytest.mark.parametrize("early", [False, True])
def test_a_rank_that_asks_first_does_not_follow_the_journal_of_a_run_that_is_over(tmp_path: Path, early: bool) -> None:
    spooled(tmp_path / "before", seed=1)
    with of_two(0, tmp_path, "before") as over:
        over.next()
    ranks = (1, 0) if early else (0, 1)
    loaders = {rank: of_two(rank, tmp_path, "before") for rank in ranks}
    with loaders[0] as first, loaders[1] as second:
        with pytest.raises(WaitTimeout, match="rank 0 has begun no run where this rank stands"):
            second.next()
        for _ in range(3):
            assert len(set(shared(first, second))) == 4


def test_a_rank_that_found_the_cut_of_a_run_that_is_over_drops_it(tmp_path: Path) -> None:
    spooled(tmp_path / "before", seed=1)
    with of_two(0, tmp_path, "before") as over:
        over.next()
    spooled(tmp_path / "spool")
    with of_two(1, tmp_path) as second:
        with pytest.raises(WaitTimeout, match="rollouts of step 0 are not here"):
            second.next()
        with of_two(0, tmp_path) as first:
            assert len(set(shared(first, second))) == 4


def test_a_rank_that_loads_first_waits_until_the_first_has_cut_the_journal_back(tmp_path: Path) -> None:
    spooled(tmp_path / "spool")
    with of_two(0, tmp_path) as first, of_two(1, tmp_path) as second:
        shared(first, second)
        state = first.state_dict()
        steps = [shared(first, second) for _ in range(3)]
        second.load_state_dict(state)
        rest = ids(second.next())  # of the batch that the state holds
        with pytest.raises(WaitTimeout, match="rank 0 has begun no run"):
            second.next()
        first.load_state_dict(state)
        assert sorted(rest + ids(first.next())) == steps[0]
        assert shared(first, second) == steps[1]
    with of_two(1, tmp_path) as second:
        second.load_state_dict(state)
        with of_two(0, tmp_path) as first:
            first.load_state_dict(state)
            assert [shared(first, second) for _ in range(3)] == steps


def test_a_rank_is_told_when_the_first_begins_anew_without_it(tmp_path: Path) -> None:
    spooled(tmp_path / "spool")
    with of_two(0, tmp_path) as first, of_two(1, tmp_path) as second:
        state = first.state_dict()
        for _ in range(2):
            shared(first, second)
        first.load_state_dict(state)
        for _ in range(4):
            first.next()
        with pytest.raises(StateError, match="rank 0 has begun anew"):
            second.next()


def test_a_replay_ends_where_its_journal_does_even_if_its_run_did_not(tmp_path: Path, how: dict[str, Any]) -> None:
    with opened(SpoolFeed(tmp_path / "spool", keep=True), **how) as loader:
        steps = [ids(loader.next()) for _ in range(2)]
    with opened(SpoolFeed(tmp_path / "spool"), **how, live={"replay_journal": True}) as again:
        assert [ids(batch) for batch in again] == steps
        with pytest.raises(StateError, match="the state of a replay"):
            again.load_state_dict(again.state_dict())


def test_who_goes_back_from_the_end_writes_it_again(tmp_path: Path, how: dict[str, Any]) -> None:
    with opened(tmp_path / "spool", **how) as loader:
        state = loader.state_dict()
        for _ in range(2):
            loader.load_state_dict(state)
            assert len(list(loader)) == 6
            *_, last = JournalReader(tmp_path / "cache" / JOURNAL)
            assert last.is_end


def test_states_stay_small_when_the_size_of_steps_changes_all_the_time(
    tmp_path: Path, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_runs, "MOST_PHASES", 4)
    with opened(tmp_path / "spool", **how) as loader:
        steps = [ids(loader.get_batch(1 + step % 2)) for step in range(8)]
        assert len(loader.state_dict()["phases"]) == 4
        with pytest.raises(LoaderError, match="step 3 had is not known any more"):
            loader.explain(3)
        explained = [[span.id for origin in loader.explain(step) for span in origin.spans] for step in range(4, 8)]
        assert explained == steps[4:]


def test_whether_the_trainer_tells_versions_is_part_of_the_state(tmp_path: Path, how: dict[str, Any]) -> None:
    how["batch_size"] = 8
    with opened(tmp_path / "spool", **how) as loader:
        loader.policy_version = 5
        loader.next()
        state = loader.state_dict()
    with opened(tmp_path / "spool", **how) as again:
        again.load_state_dict(state)
        again.next()
        assert again.policy_version == 5
    with opened(filled(), batch_size=8) as counted:
        counted.policy_version = 5
        counted.reset()
        counted.next()
        assert counted.policy_version == 1


def test_rollouts_that_cannot_be_rated_are_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(filled()) as loader, monkeypatch.context() as patch:

        def refuse(*_: Any) -> None:
            raise ArithmeticError("no")

        patch.setattr(steps, "rate", refuse)
        for _ in range(2):
            with pytest.raises(ArithmeticError):
                loader.next()
        patch.undo()
        assert sum(len(ids(batch)) for batch in loader) == 24


def test_a_spool_that_could_not_be_opened_can_be_opened_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(StoreError, match="No space left"):
        patch.setattr(disk, "write", refuse)
        SpoolFeed(tmp_path)
    SpoolFeed(tmp_path).close()
