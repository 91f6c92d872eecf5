"""A group that takes nobody any more: what is left of it waits for a batch, the rest is dropped, each for a reason."""

from __future__ import annotations

import numpy as np

from millstream.feeds.admission.examine import Flags, Verdict, examine
from millstream.feeds.admission.filling import BatchSize
from millstream.feeds.admission.groups import Gathering, Group
from millstream.feeds.admission.identity import Drop
from millstream.feeds.admission.memory import Memory
from millstream.feeds.admission.rules import AdmissionRules
from millstream.feeds.admission.tally import SHORT_GROUPS, count_fate


def close(memory: Memory, rules: AdmissionRules, gathering: Gathering, *, crowded: bool = False) -> None:
    """Nobody is waited for any more: the group is complete, or makes room for others."""
    del memory.gathering[gathering.id]
    memory.closed.add(gathering.id)
    block = gathering.gathered()
    if block is None:
        pass_by(memory, rules, gathering.place)
        return
    group = Group(gathering.id, memory.completed, gathering.began, gathering.place, block)
    memory.completed += 1
    if crowded:
        rest(memory, rules, group, Verdict(np.zeros(len(block), bool), {"crowded": np.ones(len(block), bool)}))
        return
    memory.tried += BatchSize.of(rules).weigh([group])
    left = rest(memory, rules, group, examine(block, rules, memory.policy_version, at_cut=False))
    came, size = len(gathering.arrived), gathering.size
    if left and size is not None and came < size:
        memory.tally.add(SHORT_GROUPS)
        memory.odd_group = memory.odd_group or (group.id, f"{came} rollouts", size)
    memory.ready += left


def rest(memory: Memory, rules: AdmissionRules, group: Group, verdict: Verdict) -> list[Group]:
    """What a verdict leaves of a group: itself, a smaller one, or nothing."""
    for reason, flags in verdict.dropped.items():
        if flags.any():
            _drop(memory, group, flags, reason)
    if verdict.kept.all():
        return [group]
    if not verdict.kept.any():
        pass_by(memory, rules, group.place)
        return []
    block = group.block.select(np.flatnonzero(verdict.kept))
    return [Group(group.id, group.number, group.began, group.place, block)]


def _drop(memory: Memory, group: Group, flags: Flags, reason: str) -> None:
    rows = np.flatnonzero(flags).tolist()
    dropped = [group.keys[row] for row in rows]
    tokens = int(group.block.lengths[rows].sum())
    count_fate(memory.tally, reason, len(rows), tokens)
    memory.drops.append(Drop(reason, group.id, memory.seen.names(dropped), tokens))
    memory.seen.let_go(dropped)


def pass_by(memory: Memory, rules: AdmissionRules, place: int) -> None:
    """A group was cut or dropped: nobody waits for its index."""
    if rules.order == "group_index":
        memory.line.pass_by(place)
