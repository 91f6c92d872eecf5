"""Everything that admission remembers, as one thing that can be written down and read back: the frontier of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.admission.filling import IndexLine
from millstream.admission.groups import Gathering, Group
from millstream.admission.identity import Drop, drop_from_json, drop_to_json
from millstream.admission.replay import Kept, ReplayBuffer
from millstream.admission.rules import AdmissionRules
from millstream.admission.seen import Recent, Seen
from millstream.admission.tally import fates_from_json, fates_to_json
from millstream.errors import StateError
from millstream.rollouts import Id, RolloutBlock
from millstream.stats import Ledger

FORMAT = 1
DAMAGED = "it was damaged or made by another version; take an older state"


@dataclass(frozen=True)
class AdmissionState:
    """What is held, at one frontier: readable JSON, and the rollouts it speaks of."""

    fields: Mapping[str, Any]
    blocks: Sequence[RolloutBlock]


@dataclass
class Memory:
    """Groups that wait, groups that are complete, and who and what has gone."""

    seen: Seen
    closed: Recent[Id]
    """Groups that are complete, cut or dropped: what still comes for them is late."""
    replay: ReplayBuffer | None
    gathering: dict[Id, Gathering] = field(default_factory=dict)
    ready: list[Group] = field(default_factory=list)
    """In the order in which they were completed; what a batch had no room for stays for the next."""
    drops: list[Drop] = field(default_factory=list)
    """What was dropped since the last cut."""
    tally: Ledger = field(default_factory=Ledger)
    """What became of everything that arrived."""
    line: IndexLine = field(default_factory=IndexLine)
    columns: dict[str, list[Any]] | None = None
    """Type and shape of each column of tokens."""
    policy_version: int = 0
    step: int = 0
    """The step that is waited for."""
    now: float = 0.0
    begun: int = 0
    """Groups of which anything arrived."""
    completed: int = 0
    tried: int = 0
    """Room that groups for the next batch would take, had none been dropped for their rewards."""
    odd_group: tuple[Id, str, int] | None = None
    """The first group of another size than was said, what came of it, and what was said; not written down."""

    @classmethod
    def empty(cls, rules: AdmissionRules, seed: int) -> Memory:
        """The memory of a run that begins."""
        replay = None if rules.replay is None else ReplayBuffer(rules.replay, seed)
        return cls(Seen(rules.remember), Recent(rules.remember), replay)

    @property
    def rollouts(self) -> int:
        """Records that are held and were not trained on."""
        gathering = sum(len(part) for group in self.gathering.values() for part in group.parts)
        return gathering + sum(len(group.block) for group in self.ready)

    def mark(self) -> MemoryMark:
        """The present, as a place to go back to. What was let go long ago is not copied: its changes are undone."""
        then = replace(
            self,
            gathering={group.id: group.copy() for group in self.gathering.values()},
            ready=list(self.ready),
            drops=list(self.drops),
            tally=self.tally.copy(),
            line=IndexLine(self.line.next, self.line.passed),
            replay=None if self.replay is None else self.replay.copy(),
        )
        return MemoryMark(then, self.seen.mark(), self.closed.mark())

    def to_state(self) -> AdmissionState:
        """Write everything down."""
        blocks = [RolloutBlock.concat(group.parts) for group in self.gathering.values() if group.parts]
        blocks += [group.block for group in self.ready]
        fields = {
            "format": FORMAT,
            "policy_version": self.policy_version,
            "step": self.step,
            "now": self.now,
            "begun": self.begun,
            "completed": self.completed,
            "tried": self.tried,
            "columns": self.columns,
            "gathering": [_gathering_to_json(group) for group in self.gathering.values()],
            "ready": [_group_to_json(group) for group in self.ready],
            "drops": [drop_to_json(drop) for drop in self.drops],
            "tally": fates_to_json(self.tally),
            "line": [self.line.next, list(self.line.passed)],
            "closed": list(self.closed),
            "seen": self.seen.to_json(),
        }
        if self.replay is not None:
            fields["replay"] = [{**_group_to_json(kept.group), "uses": kept.uses} for kept in self.replay.kept]
            fields["replay_counters"] = self.replay.counts.counts
            blocks += [kept.group.block for kept in self.replay.kept]
        return AdmissionState(fields, blocks)

    @classmethod
    def from_state(cls, state: AdmissionState, rules: AdmissionRules, seed: int, now: float | None = None) -> Memory:
        """Read everything back. `now` is the present on a clock that another process reads: waiting goes on from it."""
        if state.fields.get("format") != FORMAT:
            raise StateError("the state of admission has another format", hint=DAMAGED)
        try:
            return cls._read(state.fields, iter(state.blocks), rules, seed, now)
        except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
            raise StateError(f"the state of admission cannot be read: {error!r}", hint=DAMAGED) from None

    @classmethod
    def _read(
        cls, fields: Mapping[str, Any], blocks: Iterator[RolloutBlock], rules: AdmissionRules, seed: int,
        now: float | None,
    ) -> Memory:  # fmt: skip
        memory = cls.empty(rules, seed)
        later = 0.0 if now is None else now - fields["now"]
        for each in fields["gathering"]:
            gathering = _gathering_from_json(each, blocks, later)
            memory.gathering[gathering.id] = gathering
        memory.ready = [_group_from_json(each, blocks, later) for each in fields["ready"]]
        memory.drops = [drop_from_json(each) for each in fields["drops"]]
        memory.tally = fates_from_json(fields["tally"])
        memory.line = IndexLine(*fields["line"])
        memory.columns = fields["columns"]
        memory.policy_version, memory.step = fields["policy_version"], fields["step"]
        memory.now = fields["now"] + later
        memory.begun, memory.completed, memory.tried = fields["begun"], fields["completed"], fields["tried"]
        memory.closed = Recent(rules.remember, fields["closed"])
        memory.seen = Seen.from_json(fields["seen"], rules.remember)
        if memory.replay is not None:
            saved = fields.get("replay", [])
            memory.replay.kept = [Kept(_group_from_json(each, blocks, later), each["uses"]) for each in saved]
            memory.replay.counts.restart(fields.get("replay_counters", {}))
        return memory


@dataclass(frozen=True)
class MemoryMark:
    """What a memory was at some time, as long as the memory itself lives."""

    memory: Memory
    """Its `seen` and `closed` are those of the present."""
    seen: Any
    closed: int

    def go_back(self) -> Memory:
        """The memory of then, to be changed; nothing of the present is left."""
        self.memory.seen.go_back(self.seen)
        self.memory.closed.go_back(self.closed)
        return self.memory.mark().memory

    def settle(self) -> None:
        """No mark before this one is asked for any more."""
        self.memory.seen.settle(self.seen)
        self.memory.closed.settle(self.closed)

    def to_state(self) -> AdmissionState:
        """Write down everything as it was."""
        seen, closed = self.memory.seen.at(self.seen), self.memory.closed.at(self.closed)
        return replace(self.memory, seen=seen, closed=closed).to_state()


def _gathering_to_json(group: Gathering) -> dict[str, Any]:
    return {
        "id": group.id,
        "began": group.began,
        "place": group.place,
        "size": group.size,
        "prompt": group.prompt,
        "arrived": list(group.arrived),
        "awaited": list(group.awaited.items()),
        "baselines": group.baselines,
        "holds": bool(group.parts),
    }


def _gathering_from_json(saved: dict[str, Any], blocks: Iterator[RolloutBlock], later: float) -> Gathering:
    fields = {
        **saved,
        "began": saved["began"] + later,
        "arrived": dict.fromkeys(saved["arrived"]),
        "awaited": dict(saved.get("awaited", ())),
    }
    parts = [next(blocks)] if fields.pop("holds") else []
    return Gathering(**fields, parts=parts)


def _group_to_json(group: Group) -> dict[str, Any]:
    return {"id": group.id, "number": group.number, "began": group.began, "place": group.place}


def _group_from_json(saved: dict[str, Any], blocks: Iterator[RolloutBlock], later: float) -> Group:
    return Group(saved["id"], saved["number"], saved["began"] + later, saved["place"], next(blocks))
