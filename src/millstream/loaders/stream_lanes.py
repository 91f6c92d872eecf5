"""The lanes of one stream in a run: what was found out about them, and from where the next row of each is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from millstream.loaders.lane import Place
from millstream.loaders.lane_log import LaneLog
from millstream.loaders.stream import Stream
from millstream.loaders.stream_state import Cursor, LaneState, dump_lanes

Taken = Callable[[int], int]
"""(lane) -> how many of its samples lie behind the run."""


class StreamLanes:
    """No threads: whoever reads begins at `cursor(lane)`."""

    def __init__(
        self, stream: Stream, length: int, own: range, cache_dir: Path | None, taken: Taken, id_limit: int | None
    ) -> None:
        self.stream, self.length, self.own, self.id_limit = stream, length, own, id_limit
        self.log = LaneLog(stream.log_folder(cache_dir))
        self.lane_tokens: dict[int, int] = {}
        """Tokens of an epoch of each lane, where one was counted."""
        self.left_out: Counter[str] = Counter()
        """Records that were left out since the run began or last went elsewhere, by reason."""
        self.changed: Counter[str] = Counter()
        """Likewise, those that are not as they were."""
        self._taken = taken
        self._begun: dict[int, Cursor] = {}
        self._counted: dict[int, Place] = {}

    def token(self, lane: int) -> int:
        """The next token of a lane."""
        return self._taken(lane) * self.length

    def cursor(self, lane: int) -> Cursor:
        """Where to begin to read a lane: the latest place that is known and does not lie behind its next token."""
        token, tokens = self.token(lane), self.lane_tokens.get(lane)
        known = [Cursor(Place(), 0)]
        if tokens is not None:
            known.append(Cursor(Place(token // tokens), token // tokens * tokens))
        if self._begun.get(lane, known[0]).start <= token:
            known.append(self._begun.get(lane, known[0]))
        entry = self.log.find(lane, token)
        if entry is not None:
            known.append(Cursor(entry.place, entry.start))
        return max(known, key=lambda cursor: cursor.start)

    def epoch_of(self, lane: int) -> int:
        """How often a lane was read to its end, as far as this rank knows."""
        tokens = self.lane_tokens.get(lane)
        return 0 if tokens is None else self.token(lane) // tokens

    def unknown_lane(self) -> int | None:
        """A lane of this rank whose next token the log does not know."""
        return next((lane for lane in self.own if self.token(lane) and not self.log.find(lane, self.token(lane))), None)

    def is_new(self, lane: int, place: Place) -> bool:
        """Whether a chunk comes for the first time since the run last went elsewhere: reading again is no loss."""
        last = self._counted.get(lane)
        if last is not None and place <= last:
            return False
        self._counted[lane] = place
        return True

    def jumped(self) -> None:
        """What was counted is not about what comes."""
        self.left_out.clear()
        self.changed.clear()
        self._counted.clear()

    def restart(self) -> None:
        """Stand at the very beginning."""
        self._begun = {}
        self.jumped()

    def resume(self, state: LaneState) -> None:
        """Begin where a state says."""
        self._begun, self.lane_tokens = state.cursors, {**self.lane_tokens, **state.lane_tokens}
        self.jumped()

    def state(self) -> dict[str, Any]:
        """The places of this rank's lanes; those of others may lie far behind."""
        lanes = range(self.stream.lanes)
        return dump_lanes([self.cursor(lane) for lane in lanes], [self.token(lane) for lane in lanes], self.lane_tokens)

    def read_again(self) -> dict[int, int]:
        """Tokens that must be read again to find the place of each lane of this rank."""
        return {lane: self.token(lane) - self.cursor(lane).start for lane in self.own}
