"""FollowerAdmission: a follower cuts the batches of the journal again, from rollouts that come in any order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from millstream.errors import StateError
from millstream.feeds.admission.batch import AdmittedBatch, BatchSize
from millstream.feeds.admission.groups import CompleteGroup
from millstream.feeds.admission.journal import AdmissionEntry, JournalReader, RecordedGroup
from millstream.feeds.admission.replay_buffer import ReplayBuffer
from millstream.feeds.admission.rules import AdmissionRules
from millstream.feeds.admission.seen import Name, RecentKeys, keys
from millstream.feeds.admission.state import AdmissionState, Memory
from millstream.rollouts import Id, RolloutBlock, content_hash

OTHER_RUN = "follow the journal with the rules, the seed, the sizes and the steps it was made with"


class HeldRollout(NamedTuple):
    """A rollout: a row of some that came together, of one group."""

    block: RolloutBlock
    row: int


class FollowerMark(NamedTuple):
    """What was held at some time."""

    admission: FollowerAdmission
    held: dict[Name, HeldRollout]
    gone: int
    replay: ReplayBuffer | None
    groups: int
    received: Mapping[str, Any] | None

    def settle(self) -> None:
        """No mark before this one is asked for any more."""
        self.admission._gone.settle(self.gone)


class FollowerAdmission:
    """The admission of a follower: waits for the rollouts of the leader's next entry, and gives them in its order."""

    def __init__(self, reader: JournalReader, rules: AdmissionRules, seed: int = 0) -> None:
        self.rules = rules
        self._reader = reader
        self._next: AdmissionEntry | None = None
        self.ended = False
        """Whether the leader has found nothing more to cut."""
        self.received: Mapping[str, Any] | None = None
        """How far in the feed the leader was at the last cut."""
        self._held: dict[Name, HeldRollout] = {}
        self._gone: RecentKeys[Name] = RecentKeys(rules.remember)
        self._replay = None if rules.replay is None else ReplayBuffer(rules.replay, seed)
        self._groups = 0
        self.withdrawn: int | None = None
        """The step whose cut, and those after it, the leader has taken back; None: there is nothing to take back."""

    @classmethod
    def load(
        cls, state: AdmissionState, reader: JournalReader, rules: AdmissionRules, seed: int = 0
    ) -> FollowerAdmission:
        """Resume from a state that `Admission` saved when its journal stood where the reader stands."""
        memory = Memory.from_state(state, rules, seed)
        follower = cls(reader, rules, seed)
        parts = [part for group in memory.gathering.values() for part in group.parts]
        for block in [*parts, *(group.block for group in memory.ready)]:
            follower._hold(block, memory.seen.names(keys(block)))
        for name in memory.seen.gone():
            follower._gone.add(name)
        follower._replay, follower._groups = memory.replay, memory.completed
        return follower

    def arrive(self, block: RolloutBlock, now: float = 0.0) -> None:
        """Take rollouts in; `now` decides nothing."""
        names = self.look(block)
        rows_of: dict[Id, list[int]] = {}
        for row, (name, group) in enumerate(zip(names, block.rows["group_id"].tolist(), strict=True)):
            if name not in self._held and name not in self._gone:
                rows_of.setdefault(group, []).append(row)
        for rows in rows_of.values():
            self._hold(block.select(rows), [names[row] for row in rows])

    def look(self, block: RolloutBlock) -> list[Name]:
        """The names of the rows. Nothing is changed."""
        return list(zip(keys(block), content_hash(block).tolist(), strict=True))

    def set_aside(self, block: RolloutBlock) -> None:
        """Nothing: the leader counts them, and names none of them."""

    def _hold(self, block: RolloutBlock, names: Iterable[Name]) -> None:
        self._held.update((name, HeldRollout(block, row)) for row, name in enumerate(names))

    def cut(
        self, step: int, policy_version: int | None, now: float = 0.0, *, ended: bool = False
    ) -> AdmittedBatch | None:
        """Give the recorded cut of a step; None while it is not written yet, or some of its rollouts are missing.

        Without a version, the one that is recorded is taken. A cut that is taken back is named by `withdrawn`.
        """
        if self._next is None or self._reader.takes_back():
            self._next = self._reader.next()
        if self._next is not None and self._next.withdrawn:
            self.withdrawn, self._next = self._next.step, None
            return None
        if self._next is not None and self._next.is_end:
            self._next, self.ended = None, True
        entry = self._next
        if entry is None:
            self.ended = self.ended or self._reader.whole
            return None
        self.ended = False
        if entry.step != step or policy_version not in (None, entry.policy_version):
            raise StateError(
                f"the journal continues with step {entry.step} of version {entry.policy_version}, "
                f"not with step {step} of version {policy_version}",
                hint=OTHER_RUN,
            )
        if not self.full:
            return None
        fresh = [group for group in entry.groups if not group.replayed]
        again = self._drawn(entry, BatchSize.of(self.rules))
        groups = [self._group(group) for group in fresh]
        self._release(entry)
        if self._replay is not None:
            self._replay.use(again)
            self._replay.add(groups)
        names = [group.names for group in fresh]
        return AdmittedBatch.of(self.rules, step, entry.policy_version, groups, again, names, entry.drops)

    def mark(self) -> FollowerMark:
        """The present, as a place to go back to."""
        replay = None if self._replay is None else self._replay.copy()
        return FollowerMark(self, dict(self._held), self._gone.mark(), replay, self._groups, self.received)

    def rewind(self, mark: FollowerMark) -> None:
        """Stand at a mark, but for the journal: what was cut since is cut again."""
        self._held, self._groups, self.received = dict(mark.held), mark.groups, mark.received
        self._gone.rewind(mark.gone)
        self._replay, self._next, self.withdrawn = None if mark.replay is None else mark.replay.copy(), None, None

    def at(self, mark: FollowerMark) -> FollowerAdmission:
        """What was decided until a mark, to be looked at."""
        then = FollowerAdmission(self._reader, self.rules)
        then._held = mark.held
        return then

    def check(self) -> None:
        """Raise StateError if what was cut is not what is trained on any more."""
        self._reader.check()

    @property
    def full(self) -> bool:
        """Whether nothing is missing: everything that the next entry names is here, or there is none yet."""
        return self._next is None or all(
            name in self._held for group in self._next.groups if not group.replayed for name in group.names
        )

    @property
    def held(self) -> int:
        """Rollouts that wait to be named."""
        return len(self._held)

    def waiting_for(self) -> str:
        """What the next batch waits for, in words."""
        if self._next is None:
            return self._reader.waiting_for()
        names = [name for group in self._next.groups for name in group.names]
        missing = [name for name in names if name not in self._held]
        first = f", such as {missing[0][0][0]!r}" if missing else ""
        return f"{len(missing)} of {len(names)} rollouts of step {self._next.step} are not here{first}"

    def _drawn(self, entry: AdmissionEntry, size: BatchSize) -> list[CompleteGroup]:
        """The groups that come again, drawn as they were; the journal must agree."""
        expected = [group.id for group in entry.groups if group.replayed]
        if self._replay is None:
            drawn = []
        else:
            if self.rules.max_staleness is not None:
                self._replay.expire(entry.policy_version - self.rules.max_staleness)
            drawn = self._replay.draw(entry.step, size)
        if [group.id for group in drawn] != expected:
            raise StateError(f"other groups come again in step {entry.step} than were recorded", hint=OTHER_RUN)
        return drawn

    def _group(self, recorded: RecordedGroup) -> CompleteGroup:
        """A group of the rows that were recorded, in their order."""
        held = [self._held[name] for name in recorded.names]
        blocks = {id(each.block): each.block for each in held}
        starts, rows = {}, 0
        for mark, block in blocks.items():
            starts[mark], rows = rows, rows + len(block)
        block = RolloutBlock.concat(list(blocks.values()))
        self._groups += 1
        chosen = block.select([starts[id(each.block)] + each.row for each in held])
        return CompleteGroup(recorded.id, self._groups, 0.0, 0, chosen)

    def _release(self, entry: AdmissionEntry) -> None:
        self._next, self.received = None, entry.received
        decided = [*(drop.names for drop in entry.drops), *(group.names for group in entry.groups)]
        for name in (name for names in decided for name in names):
            self._held.pop(name, None)
            self._gone.add(name)
