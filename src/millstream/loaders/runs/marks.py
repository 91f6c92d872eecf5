"""Where a run over a feed stood before each of its last steps, and what a state says of it.

A trainer that reads ahead saves the state of a step behind which others were delivered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from millstream.errors import LoaderError, StateError
from millstream.loaders import FeedPhase, FeedPlace
from millstream.storage import DAMAGED_STATE, read_count

LEADER = 0
"""The rank that decides what is trained on; the others follow its journal."""
KEPT_STEPS = 64
"""Steps whose states can still be asked for when later ones were delivered."""


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
