"""Where the intake of a feed stands: what decides, which rollout batches are cut and not handed over, and the marks
that it can return to.

A state always describes what was handed over: what was admitted and cut since, the feed gives again.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from millstream.errors import MillstreamError, StateError
from millstream.feeds import Arrival, Cursor, Feed
from millstream.feeds.admission import Admission, AdmittedBatch, FollowerAdmission
from millstream.loaders.rollouts import RolloutBatch
from millstream.loaders.runs.checkpoint import FeedCheckpoint
from millstream.rollouts import RolloutBlock, shown
from millstream.stages import defer_sigint
from millstream.storage import Position

log = logging.getLogger("millstream.loaders")


class ReceivedBuffer:
    """Arrivals of a feed, first in first out. What the line does not hold, the feed gives again.

    Args:
        feed: Where they come from.
        cursor: The place in it after everything that was admitted.
        keep_aside: Takes rollouts that cannot be trained on, so that they can be inspected.
    """

    def __init__(self, feed: Feed, cursor: Cursor, keep_aside: Callable[[RolloutBlock], None]) -> None:
        self._keep_aside = keep_aside
        self._feed, self.cursor = feed, cursor
        """The place in the feed after everything that was admitted."""
        self._waiting: deque[Arrival] = deque()
        self._is_receiving = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def ended(self) -> bool:
        """Whether nothing waits, and nothing more comes."""
        return not self._waiting and not self._is_receiving and self._feed.ended

    def receive(self, timeout_s: float) -> None:
        """Put what has come in line. After an interruption the feed gives it again."""
        if self._is_receiving:
            self._feed.seek(self.cursor)
            self._waiting.clear()
        self._is_receiving = True
        self._waiting.extend(self._feed.receive(timeout_s))
        self._is_receiving = False

    def let_in(self, decide: Admission | FollowerAdmission, since: list[Arrival]) -> None:
        """Let in what is first in line, whole or not at all. What is refused stays: the place is that before it."""
        with defer_sigint():
            first = self._waiting[0]
            self._arrive(decide, first.block)
            self._waiting.popleft()
            self.cursor = first.cursor
            since.append(first)

    def put_back(self, arrivals: list[Arrival], cursor: Cursor) -> None:
        """Have some that were admitted come again: the place is that before them."""
        self._waiting.extendleft(reversed(arrivals))
        self.cursor = cursor

    def _arrive(self, decide: Admission | FollowerAdmission, block: RolloutBlock) -> None:
        """Let rollouts in. Those that looking at fails are set aside: the feed would give them again to every run."""
        try:
            decide.arrive(block, time.monotonic())
        except MillstreamError:
            raise
        except Exception as error:
            odd = [row for row in range(len(block)) if not _can_look(decide, block.select([row]))]
            if not odd:
                raise
            names = ", ".join(shown(block.rows["rollout_id"][row]) for row in odd[:3])
            log.warning("%d rollouts are left out, such as %s: %s", len(odd), names, shown(error))
            decide.arrive(block.select(np.setdiff1d(np.arange(len(block)), odd)), time.monotonic())
            decide.set_aside(block.select(odd))
            if isinstance(decide, Admission):
                self._keep_aside(block.select(odd))


def _can_look(decide: Admission | FollowerAdmission, block: RolloutBlock) -> bool:
    try:
        decide.look(block)
    except MillstreamError:  # it is refused in an orderly way
        pass
    except Exception:
        return False
    return True


Expected = Callable[[int], int | None]
"""(rollout batch) -> the version that it will train, as far as that is known."""


@dataclass(frozen=True, eq=False)
class IntakeMark:
    """Where the intake stood before it tried for a rollout batch."""

    mark: Any
    """Of what decides."""
    cursor: Cursor
    position: Position
    """Of the journal."""
    since: list[Arrival] = field(default_factory=list)
    """What was admitted until the next mark."""


@dataclass(eq=False)
class PendingBatch:
    """A rollout batch that is cut and not handed over."""

    cut: AdmittedBatch
    base: IntakeMark
    is_written: bool = False
    is_rated: bool = False
    rated: RolloutBatch | None = None
    """None: rating failed. It is tried again, and the error raised, when the trainer asks for the batch."""


class Frontier:
    """Where an intake stands, before a rollout batch or in the midst of one that is given.

    A caller that changes something holds the lock `moving`. A run that goes elsewhere has another frontier.

    Args:
        decide: Says what is trained on.
        line: What the feed has brought.
        checkpoint: Writes down what is cut.
        batch: The number of the rollout batch.
        present: What was cut for it, if it was handed over.
    """

    def __init__(
        self,
        decide: Admission | FollowerAdmission,
        line: ReceivedBuffer,
        checkpoint: FeedCheckpoint,
        batch: int,
        present: tuple[AdmittedBatch, RolloutBatch] | None = None,
    ) -> None:
        self.decide, self.line, self._checkpoint = decide, line, checkpoint
        self.present, self.batch = present, batch + (present is not None)
        """The rollout batch that was handed over and is not used up; and the number of the next one to hand over."""
        self.ahead: deque[PendingBatch] = deque()
        self.base = self._new_base()
        self._kept: dict[int, tuple[IntakeMark, AdmittedBatch]] = (
            {} if present is None else {batch: (self.base, present[0])}
        )
        """Rollout batches that were handed over, by number, and where the intake stood before each: for states."""
        self.trying: int | None = None
        """The version for which the next rollout batch is being tried."""
        self.asked: int | None = None
        """The version for which the trainer waits for the next rollout batch."""
        self.has_asked, self.looks = False, 0
        """Whether the trainer has asked for what is not here yet; and how often was looked for it."""
        self.failed: BaseException | None = None
        """Raised where the trainer asks for what is not made."""

    def _new_base(self) -> IntakeMark:
        return IntakeMark(self.decide.mark(), self.line.cursor, self._checkpoint.position)

    @property
    def follows(self) -> bool:
        """Whether another rank, or an earlier run, decides what is trained on."""
        return isinstance(self.decide, FollowerAdmission)

    @property
    def settled(self) -> IntakeMark:
        """Where the intake stood after the last rollout batch that was handed over."""
        return self.ahead[0].base if self.ahead else self.base

    @property
    def oldest(self) -> IntakeMark:
        """The first place that a state may ask for."""
        return self._kept[min(self._kept)][0] if self._kept else self.settled

    # Onwards

    def begin(self) -> None:
        """The journal was opened."""
        self.base = self._new_base()

    def let_in(self) -> None:
        """Let in what is first in line."""
        self.line.let_in(self.decide, self.base.since)

    def head(self, policy_version: int) -> PendingBatch | None:
        """The next rollout batch, if it is made, for this version."""
        made = self.ahead[0] if self.ahead else None
        is_made = made is not None and made.is_rated and made.cut.policy_version == policy_version
        return made if is_made else None

    def check_version(self, policy_version: int, most_ahead: int) -> None:
        """Raise StateError if the next rollout batch was trained with another version: no cut for this one comes.

        Rank 0 may withdraw what it has cut ahead. It has handed a cut over where there are more than lie ahead, and
        cuts nothing ahead where only the newest weights count; of a replay, what was withdrawn is left out.
        """
        if not self.ahead or not self.follows:
            return
        cut, replays = self.ahead[0].cut, self._checkpoint.replays
        is_trained = replays or self.decide.rules.max_staleness == 0 or len(self.ahead) > max(1, most_ahead)
        if cut.policy_version == policy_version or not is_trained:
            return
        leader, here = ("the journal", "this run") if replays else ("rank 0", "this rank")
        raise StateError(
            f"{leader} trains version {cut.policy_version} in rollout batch {cut.step}, and {here} trains version "
            f"{policy_version}",
            hint="set policy_version to the same number on all ranks, and in a replay, before next() is called",
        )

    def waiting_for(self, policy_version: int) -> str:
        """What the next rollout batch waits for, in words."""
        if not self.ahead:
            return self.decide.waiting_for()
        cut = self.ahead[0].cut
        return (
            f"rank 0 has cut rollout batch {cut.step} for version {cut.policy_version}, "
            f"and this rank trains version {policy_version}"
        )

    def cut(self, version: int | None, now: float, *, ended: bool) -> AdmittedBatch | None:
        """AdmittedBatch the next rollout batch, if there is enough for it and nothing is withdrawn."""
        ended = ended and not self.line  # something may have been put back
        self.trying, batch, decide = version, self.batch + len(self.ahead), self.decide
        if isinstance(decide, FollowerAdmission):
            cut = decide.cut(batch, None, now, ended=ended)
        else:
            assert version is not None
            cut = decide.cut(batch, version, now, ended=ended)
        if cut is not None:
            self.ahead.append(PendingBatch(cut, self.base))
            self.trying = None
        return cut

    def write(self, made: PendingBatch) -> None:
        """Write a cut down, before anything is trained on."""
        self._checkpoint.write(made.cut, self.line.cursor)
        made.is_written, self.base = True, self._new_base()

    def hand_over(self, made: PendingBatch, rated: RolloutBatch) -> None:
        """The next rollout batch is the trainer's; it is kept for states where there is a place for them."""
        if isinstance(self.decide, FollowerAdmission):
            self.decide.check()
        self.ahead.popleft()
        if not self.follows and self._checkpoint.folder is not None:
            self._kept[self.batch] = made.base, made.cut
            made.base.since.clear()  # it is not tried for again
        self.present, self.batch = (made.cut, rated), self.batch + 1
        self.oldest.mark.settle()
        self.has_asked = False

    def keep_from(self, batch: int) -> None:
        """No state of a rollout batch before this one is asked for any more."""
        for number in [number for number in self._kept if number < batch]:
            del self._kept[number]
        self.oldest.mark.settle()

    # Back

    def recheck(self, expected: Expected) -> None:
        """Withdraw what was cut ahead for another version than its rollout batch trains."""
        if self.follows:
            return  # the leader withdraws
        for number, made in enumerate(self.ahead):
            if self._version_of(self.batch + number, expected) != made.cut.policy_version:
                self.withdraw(made)
                return
        if self.trying is not None and self.trying != self._version_of(self.batch + len(self.ahead), expected):
            self.go_back(self.base)

    def _version_of(self, batch: int, expected: Expected) -> int | None:
        """The version that a rollout batch trains: what the trainer asks for, or what is expected."""
        return self.asked if batch == self.batch and self.asked is not None else expected(batch)

    def withdraw(self, made: PendingBatch) -> None:
        """Take back a cut, and those after it: everything is as it was before it was tried for."""
        with defer_sigint():
            if made.is_written:
                self._checkpoint.withdraw(made.cut)
            self.go_back(made.base)

    def follow_withdrawal(self, step: int) -> None:
        """The leader has withdrawn a cut."""
        base = next((made.base for made in self.ahead if made.cut.step == step), None)
        if base is None:
            raise StateError(
                f"rank 0 has withdrawn rollout batch {step}, which was handed over here: it trains another version",
                hint="set policy_version to the same number on all ranks, before next() is called",
            )
        self.go_back(base)

    def go_back(self, base: IntakeMark) -> None:
        """Return to a mark; what was admitted since comes again."""
        with defer_sigint():
            bases = [made.base for made in self.ahead]
            bases += [self.base] if not bases or bases[-1] is not self.base else []
            number = next(number for number, each in enumerate(bases) if each is base)
            while len(self.ahead) > number:
                self.ahead.pop()
            self.decide.rewind(base.mark)
            self.line.put_back([arrival for each in bases[number:] for arrival in each.since], base.cursor)
            self.base, self.trying, self.failed = self._new_base(), None, None

    # States

    def save(self, step: int, batch: int, *, begins: bool) -> dict[str, Any]:
        """Where the feed stood before a step, with which a rollout batch begins or which lies in the midst of it;
        and where everything lies that came before and was not used up then.
        """
        next_batch = batch if begins else batch + 1
        base = self._kept[next_batch][0] if next_batch in self._kept else self.settled
        if begins:
            present = []
        elif batch in self._kept:
            present = [self._kept[batch][1]]
        else:
            assert self.present is not None
            present = [self.present[0]]
        return {"feed": dict(base.cursor), **self._checkpoint.save(step, base.mark.state(), present, base.position)}

    @property
    def kept_bytes(self) -> int:
        """Bytes of rollout batches that only states of earlier steps need."""
        present = None if self.present is None else self.present[0]
        return sum(cut.block.nbytes for _, cut in self._kept.values() if cut is not present)
