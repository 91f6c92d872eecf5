"""Where a run over a feed stood before each of its last steps, and which version of the policy its batches train.

A trainer that reads ahead saves the state of a step after which others were delivered. A rollout batch that is cut
ahead is cut for the version that it will train, which must be known before the trainer says it. A trainer that says
versions makes as many updates between two rollout batches as before, most of the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from millstream.errors import LoaderError, StateError
from millstream.loaders.rollouts import FeedPhase, FeedPlace
from millstream.storage import DAMAGED_STATE, read_count

LEADER = 0
"""The rank that decides what is trained on; the others follow its journal."""
KEPT_STEPS = 64
"""Steps whose states can still be asked for when later ones were delivered."""
LAST = 3
"""Rollout batches that say how versions grow."""


class FeedMark(NamedTuple):
    """Where a run stood before a step."""

    step: int
    place: FeedPlace
    policy_version: int
    was_told: bool
    """Whether the trainer says versions."""
    phases: list[FeedPhase]

    def to_json(self) -> dict[str, Any]:
        """As a state says it.

        >>> mark = FeedMark(3, FeedPlace(1, 0, 4), 7, True, [FeedPhase(0, FeedPlace(), 4, 1)])
        >>> mark.to_json()["policy_version"], FeedMark.from_state(3, mark.to_json()) == mark
        (7, True)
        """
        return {
            **self.place.to_json(),
            "policy_version": self.policy_version,
            "version_was_told": self.was_told,
            "phases": [phase.to_json() for phase in self.phases],
        }

    @classmethod
    def from_state(cls, step: int, state: Mapping[str, Any]) -> FeedMark:
        """Read it back; nothing in a state is trusted."""
        place = FeedPlace.from_json(state)
        version = read_count(state.get("policy_version"), "policy_version")
        listed = state.get("phases")
        phases = [FeedPhase.from_json(each) for each in listed] if isinstance(listed, list) else []
        if not phases:
            raise StateError("the state does not say how its steps are cut", hint=DAMAGED_STATE)
        return cls(step, place, version, state.get("version_was_told") is True, phases)


def follows(rank: int, *, replays: bool) -> dict[str, Any]:
    """What a state says of a run that decides nothing: `check_leads` refuses it."""
    return {"replay": True} if replays else {"follower": rank}


def check_leads(state: Mapping[str, Any]) -> None:
    """Refuse the state of a run that decided nothing: what waited for it is in no sidecar.

    >>> check_leads(follows(1, replays=False))
    Traceback (most recent call last):
    millstream.errors.StateError: this is the state of rank 1, which follows rank 0
      hint: save the state of rank 0, and load it on all ranks
    """
    if "replay" in state:
        raise StateError(
            "this is the state of a replay, which holds nothing of its own",
            hint="load a state of the run that wrote the journal, or replay it from its beginning",
        )
    if "follower" in state:
        raise StateError(
            f"this is the state of rank {state['follower']}, which follows rank {LEADER}",
            hint=f"save the state of rank {LEADER}, and load it on all ranks",
        )


class Marks:
    """The last steps, oldest first."""

    def __init__(self) -> None:
        self._marks: deque[FeedMark] = deque()

    def __len__(self) -> int:
        return len(self._marks)

    def add(self, mark: FeedMark) -> None:
        """A step is delivered that began there."""
        self._marks.append(mark)

    def clear(self) -> None:
        """The run goes elsewhere."""
        self._marks.clear()

    def forget_first(self) -> None:
        """Ask for the oldest no more."""
        self._marks.popleft()

    def forget_before(self, step: int) -> None:
        """Ask for no step before this one."""
        while self._marks and self._marks[0].step < step:
            self.forget_first()

    def first_batch(self, present: FeedPlace) -> int:
        """The first rollout batch that a state may ask for, of a run that stands there."""
        return (self._marks[0].place if self._marks else present).batch

    def at(self, step: int) -> FeedMark:
        """Where the run stood before a step that was delivered."""
        mark = next((each for each in self._marks if each.step == step), None)
        if mark is None:
            raise LoaderError(
                f"where the run stood before step {step} is not known any more: the last {len(self)} steps are",
                hint=f"save a state within {KEPT_STEPS} steps, and before a later one is committed",
            )
        return mark


class Versions:
    """The version that the next step trains, and those that later rollout batches are expected to train.

    >>> versions = Versions(0)
    >>> versions.expected(5, next_batch=2)  # rollout batches are counted
    3
    >>> for batch, version in enumerate((4, 6, 8)):
    ...     versions.tell(version, is_next=True)
    ...     versions.hand_over(batch, version)
    >>> versions.expected(5, next_batch=3)  # each brings two updates
    14

    Args:
        first: What the first step trains.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self.restart()

    def restart(self) -> None:
        """The run begins."""
        self.resume(self._first, was_told=False)

    def resume(self, version: int, *, was_told: bool) -> None:
        """The next step trains this one; whether the trainer has said versions before."""
        self.present, self.was_told = version, was_told
        self._trained: list[int] = []
        """Those of the last rollout batches that were handed over."""
        self._handed, self._is_set = -1, False
        """The number of the last of them; and whether the trainer has said the version of the next one."""

    def tell(self, version: int, *, is_next: bool) -> None:
        """The trainer says what the next step trains; `is_next`, whether a rollout batch begins with it."""
        if version < self.present:
            raise LoaderError(
                f"policy_version went back from {self.present} to {version}",
                hint="versions only grow; to go back, load the state that was saved then",
            )
        self.present, self.was_told, self._is_set = version, True, is_next

    def hand_over(self, batch: int, version: int) -> None:
        """A rollout batch is the trainer's, perhaps not for the first time."""
        if self._handed != batch:
            self._trained = [*self._trained, version][-LAST:]
            self._handed, self._is_set = batch, False

    def after(self, *, begins_batch: bool) -> int:
        """What the step after the next one trains, if the trainer says nothing."""
        return self.present + (begins_batch and not self.was_told)

    def expected(self, batch: int, next_batch: int) -> int | None:
        """What a rollout batch will train that is not handed over; None: that is not known.

        It is counted, unless the trainer says it: then it grows as it did between the last rollout batches.
        """
        if not self.was_told:
            return self.present + batch - next_batch
        if self._is_set and batch == next_batch:
            return self.present
        strides = set(np.diff(self._trained).tolist())
        if len(self._trained) < LAST or len(strides) > 1:
            return None
        known, version = (next_batch, self.present) if self._is_set else (self._handed, self._trained[-1])
        expected = version + strides.pop() * (batch - known)
        return expected if expected >= self.present else None
