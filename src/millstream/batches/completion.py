"""CompletionTracker: which steps are done on which ranks, and up to where on all of them.

Reports come in any order; only steps that some rank has done and another has not are remembered one by one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from millstream.errors import LoaderError, OrderError, StateError


class CompletionTracker:
    """Says when a state may be committed: when its step and all before it are done on all ranks.

    Reporting a step twice changes nothing: reports are repeated by retries, and by ranks that resume from an older
    state and do the same steps again.

    >>> tracker = CompletionTracker(world_size=2)
    >>> tracker.done(0, rank=0)
    range(0, 0)
    >>> tracker.done(1, rank=1), tracker.done(1, rank=0)  # out of order: step 0 is missing on rank 1
    (range(0, 0), range(0, 0))
    >>> tracker.pending()
    {0: (1,)}
    >>> tracker.done(0, rank=1)
    range(0, 2)
    >>> tracker.completed
    1

    Args:
        world_size: Ranks that report, 0 … world_size - 1.
        first_step: The first step that is reported: `state["step"]` of a resumed run.
        window: Steps that may be open at a time; a report from farther ahead is an error, so memory is bounded.
    """

    def __init__(self, world_size: int, *, first_step: int = 0, window: int = 1024) -> None:
        if world_size < 1 or window < 1:
            raise OrderError(
                f"world_size={world_size} and window={window} are not both 1 or more",
                hint="pass the number of ranks that report, and leave out window=",
            )
        self.world_size = world_size
        self.window = window
        self._lock = threading.Lock()
        self._completed = first_step - 1
        self._done: dict[int, set[int]] = {}

    @property
    def completed(self) -> int:
        """The last step that is done on all ranks together with all steps before; at first `first_step - 1`."""
        return self._completed

    def done(self, step: int, rank: int) -> range:
        """Report a step of a rank; returns the steps that are completed by it, often none.

        `for step in tracker.done(step, rank): loader.commit(states.pop(step))` commits what may be committed.
        """
        if not 0 <= rank < self.world_size:
            raise OrderError(f"rank {rank} is outside 0..{self.world_size - 1}", hint="ranks count from 0")
        with self._lock:
            before = self._completed
            if step > before + self.window:
                raise LoaderError(
                    f"rank {rank} is done with step {step}, but step {before + 1} is still open on rank "
                    f"{self._missing(before + 1)[0]}",
                    hint=f"see why that rank is behind, or pass a window of more than {self.window} steps",
                )
            if step > before:
                self._done.setdefault(step, set()).add(rank)
            while len(self._done.get(self._completed + 1, ())) == self.world_size:
                self._completed += 1
                del self._done[self._completed]
            return range(before + 1, self._completed + 1)

    def pending(self) -> dict[int, tuple[int, ...]]:
        """Name the ranks that are missing, for each open step up to the last one that was reported."""
        with self._lock:
            last = max(self._done, default=self._completed)
            steps = range(self._completed + 1, last + 1)
            return {step: missing for step in steps if (missing := self._missing(step))}

    def state_dict(self) -> dict[str, Any]:
        """Give what is known, ready for JSON.

        >>> tracker = CompletionTracker(world_size=2)
        >>> _ = tracker.done(0, rank=0), tracker.done(0, rank=1), tracker.done(1, rank=1)
        >>> tracker.state_dict()
        {'version': 1, 'world_size': 2, 'completed': 0, 'done': {'1': [1]}}
        """
        with self._lock:
            done = {str(step): sorted(ranks) for step, ranks in sorted(self._done.items())}
            return {"version": 1, "world_size": self.world_size, "completed": self._completed, "done": done}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state. If it is of another number of ranks, steps that were open then are open for all."""
        try:
            version, completed = int(state["version"]), int(state["completed"])
            done = {int(step): {int(rank) for rank in among} for step, among in state["done"].items()}
            ranks = int(state["world_size"])
            if any(step <= completed or not among <= set(range(ranks)) for step, among in done.items()):
                raise ValueError(f"steps up to {completed}, or ranks that are not among {ranks}, in 'done'")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(
                f"this is no state of a CompletionTracker: {error!r}", hint="pass what state_dict() gave"
            ) from error
        if version != 1:
            raise StateError(f"this state has version {version}, not 1", hint="use a newer Millstream")
        with self._lock:
            self._completed = completed
            self._done = done if ranks == self.world_size else {}

    def _missing(self, step: int) -> tuple[int, ...]:
        done = self._done.get(step, ())
        return tuple(rank for rank in range(self.world_size) if rank not in done)
