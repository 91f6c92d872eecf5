"""Everything that admission holds and remembers, and its snapshot: JSON with the rollouts, as the bytes of a sidecar.

What became of rollouts is counted on a ledger: one fate for each that arrived, in rollouts and in tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.errors import StateError
from millstream.feeds.admission.batch import IndexLine
from millstream.feeds.admission.groups import CompleteGroup, OpenGroup
from millstream.feeds.admission.replay_buffer import ReplayBuffer, ReplayedGroup
from millstream.feeds.admission.rules import AdmissionRules
from millstream.feeds.admission.seen import Drop, RecentKeys, SeenRollouts, drop_from_json, drop_to_json
from millstream.rollouts import Id, RolloutBlock, decode_all, encode_parts
from millstream.stats import Ledger
from millstream.storage import RESTORE_SIDECAR, compact

FORMAT = 1
DAMAGED = "it was damaged or made by another version; take an older state"
MAGIC = b"MLSADMIT"
ALIGN = 64
ADMISSION_SIDECAR = "admission"
ARRIVED = "arrived"
CUT = "cut"
TOKENS = "_tokens"
"""What the name of a count of tokens ends with."""
MASKED = f"stale_masked{TOKENS}"
"""Not a fate: tokens whose loss was taken away, of rollouts that were cut."""
SHORT_GROUPS = "short_groups"
"""Not a fate: groups that were smaller than they were said to be, and are used all the same."""


@dataclass(frozen=True)
class AdmissionState:
    """What is held, at one frontier: readable JSON, and the rollouts it speaks of."""

    fields: Mapping[str, Any]
    blocks: Sequence[RolloutBlock]


@dataclass
class Memory:
    """Groups that wait, groups that are complete, and what was seen and closed."""

    seen: SeenRollouts
    closed: RecentKeys[Id]
    """Groups that are complete, cut or dropped: what still comes for them is late."""
    replay: ReplayBuffer | None
    gathering: dict[Id, OpenGroup] = field(default_factory=dict)
    ready: list[CompleteGroup] = field(default_factory=list)
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
        return cls(SeenRollouts(rules.remember), RecentKeys(rules.remember), replay)

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
            "gathering": [_open_group_to_json(group) for group in self.gathering.values()],
            "ready": [_group_to_json(group) for group in self.ready],
            "drops": [drop_to_json(drop) for drop in self.drops],
            "tally": _fates_to_json(self.tally),
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
        """Read everything back. `now` is the present on a clock that another process reads: waits continue from it."""
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
            gathering = _open_group_from_json(each, blocks, later)
            memory.gathering[gathering.id] = gathering
        memory.ready = [_group_from_json(each, blocks, later) for each in fields["ready"]]
        memory.drops = [drop_from_json(each) for each in fields["drops"]]
        memory.tally = _fates_from_json(fields["tally"])
        memory.line = IndexLine(*fields["line"])
        memory.columns = fields["columns"]
        memory.policy_version, memory.step = fields["policy_version"], fields["step"]
        memory.now = fields["now"] + later
        memory.begun, memory.completed, memory.tried = fields["begun"], fields["completed"], fields["tried"]
        memory.closed = RecentKeys(rules.remember, fields["closed"])
        memory.seen = SeenRollouts.from_json(fields["seen"], rules.remember)
        if memory.replay is not None:
            saved = fields.get("replay", [])
            memory.replay.kept = [ReplayedGroup(_group_from_json(each, blocks, later), each["uses"]) for each in saved]
            memory.replay.counts.restart(fields.get("replay_counters", {}))
        return memory


@dataclass(frozen=True)
class MemoryMark:
    """What a memory was at some time, as long as the memory itself lives."""

    memory: Memory
    """Its `seen` and `closed` are those of the present."""
    seen: Any
    closed: int

    def rewind(self) -> Memory:
        """The memory of then, to be changed; nothing of the present is left."""
        self.memory.seen.rewind(self.seen)
        self.memory.closed.rewind(self.closed)
        return self.memory.mark().memory

    def settle(self) -> None:
        """No mark before this one is asked for any more."""
        self.memory.seen.settle(self.seen)
        self.memory.closed.settle(self.closed)

    def to_state(self) -> AdmissionState:
        """Write down everything as it was."""
        seen, closed = self.memory.seen.at(self.seen), self.memory.closed.at(self.closed)
        return replace(self.memory, seen=seen, closed=closed).to_state()


def _open_group_to_json(group: OpenGroup) -> dict[str, Any]:
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


def _open_group_from_json(saved: dict[str, Any], blocks: Iterator[RolloutBlock], later: float) -> OpenGroup:
    fields = {
        **saved,
        "began": saved["began"] + later,
        "arrived": dict.fromkeys(saved["arrived"]),
        "awaited": dict(saved.get("awaited", ())),
    }
    parts = [next(blocks)] if fields.pop("holds") else []
    return OpenGroup(**fields, parts=parts)


def _group_to_json(group: CompleteGroup) -> dict[str, Any]:
    return {"id": group.id, "number": group.number, "began": group.began, "place": group.place}


def _group_from_json(saved: dict[str, Any], blocks: Iterator[RolloutBlock], later: float) -> CompleteGroup:
    return CompleteGroup(saved["id"], saved["number"], saved["began"] + later, saved["place"], next(blocks))


def encode_admission(state: AdmissionState) -> Iterator[bytes | memoryview]:
    """The content of the sidecar of a state, in parts. The same state is the same content."""
    fields = compact(state.fields)
    head = MAGIC + len(fields).to_bytes(8, "little") + fields
    yield head + bytes(-len(head) % ALIGN)
    for block in state.blocks:
        yield from encode_parts(block)


def decode_admission(data: bytes, where: object) -> AdmissionState:
    """Read it back; `where` is the file, for messages."""
    if not data.startswith(MAGIC):
        raise StateError(f"{where}: the sidecar of the state is damaged", hint=RESTORE_SIDECAR)
    stop = 16 + int.from_bytes(data[8:16], "little")
    found = decode_all(memoryview(data)[stop + -stop % ALIGN :])
    if found.torn is not None:
        raise StateError(f"{where}: {found.torn}", hint=RESTORE_SIDECAR)
    return AdmissionState(json.loads(data[16:stop]), found.blocks)


def count_fate(ledger: Ledger, fate: str, rollouts: int, tokens: int) -> None:
    """Count some rollouts, and their tokens.

    >>> ledger = Ledger()
    >>> count_fate(ledger, "cut", 2, 30)
    >>> ledger.counts
    {'cut': 2, 'cut_tokens': 30}
    """
    ledger.add(fate, count=rollouts)
    ledger.add(f"{fate}{TOKENS}", count=tokens)


def _fates_to_json(ledger: Ledger) -> dict[str, Any]:
    """Write the counts down, those of rollouts and those of tokens apart."""
    counts = sorted(ledger.counts.items())
    return {
        "rollouts": {name: count for name, count in counts if not name.endswith(TOKENS)},
        "tokens": {name.removesuffix(TOKENS): count for name, count in counts if name.endswith(TOKENS)},
    }


def _fates_from_json(saved: Mapping[str, Any]) -> Ledger:
    """Read them back."""
    ledger = Ledger()
    ledger.restart({**saved["rollouts"], **{f"{fate}{TOKENS}": count for fate, count in saved["tokens"].items()}})
    return ledger


def mean_lengths(counters: Mapping[str, int]) -> dict[str, float]:
    """Tokens per rollout by fate: what was cut against what was dropped shows a bias to short answers.

    >>> mean_lengths({"cut": 2, "cut_tokens": 30, "stale": 1, "stale_tokens": 40, "feed_received": 3})
    {'cut': 15.0, 'stale': 40.0}
    """
    tokens = {fate: counters.get(f"{fate}_tokens") for fate, count in sorted(counters.items()) if count}
    return {fate: held / counters[fate] for fate, held in tokens.items() if held is not None}
