"""Admission: arrivals -> batches. Deterministic: no threads, no clock, and the same events give the same decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from millstream.errors import BudgetError, LoaderError
from millstream.feeds.admission.batch import AdmittedBatch, BatchSize, takeable
from millstream.feeds.admission.groups import CompleteGroup, OpenGroup, held_tokens
from millstream.feeds.admission.refusals import (
    CONFLICTING,
    REPEATED,
    STRANGERS,
    Flags,
    Verdict,
    columns_of,
    examine,
    place_of,
    prompt_of,
    refusals,
    size_of,
)
from millstream.feeds.admission.rules import AdmissionRules, groups_wanted
from millstream.feeds.admission.seen import Drop, Key, is_baseline, keys, whole_number_of
from millstream.feeds.admission.state import (
    ARRIVED,
    CUT,
    MASKED,
    SHORT_GROUPS,
    AdmissionState,
    Memory,
    MemoryMark,
    count_fate,
)
from millstream.rollouts import Id, RolloutBlock, content_hash, notes_of

LATE = "late"
UNREADABLE = "unreadable"


class AdmissionMark(NamedTuple):
    """What admission was at some time."""

    memory: MemoryMark
    vetted: tuple[int, int]

    def settle(self) -> None:
        """No mark before this one is asked for any more."""
        self.memory.settle()

    def state(self) -> AdmissionState:
        """Everything that was held and remembered."""
        return self.memory.to_state()


class Admission:
    """Takes rollouts in as they come, and gives groups when enough are complete, fresh and worth it.

    >>> from millstream.rollouts import block_of
    >>> said = {"token_ids": [5, 6], "loss_mask": [0, 1], "reward": 1.0, "finish": "stop"}
    >>> block = block_of([{"rollout_id": name, "group_id": name[0], **said} for name in ("a1", "b1", "b2")])
    >>> admission = Admission(AdmissionRules(groups_per_batch=1, group_size=2))
    >>> admission.arrive(block, now=0.0)
    >>> admission.cut(step=0, policy_version=0, now=1.0).block["rollout_id"].tolist()
    ['b1', 'b2']
    >>> admission.cut(step=1, policy_version=0, now=41.0)
    >>> admission.waiting_for()
    "0 of 1 groups complete; 'a' waits for 1 of 2 since 41.0 s"
    """

    def __init__(self, rules: AdmissionRules, seed: int = 0, memory: Memory | None = None) -> None:
        self.rules, self.seed = rules, seed
        self._memory = Memory.empty(rules, seed) if memory is None else memory
        self._size = BatchSize.of(rules)
        self._vetted = (-1, -1)
        """The policy version for which, and the completed groups of which, all were looked at for a cut."""

    def arrive(self, block: RolloutBlock, now: float) -> None:
        """Take rollouts in. A bad one is raised before any is taken in, or counted under `on_bad="skip"`."""
        if not len(block):
            return
        memory = self._memory
        contents, reasons = self.look(block)
        memory.now, memory.columns = now, memory.columns or columns_of(block)
        count_fate(memory.tally, ARRIVED, len(block), int(block.ends[-1]))
        for note, count in notes_of(block).items():
            memory.tally.add(note.replace(" ", "_"), count=count)
        joined: dict[Id, list[int]] = {}
        for row, (key, reason) in enumerate(zip(keys(block), reasons, strict=True)):
            if reason in (REPEATED, CONFLICTING):  # the rollout that it claims to be has its own fate
                self._refuse(block, row, str(reason), key, contents[row])
                continue
            memory.seen.hold(key, contents[row])
            gathering = None if reason in STRANGERS else self._joined(block, row, now)
            rows = [] if gathering is None else joined.setdefault(gathering.id, [])
            if gathering is not None and reason is None:
                rows.append(row)
            else:
                self._refuse(block, row, reason or LATE, key, contents[row])
                memory.seen.release([key])
        self._settle(block, joined)

    def look(self, block: RolloutBlock) -> tuple[list[int], list[str | None]]:
        """The hash of each row's content, and why it is not taken in, or None. Nothing is changed."""
        contents: list[int] = content_hash(block).tolist()
        return contents, refusals(block, contents, self.rules, self._memory)

    def set_aside(self, block: RolloutBlock) -> None:
        """Count rollouts that nothing can be said of: looking at them fails."""
        tokens = int(block.ends[-1])
        for fate in (ARRIVED, UNREADABLE):
            count_fate(self._memory.tally, fate, len(block), tokens)

    def _joined(self, block: RolloutBlock, row: int, now: float) -> OpenGroup | None:
        """The group that a rollout has come to, begun if it is new; None if it is closed."""
        memory, group, rollout = self._memory, block.rows["group_id"][row], block.rows["rollout_id"][row]
        if group in memory.closed:
            return None
        if group not in memory.gathering:
            size = size_of(block, row, self.rules)
            memory.begun += 1
            place = place_of(block, row, self.rules) or 0
            memory.gathering[group] = OpenGroup(group, now, place, size, prompt_of(block, row))
        gathering, baseline = memory.gathering[group], is_baseline(block, row)
        if not gathering.has_room_for(rollout, baseline=baseline):
            size = gathering.size or 0
            memory.odd_group = memory.odd_group or (group, f"more than {size} rollouts", size)
            return None
        gathering.arrive(rollout, whole_number_of(block, row, "parts") or 1, baseline=baseline)
        return gathering

    def _refuse(self, block: RolloutBlock, row: int, reason: str, key: Key, content: int) -> None:
        tokens = int(block.lengths[row])
        count_fate(self._memory.tally, reason, 1, tokens)
        if reason != REPEATED:
            self._memory.drops.append(Drop(reason, block.rows["group_id"][row], ((key, content),), tokens))

    def _settle(self, block: RolloutBlock, joined: dict[Id, list[int]]) -> None:
        """Put rows of an arrival into their groups, and close those that are complete."""
        memory = self._memory
        for group, rows in joined.items():
            if rows:
                memory.gathering[group].parts.append(block.select(rows))
        for group in joined:
            if memory.gathering[group].is_complete(self.rules):
                _close(memory, self.rules, memory.gathering[group])
        while self._is_crowded() and not self.has_a_batch:
            if not memory.gathering:
                raise BudgetError(
                    f"admission holds as much as it may, and no batch can be cut of it: {self.waiting_for()}",
                    hint="raise capacity_tokens or capacity_groups, or make batches smaller",
                )
            _close(memory, self.rules, self._least_needed(), crowded=True)

    def cut(self, step: int, policy_version: int, now: float, *, ended: bool = False) -> AdmittedBatch | None:
        """Cut the batch of a step that trains a policy version; None: not enough is here yet.

        With `ended`, nothing more comes: the last batches are cut of what is left, and after them there is only None.
        """
        memory, batch = self._memory, self._size
        memory.now, memory.step = now, step
        self._advance(policy_version)
        for gathering in list(memory.gathering.values()):
            if ended or gathering.is_overdue(self.rules, now):
                _close(memory, self.rules, gathering)
        self._vet()
        again = [] if memory.replay is None else memory.replay.draw(step, batch)
        line = takeable(memory.ready, self.rules, step, memory.line, now, ended=ended)
        fresh, full = batch.fill(line, batch.room - batch.weigh(again))
        is_enough = full or ended or self._gives_up()
        return self._take(step, fresh, again) if is_enough and fresh else None

    def _advance(self, policy_version: int) -> None:
        memory, rules = self._memory, self.rules
        if policy_version < memory.policy_version:
            raise LoaderError(
                f"policy_version went back from {memory.policy_version} to {policy_version}",
                hint="versions only grow; to go back, load the state that was saved then",
            )
        memory.policy_version = policy_version
        if memory.replay is not None and rules.max_staleness is not None:
            memory.replay.expire(policy_version - rules.max_staleness)

    def _vet(self) -> None:
        """Look at complete groups once more: they have aged."""
        memory = self._memory
        version, number = self._vetted
        same = version == memory.policy_version
        old = [group for group in memory.ready if same and group.number <= number]
        new = memory.ready[len(old) :]
        # All are looked at before anything is changed: one from the future is an error.
        verdicts = [examine(group.block, self.rules, memory.policy_version, at_cut=True) for group in new]
        left = [_keep(memory, self.rules, *each) for each in zip(new, verdicts, strict=True)]
        memory.ready = old + [group for groups in left for group in groups]
        self._vetted = (memory.policy_version, memory.completed - 1)

    def _gives_up(self) -> bool:
        """Whether dynamic sampling has tried enough groups for a batch."""
        memory, batch, most = self._memory, self._size, self.rules.max_gen_batches
        if most is None or not self.rules.dynamic_sampling or memory.tried < most * batch.room:
            return False
        if batch.fill(memory.ready, batch.room)[1]:  # there are enough, whose turn has not come
            return False
        if self.rules.on_exhausted == "error":
            raise LoaderError(
                f"groups for {most} batches were tried, and {len(memory.ready)} of them have different rewards",
                hint="take prompts that are neither too easy nor too hard; or on_exhausted='train', or max_gen_batches",
            )
        return True

    def _take(self, step: int, fresh: Sequence[CompleteGroup], again: Sequence[CompleteGroup]) -> AdmittedBatch:
        memory = self._memory
        names = [memory.seen.names(group.keys) for group in fresh]
        cut = AdmittedBatch.of(self.rules, step, memory.policy_version, fresh, again, names, memory.drops)
        memory.drops, memory.step = [], step + 1
        for group in fresh:
            count_fate(memory.tally, CUT, len(group.block), group.tokens)
            memory.seen.release(group.keys)
            if self.rules.order == "group_index":
                memory.line.skip_to(group.place)
            _pass_by(memory, self.rules, group.place)
        memory.tally.add(MASKED, count=cut.stale_masked)
        taken = {group.number for group in fresh}
        memory.ready = [group for group in memory.ready if group.number not in taken]
        memory.tried = self._size.weigh(memory.ready)
        if memory.replay is not None:
            memory.replay.use(again)
            memory.replay.add(fresh)
        return cut

    @property
    def has_a_batch(self) -> bool:
        """Whether complete groups are enough for a batch, if all of them are fresh enough."""
        memory = self._memory
        line = takeable(memory.ready, self.rules, memory.step, memory.line, memory.now, ended=False)
        return self._size.fill(line, self._size.room)[1]

    def _least_needed(self) -> OpenGroup:
        """Of the groups that are gathered, the one whose turn comes last; else the one that waits the longest."""
        groups = self._memory.gathering.values()
        if self.rules.order == "arrival":
            return min(groups, key=lambda group: group.began)
        return max(groups, key=lambda group: group.place)

    def _is_crowded(self) -> bool:
        memory, rules = self._memory, self.rules
        groups: list[OpenGroup | CompleteGroup] = [*memory.gathering.values(), *memory.ready]
        if rules.capacity_groups is not None and len(groups) > rules.capacity_groups:
            return True
        return rules.capacity_tokens is not None and held_tokens(groups) > rules.capacity_tokens

    @property
    def full(self) -> bool:
        """Whether a batch can be cut and no more should be received before."""
        return self._is_crowded() and self.has_a_batch

    @property
    def held(self) -> int:
        """Rollouts that wait: of groups that are not complete, and of those that no batch had room for."""
        return self._memory.rollouts

    @property
    def counters(self) -> dict[str, int]:
        """What became of everything that arrived, by reason, in rollouts and in tokens; and what was replayed."""
        replay = {} if self._memory.replay is None else self._memory.replay.counts.counts
        counts = sorted(self._memory.tally.counts.items())
        return {**dict(counts), **{f"replay_{name}": count for name, count in sorted(replay.items())}}

    @property
    def odd_group(self) -> tuple[Id, str, int] | None:
        """The first group that had fewer or more rollouts than was said: its id, what it had, and what was said."""
        return self._memory.odd_group

    def wanted(self, elsewhere: int = 0) -> int | None:
        """How many more groups may be begun, when some are held elsewhere, too; None: any number."""
        return groups_wanted(self.rules, len(self._memory.gathering) + len(self._memory.ready) + elsewhere)

    @property
    def begun(self) -> int:
        """Groups of which anything has arrived, since the run began."""
        return self._memory.begun

    def waiting_for(self) -> str:
        """What the next batch waits for, in words."""
        memory, unit = self._memory, "rollouts" if self._size.by_rollouts else "groups"
        have = f"{self._size.weigh(memory.ready)} of {self._size.room} {unit} complete"
        lost = Counter[str]()
        for drop in memory.drops:
            lost[drop.reason] += len(drop.names)
        if lost:
            reasons = ", ".join(f"{count} {reason}" for reason, count in lost.most_common())
            have += f"; dropped since the last batch: {reasons}"
        if not memory.gathering:
            return f"{have}; no group is being gathered"
        oldest = min(memory.gathering.values(), key=lambda group: group.began)
        return f"{have}; {oldest.id!r} waits for {oldest.missing()} since {memory.now - oldest.began:.1f} s"

    def state(self) -> AdmissionState:
        """Everything that is held and remembered, at one frontier."""
        return self._memory.to_state()

    def mark(self) -> AdmissionMark:
        """The present, as a place to go back to."""
        return AdmissionMark(self._memory.mark(), self._vetted)

    def rewind(self, mark: AdmissionMark) -> None:
        """Stand at a mark: nothing that came or was cut since has happened."""
        self._memory, self._vetted = mark.memory.rewind(), mark.vetted

    def at(self, mark: AdmissionMark) -> Admission:
        """What was decided until a mark, to be looked at."""
        return Admission(self.rules, self.seed, mark.memory.memory)

    @classmethod
    def load(cls, state: AdmissionState, rules: AdmissionRules, seed: int = 0, now: float | None = None) -> Admission:
        """Resume from a state. `now` is the present, where the clock is not that of the process that saved it."""
        return cls(rules, seed, Memory.from_state(state, rules, seed, now))


