"""Under any interleaving of arrivals, time, versions and cuts: nothing lost, nothing twice, nothing stale; and stopping
anywhere, or following the journal with rollouts in another order, changes no cut."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from feeds.admission.samples import assert_same_cut, row, rows, saved
from millstream.feeds.admission import (
    Admission,
    AdmissionJournal,
    AdmissionRules,
    AdmittedBatch,
    FollowerAdmission,
    JournalReader,
    ReplayRules,
)
from millstream.feeds.admission.groups import trained_versions
from millstream.feeds.admission.seen import drop_from_json, name_from_json
from millstream.rollouts import RolloutBlock

RULES = st.builds(
    AdmissionRules,
    groups_per_batch=st.integers(1, 3),
    group_size=st.integers(1, 3) | st.just("any"),
    group_timeout_s=st.sampled_from([2.0, 5.0]),
    order=st.sampled_from(["arrival", "group_index", "target_step"]),
    max_staleness=st.integers(0, 2) | st.none(),
    on_failed=st.sampled_from(["drop", "keep"]),
    dynamic_sampling=st.booleans(),
    max_tokens=st.sampled_from([None, 3]),
    capacity_groups=st.sampled_from([None, 100]),
    replay=st.none() | st.builds(ReplayRules, capacity_groups=st.integers(1, 3), max_uses=st.integers(1, 3)),
    on_bad=st.just("skip"),
)
MASKING = st.builds(
    AdmissionRules,
    rollouts_per_batch=st.integers(1, 5),
    group_size=st.integers(1, 3),
    max_staleness=st.integers(0, 1),
    on_stale=st.just("mask"),
    on_bad=st.just("skip"),
)
ROLLOUTS = st.lists(
    st.tuples(
        st.integers(0, 3),  # group, after those that came before
        st.sampled_from([False] * 7 + [True]),  # with an id that was given away
        st.lists(st.sampled_from([-3, -2, -1, -1, 0, 0, 0, 0, 1]), min_size=1, max_size=4),  # versions of tokens
        st.sampled_from([0.0, 0.0, 1.0]),
        st.sampled_from(["stop", "stop", "stop", "error"]),
    ),
    min_size=1,
    max_size=6,
)


class AnyInterleaving(RuleBasedStateMachine):
    @initialize(rules=RULES | MASKING)
    def begin(self, rules: AdmissionRules) -> None:
        self.given = rules
        self.path = Path(tempfile.mkdtemp(), "journal")
        self.admission, self.resumed = Admission(rules, seed=3), Admission(rules, seed=3)
        self.journal = AdmissionJournal(self.path)
        self.now, self.version, self.step = 0.0, 0, 0
        self.made: Counter[int] = Counter()
        self.blocks: list[RolloutBlock] = []
        self.cuts: list[AdmittedBatch] = []

    @rule(arriving=ROLLOUTS)
    def arrive(self, arriving: list[tuple[int, bool, list[int], float, str]]) -> None:
        block = rows(*(self.rollout(*each) for each in arriving))
        self.blocks.append(block)
        for each in (self.admission, self.resumed):
            each.arrive(block, self.now)

    def rollout(self, behind: int, again: bool, versions: list[int], reward: float, finish: str) -> RolloutBlock:
        group = len(self.blocks) + behind
        self.made[group] += not again
        return row(
            f"{group}-{self.made[group]}",
            f"g{group}",
            reward=reward,
            versions=tuple(max(0, self.version + version) for version in versions),
            finish=finish,
            extra={"target_step": self.step + behind % 2, "group_index": group},
        )

    @rule(groups=st.lists(st.integers(0, 3), min_size=1, max_size=4), back=st.integers(0, 2))
    def arrive_whole(self, groups: list[int], back: int) -> None:
        size = self.given.known_size or 2
        self.arrive([(group, False, [-back], float(i % 2), "stop") for group in groups for i in range(size)])

    @rule()
    def arrive_once_more(self) -> None:
        if self.blocks:
            for each in (self.admission, self.resumed):
                each.arrive(self.blocks[-1], self.now)

    @rule(seconds=st.integers(1, 4))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    def wait_a_second(self) -> None:
        self.wait(1)

    @rule()
    def new_weights(self) -> None:
        self.version += 1

    @rule()
    def stop_and_go_on(self) -> None:
        self.resumed = Admission.load(saved(self.resumed.state()), self.given, seed=3)

    @rule(versions=st.lists(st.integers(0, 2), max_size=3), settles=st.booleans())
    def run_ahead_and_go_back(self, versions: list[int], settles: bool) -> None:
        """Whatever is cut and comes meanwhile: behind a mark nothing of it has happened."""
        before, mark = self.resumed.state().fields, self.resumed.mark()
        if settles:
            mark.settle()
        version = self.version
        for number, more in enumerate(versions):
            version += more
            self.resumed.cut(self.step + number, version, self.now + number, ended=number == 1)
            if self.blocks:
                self.resumed.arrive(self.blocks[number % len(self.blocks)], self.now + number)
            self.resumed.arrive(rows(row(f"ahead {number}", f"ahead {number}", versions=(version,))), self.now)
        assert mark.state().fields == before
        assert self.resumed.at(mark).counters == self.admission.counters
        self.resumed.rewind(mark)
        assert self.resumed.state().fields == before

    @rule()
    def cut(self) -> None:
        self.cut_one(ended=False)

    def cut_one(self, *, ended: bool) -> bool:
        one, other = (
            each.cut(self.step, self.version, self.now, ended=ended) for each in (self.admission, self.resumed)
        )
        assert_same_cut(one, other)
        if one is None:
            return False
        self.journal.append(one)
        self.cuts.append(one)
        self.step += 1
        self.check_fresh(one)
        return True

    def check_fresh(self, cut: AdmittedBatch) -> None:
        """No trained token of a cut is from before the bound, or from the future; and no group is too small."""
        oldest, newest = trained_versions(cut.block)
        assert newest.max() <= self.version
        if self.given.max_staleness is not None:
            assert (oldest >= self.version - self.given.max_staleness).all()
        sizes = np.diff([0, *cut.group_ends])
        assert sizes.min() >= self.given.least_rollouts
        if self.given.groups_per_batch is not None:
            assert len(cut.group_ids) <= self.given.groups_per_batch
        else:
            assert len(cut.block) <= max(self.given.rollouts_per_batch or 0, sizes[0])

    @invariant()
    def everybody_has_one_fate(self) -> None:
        if not hasattr(self, "admission"):
            return
        counters = {name: count for name, count in self.admission.counters.items() if not name.startswith("replay_")}
        fates = {name: count for name, count in counters.items() if not name.endswith(("_tokens", "_groups"))}
        assert fates.pop("arrived", 0) == self.admission.held + sum(fates.values())
        assert self.admission.counters == self.resumed.counters
        assert self.admission.state().fields == self.resumed.state().fields

    def teardown(self) -> None:
        if not hasattr(self, "admission"):
            return
        self.now += 100
        while self.cut_one(ended=True):
            pass
        if self.given.order != "target_step":  # whose later steps are not asked for
            assert self.admission.held == 0
        self.check_names()
        self.follow()
        self.journal.close()

    def check_names(self) -> None:
        """Every rollout was cut once, or dropped once, or is held."""
        rest = self.admission.state().fields
        drops = [*(drop for cut in self.cuts for drop in cut.drops), *map(drop_from_json, rest["drops"])]
        names = [name for cut in self.cuts for names in cut.names for name in names]
        names += [name for drop in drops if drop.reason != "conflicting" for name in drop.names]
        names += map(name_from_json, rest["seen"]["held"])
        fates = Counter(rollout for (rollout, _), _ in names)
        arrived = {rollout for block in self.blocks for rollout in block.rows["rollout_id"]}
        assert fates == Counter(arrived)

    def follow(self) -> None:
        """The same rollouts in another order, some twice, with the journal, give the same cuts and the same rest."""
        singles = [block.select([row]) for block in self.blocks for row in range(len(block))]
        random.Random(5).shuffle(singles)
        follower = FollowerAdmission(JournalReader(self.path), self.given, seed=3)
        coming = iter(singles)
        for cut in self.cuts:
            while (found := follower.cut(cut.step, cut.policy_version)) is None:
                follower.arrive(next(coming))
            assert_same_cut(found, cut)
        for single in singles:
            follower.arrive(single)
        undecided = {name for drop in self.admission.state().fields["drops"] for name in drop_from_json(drop).names}
        undecided -= {name for cut in self.cuts for drop in cut.drops for name in drop.names}
        if self.given.remember > len(singles):
            assert follower.held == self.admission.held + len(undecided)


LONG = [
    AdmissionRules(groups_per_batch=3, group_size=3, max_staleness=1, dynamic_sampling=True, on_bad="skip"),
    AdmissionRules(rollouts_per_batch=8, group_size=3, max_staleness=0, on_stale="mask", on_bad="skip"),
    AdmissionRules(groups_per_batch=4, group_size=2, max_staleness=2, replay=ReplayRules(max_uses=3), on_bad="skip"),
    AdmissionRules(groups_per_batch=2, group_size=3, order="group_index", group_timeout_s=3.0, on_bad="skip"),
    AdmissionRules(
        groups_per_batch=2, group_size="any", order="target_step", group_timeout_s=2.0, remember=64, on_bad="skip"
    ),
    AdmissionRules(groups_per_batch=2, group_size=3, capacity_groups=4, min_group_size=3, on_bad="skip"),
]


@pytest.mark.parametrize("rules", LONG)
def test_a_long_run_keeps_the_same_laws(rules: AdmissionRules) -> None:
    run, rng = AnyInterleaving(), random.Random(1)
    run.begin(rules)
    for event in range(150):
        versions = [
            rng.choice([-2, -1, -1, 0, 0, 0, 0, 1 if rng.random() < 0.1 else 0]) for _ in range(rng.choice([1, 2]))
        ]
        run.arrive(
            [(rng.randrange(4), rng.random() < 0.05, versions, float(rng.random() < 0.3), "stop") for _ in range(3)]
        )
        chosen = [run.cut, run.wait_a_second, run.new_weights, run.stop_and_go_on, run.arrive_once_more]
        for act in rng.choices(chosen, weights=[6, 3, 1, 1, 0.3], k=2):
            act()
        if event % 5 == 0:
            run.everybody_has_one_fate()
    assert len(run.cuts) > 5
    run.teardown()


AnyInterleaving.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestAnyInterleaving = AnyInterleaving.TestCase
