"""The journal of admissions: what was decided is read back, or found damaged; and a follower makes the same cuts."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from feeds.admission.samples import assert_same_cut, group, row, rows, saved
from millstream.errors import StateError, StoreError
from millstream.feeds.admission import (
    Admission,
    AdmissionJournal,
    AdmissionRules,
    AdmittedBatch,
    FollowerAdmission,
    JournalReader,
)
from millstream.feeds.admission.journal import AdmissionEntry
from millstream.storage import Position, disk

RULES = AdmissionRules(groups_per_batch=1, group_size=2, dynamic_sampling=True)


def cuts(count: int = 3, rules: AdmissionRules = RULES) -> list[AdmittedBatch]:
    """Cuts of one group, with a group that is dropped before each."""
    admission, made = Admission(rules), []
    for step in range(count):
        admission.arrive(rows(group(f"flat {step}", [1, 1]), group(f"good {step}", [0, 1])), now=0)
        cut = admission.cut(step, 0, now=0)
        assert cut is not None
        made.append(cut)
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "admissions.jsonl"


def test_what_was_written_is_read_back(path: Path) -> None:
    made = cuts()
    with AdmissionJournal(path) as journal:
        for cut in made:
            journal.append(cut)
    assert list(JournalReader(path)) == [AdmissionEntry.of(cut) for cut in made]
    first = path.read_text().splitlines()[0]
    assert '"groups":[["good 0",false,[["good 0-0","' in first and '"all_1","flat 0",2' in first


def test_a_line_that_was_being_written_when_the_power_went_is_not_there(path: Path) -> None:
    made = cuts()
    with AdmissionJournal(path) as journal:
        positions = [journal.append(cut) for cut in made]
    whole = path.read_bytes()
    for stop in range(positions[1].offset, positions[2].offset):
        path.write_bytes(whole[:stop])
        assert len(list(JournalReader(path))) == 2
    with AdmissionJournal(path) as journal:
        assert journal.position == positions[1]
        journal.append(made[2])
    assert path.read_bytes() == whole


def test_every_changed_byte_is_found(path: Path) -> None:
    with AdmissionJournal(path) as journal:
        for cut in cuts(2):
            journal.append(cut)
    whole = bytearray(path.read_bytes())
    for place in range(0, len(whole) - 1, 7):
        whole[place] ^= 1
        path.write_bytes(whole)
        with pytest.raises(StoreError, match="damaged"):
            list(JournalReader(path))
        whole[place] ^= 1


def test_going_on_from_a_state_cuts_off_what_came_behind_it(path: Path) -> None:
    made = cuts()
    with AdmissionJournal(path) as journal:
        position, *_ = [journal.append(cut) for cut in made]
    again = Position.from_json(position.to_json())
    with AdmissionJournal(path, again) as journal:
        journal.append(made[1])
    assert [entry.step for entry in JournalReader(path)] == [0, 1]
    assert [entry.step for entry in JournalReader(path, again)] == [1]


def test_the_journal_of_another_run_is_refused(path: Path) -> None:
    with AdmissionJournal(path) as journal:
        position = journal.append(cuts(1)[0])
    with pytest.raises(StateError, match="not the journal of the state"):
        AdmissionJournal(path, Position(position.offset, 1, "0" * 32))
    with pytest.raises(StateError, match="not the journal of the state"):
        AdmissionJournal(path, Position(position.offset + 9, 1, position.chain))
    for damaged in ({}, {"offset": -1, "entries": 0, "chain": ""}, {"offset": 0, "entries": 0, "chain": 7}):
        with pytest.raises(StateError, match="where its journal stood"):
            Position.from_json(damaged)


@pytest.mark.parametrize("step", ["write", "sync"])
def test_a_cut_that_could_not_be_written_can_be_written_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    made = cuts(2)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with AdmissionJournal(path) as journal:
        journal.append(made[0])
        with monkeypatch.context() as patch, pytest.raises(StoreError, match="No space left"):
            patch.setattr(disk, step, refuse)
            journal.append(made[1])
        journal.append(made[1])
    assert [entry.step for entry in JournalReader(path)] == [0, 1]


def test_there_is_one_writer(path: Path) -> None:
    with AdmissionJournal(path), pytest.raises(StoreError, match="another writer"):
        AdmissionJournal(path)
    AdmissionJournal(path).close()


def test_a_follower_waits_for_the_decision_and_for_the_rollouts(path: Path) -> None:
    leader, follower = Admission(RULES), FollowerAdmission(JournalReader(path), RULES)
    good = group("a", [0, 1])
    assert follower.cut(0, 0) is None
    leader.arrive(good, now=0)
    cut = leader.cut(0, 0, now=0)
    assert cut is not None
    with AdmissionJournal(path) as journal:
        journal.append(cut)
    follower.arrive(good.select([1]))
    assert follower.cut(0, 0) is None
    assert follower.waiting_for() == "1 of 2 rollouts of step 0 are not here, such as 'a-0'"
    follower.arrive(good.select([0]))
    assert_same_cut(follower.cut(0, 0), cut)


def test_a_follower_is_not_misled_by_rollouts_that_claim_the_same_id(path: Path) -> None:
    rules = AdmissionRules(groups_per_batch=1, group_size=1, on_bad="skip")
    leader, follower = Admission(rules), FollowerAdmission(JournalReader(path), rules)
    right, wrong = row("a", "a", reward=1.0), row("a", "a", reward=0.5)
    for block in (right, wrong):
        leader.arrive(block, now=0)
    cut = leader.cut(0, 0, now=0)
    assert cut is not None
    with AdmissionJournal(path) as journal:
        journal.append(cut)
    for block in (wrong, right):
        follower.arrive(block)
    assert_same_cut(follower.cut(0, 0), cut)


def test_a_follower_of_another_run_says_so(path: Path) -> None:
    with AdmissionJournal(path) as journal:
        journal.append(cuts(1)[0])
    follower = FollowerAdmission(JournalReader(path), RULES)
    with pytest.raises(StateError, match="continues with step 0 of version 0, not with step 1 of version 0"):
        follower.cut(1, 0)


def test_a_follower_goes_on_from_the_state_of_the_leader(path: Path) -> None:
    leader = Admission(RULES)
    leader.arrive(rows(group("a", [0, 1]), group("b", [0, 1]), row("c-0", "c")), now=0)
    with AdmissionJournal(path) as journal:
        first = leader.cut(0, 0, now=0)
        assert first is not None
        position = journal.append(first)
        state = saved(leader.state())
        follower = FollowerAdmission.load(state, JournalReader(path, position), RULES)
        late = row("c-1", "c", reward=1.0)
        for each in (leader, follower):
            each.arrive(late, now=0)
        for step in (1, 2):
            cut = leader.cut(step, 0, now=0)
            assert cut is not None
            journal.append(cut)
            assert_same_cut(follower.cut(step, 0), cut)
