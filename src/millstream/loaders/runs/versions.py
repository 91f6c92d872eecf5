"""Which version of the policy the rollout batches of a run over a feed train: counted, or said by the trainer.

A rollout batch that is cut ahead is cut for the version that it will train, which must be known before the trainer says
it. Who says versions makes as many updates between two rollout batches as before, most of the time.
"""

from __future__ import annotations

import numpy as np

from millstream.errors import LoaderError

LAST = 3
"""Rollout batches that say how versions grow."""


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
        """What the step behind the next one trains, if the trainer says nothing."""
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