def _close(memory: Memory, rules: AdmissionRules, gathering: OpenGroup, *, crowded: bool = False) -> None:
    """Close a group: it is complete, overdue, or makes room for others."""
    del memory.gathering[gathering.id]
    memory.closed.add(gathering.id)
    block = gathering.gathered()
    if block is None:
        _pass_by(memory, rules, gathering.place)
        return
    group = CompleteGroup(gathering.id, memory.completed, gathering.began, gathering.place, block)
    memory.completed += 1
    if crowded:
        _keep(memory, rules, group, Verdict(np.zeros(len(block), bool), {"crowded": np.ones(len(block), bool)}))
        return
    memory.tried += BatchSize.of(rules).weigh([group])
    left = _keep(memory, rules, group, examine(block, rules, memory.policy_version, at_cut=False))
    came, size = len(gathering.arrived), gathering.size
    if left and size is not None and came < size:
        memory.tally.add(SHORT_GROUPS)
        memory.odd_group = memory.odd_group or (group.id, f"{came} rollouts", size)
    memory.ready += left


def _keep(memory: Memory, rules: AdmissionRules, group: CompleteGroup, verdict: Verdict) -> list[CompleteGroup]:
    """What a verdict leaves of a group: itself, a smaller one, or nothing."""
    for reason, flags in verdict.dropped.items():
        if flags.any():
            _drop(memory, group, flags, reason)
    if verdict.kept.all():
        return [group]
    if not verdict.kept.any():
        _pass_by(memory, rules, group.place)
        return []
    block = group.block.select(np.flatnonzero(verdict.kept))
    return [CompleteGroup(group.id, group.number, group.began, group.place, block)]


def _drop(memory: Memory, group: CompleteGroup, flags: Flags, reason: str) -> None:
    rows = np.flatnonzero(flags).tolist()
    dropped = [group.keys[row] for row in rows]
    tokens = int(group.block.lengths[rows].sum())
    count_fate(memory.tally, reason, len(rows), tokens)
    memory.drops.append(Drop(reason, group.id, memory.seen.names(dropped), tokens))
    memory.seen.release(dropped)


def _pass_by(memory: Memory, rules: AdmissionRules, place: int) -> None:
    """A group was cut or dropped: its index is not waited for."""
    if rules.order == "group_index":
        memory.line.pass_by(place)
