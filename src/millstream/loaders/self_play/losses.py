"""What a self-play run left out so far: all of it for whoever asks, and for a state what lies behind its place.

The stages are ahead of the trainer. A run that is gone on with makes again what they had made, and looks at the folder
again, so a state counts neither; what it counts is the same on all ranks.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from millstream.errors import StateError

RESERVOIR = "gone from the reservoir"
NOT_FULL = "last batch not full"


class RunLosses:
    """Counts by reason.

    >>> losses = RunLosses()
    >>> for draw in (7, 3, 5):
    ...     losses.dropped(draw, "truncated")
    >>> losses.settle(5)
    >>> losses.behind
    Counter({'truncated': 1})
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self.stand({})

    def stand(self, saved: Mapping[str, int]) -> None:
        """Begin with what a state counts."""
        with self._guard:
            self.before: Counter[str] = Counter(saved)
            """When the stages began."""
            self._since: Counter[str] = Counter()
            self._ahead = list[tuple[int, str]]()

    def unlock(self) -> None:
        """In a forked child: a thread that is not here may hold the lock."""
        self._guard = threading.Lock()

    def dropped(self, draw: int, reason: str) -> None:
        """A draw gives nothing."""
        with self._guard:
            self._ahead.append((draw, reason))

    def settle(self, draw: int) -> None:
        """Everything before a draw is delivered."""
        with self._guard:
            self._since.update(reason for number, reason in self._ahead if number < draw)
            self._ahead = [each for each in self._ahead if each[0] >= draw]

    def at(self, draw: int) -> Counter[str]:
        """What lies behind a draw, which is not before the last one that was settled."""
        with self._guard:
            return self.behind + Counter(reason for number, reason in self._ahead if number < draw)

    def gone_from_reservoir(self, positions: int) -> None:
        """Positions would have been delivered, if their files were there."""
        self._since += Counter({RESERVOIR: positions})

    def end_epoch(self, dropped: Mapping[str, int]) -> None:
        """All that the stages have left out lies behind."""
        self.stand(self.before + Counter(dropped))

    @property
    def behind(self) -> Counter[str]:
        """What lies behind the trainer."""
        return self.before + self._since


def read_losses(saved: Any) -> dict[str, int]:
    """What a state counts; nothing in it is trusted."""
    if not isinstance(saved, Mapping) or not all(type(count) is int and count >= 0 for count in saved.values()):
        raise StateError("the state does not say what was left out", hint="it was changed by hand or damaged")
    return dict(saved)
