"""Where a streaming run stands: samples delivered, and from them, for every lane, the place of its next token."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from millstream._core import order_version
from millstream.errors import LoaderError, UnknownLength
from millstream.loaders import state as states
from millstream.loaders.lane import Place
from millstream.loaders.lane_log import LaneLog
from millstream.loaders.settings import LoaderSettings
from millstream.loaders.stream import Stream
from millstream.loaders.stream_explain import KEEP_A_LOG, Explainer, samples_of
from millstream.loaders.stream_state import (
    KEPT_PHASES,
    KIND,
    Cursor,
    StepPhase,
    delivered,
    dump_lanes,
    phase_at,
    read_state,
)

WORTH_SAYING_TOKENS = 10**7
_log = logging.getLogger("millstream.loaders")


class StreamRun:
    """A step of a stream. No threads: whoever reads begins at `cursor(lane)`."""

    def __init__(self, stream: Stream, settings: LoaderSettings, length: int, row_facts: dict[str, Any]) -> None:
        self.stream, self.settings, self.length = stream, settings, length
        self.log = LaneLog(stream.log_folder(settings.cache_dir))
        self.own_lanes = range(settings.rank, stream.lanes, settings.world_size)
        self.lane_tokens: dict[int, int] = {}
        """Tokens of an epoch of each lane, where one was counted."""
        self.losses: Counter[str] = Counter()
        """What was left out since the run began or last went elsewhere, by reason."""
        self._counted: dict[int, Place] = {}
        self._row_facts = {**row_facts, "chunk_size": length}
        self.restart()

    def restart(self) -> None:
        """Stand at the very beginning."""
        rows = self.settings.batch_size * self.settings.world_size
        self.step = self.sample = 0
        self.phases = [StepPhase(0, 0, rows, self.settings.world_size)]
        self._begun: dict[int, Cursor] = {}
        self._jumped()

    def _jumped(self) -> None:
        """What was counted is not about what comes."""
        self.losses.clear()
        self._counted.clear()

    def is_new(self, lane: int, place: Place) -> bool:
        """Whether a chunk comes for the first time since the run last went elsewhere: reading again is no loss."""
        last = self._counted.get(lane)
        if last is not None and place <= last:
            return False
        self._counted[lane] = place
        return True

    @property
    def rows(self) -> int:
        """Rows of a step, on all ranks together."""
        return self.phases[-1].rows

    def resize(self, batch_size: int) -> None:
        """Go on with batches of another size, or on another number of ranks."""
        phase = StepPhase(self.step, self.sample, batch_size * self.settings.world_size, self.settings.world_size)
        last = self.phases[-1]
        if (last.rows, last.ranks) != (phase.rows, phase.ranks):
            kept = [each for each in self.phases if each.step < self.step]
            self.phases = [*kept[1 - KEPT_PHASES :], phase]

    def samples(self) -> list[int]:
        """The samples of this rank at the present step."""
        return samples_of(self.step, self.phases, self.settings.rank, self.settings.world_size)

    def advance(self) -> None:
        """A step was delivered."""
        self.step, self.sample = self.step + 1, self.sample + self.rows

    def token(self, lane: int) -> int:
        """The next token of a lane."""
        return delivered(self.sample, lane, self.stream.lanes) * self.length

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

    @property
    def epoch(self) -> int:
        """How often every lane was read to its end, as far as this rank knows."""
        return min(self._epoch_of(lane) for lane in self.own_lanes)

    def _epoch_of(self, lane: int) -> int:
        tokens = self.lane_tokens.get(lane)
        return 0 if tokens is None else self.token(lane) // tokens

    def epoch_end(self, epoch: int) -> int:
        """The first sample behind an epoch: by then every lane has been read to its end once more."""
        missing = self.stream.lanes - len(self.lane_tokens)
        if missing:
            raise UnknownLength(
                f"{missing} of {self.stream.lanes} lanes have not been read to their end yet, so nobody knows how much "
                "there is",
                hint="take batches with next() and count steps; one rank knows all lanes after its first epoch; "
                "a prepared store knows everything at once",
            )
        lanes, length = self.stream.lanes, self.length
        return max((-(-(epoch + 1) * n // length) - 1) * lanes + lane + 1 for lane, n in self.lane_tokens.items())

    def steps_of_epoch(self) -> int:
        """Steps of the present epoch, at the present batch size."""
        epoch, rows = self.epoch, self.rows
        before = -(-self.epoch_end(epoch - 1) // rows) if epoch else 0
        return -(-self.epoch_end(epoch) // rows) - before

    def seek(self, step: int) -> None:
        """Go to a step whose places the log knows, or change nothing."""
        phase = phase_at(self.phases, step)
        if phase is None or step < 0:
            raise LoaderError(f"step {step} is not known", hint="seek a step from 0 on; reset() goes to the beginning")
        was = self.step, self.sample
        self.step, self.sample = step, phase.sample + (step - phase.step) * phase.rows
        unknown = [lane for lane in self.own_lanes if self.token(lane) and not self.log.find(lane, self.token(lane))]
        if unknown and (self.step, self.sample) != was:
            self.step, self.sample = was
            raise UnknownLength(
                f"the log does not know where step {step} begins in lane {unknown[0]}",
                hint=f"a stream goes back to what it delivered, not forward; {KEEP_A_LOG}",
            )
        self.phases = [each for each in self.phases if each.step <= step]
        self._jumped()
        self.resize(self.settings.batch_size)

    def state(self) -> dict[str, Any]:
        """Describe where the run stands, with the places of this rank's lanes; those of others may lie far behind."""
        lanes = range(self.stream.lanes)
        return {
            "format": states.FORMAT,
            "version": states.VERSION,
            "order_version": order_version,
            "loader": KIND,
            "step": self.step,
            "sample": self.sample,
            "seed": self.settings.seed,
            "rows": self._row_facts,
            "data": self.stream.data,
            "steps": [[phase.step, phase.sample, phase.rows, phase.ranks] for phase in self.phases],
            **dump_lanes([self.cursor(lane) for lane in lanes], [self.token(lane) for lane in lanes], self.lane_tokens),
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Stand where a state was saved, or change nothing."""
        self.check(state)
        read = read_state(state, self.stream.lanes, self.length, self.stream.data)
        self.step, self.sample, self.phases = read.step, read.sample, read.phases
        self._begun, self.lane_tokens = read.cursors, {**self.lane_tokens, **read.lane_tokens}
        self._jumped()
        self.resize(self.settings.batch_size)
        for lane in self.own_lanes:
            behind = self.token(lane) - self.cursor(lane).start
            if behind > WORTH_SAYING_TOKENS:
                _log.warning("lane %d: %d tokens are read again to find its place (see merge_states)", lane, behind)

    def check(self, state: Mapping[str, Any]) -> None:
        """Check that a state is one of a stream like this."""
        states.check_header(state, KIND, self.settings.seed, self._row_facts)

    def explainer(self) -> Explainer:
        """What explains the rows of this run."""
        return Explainer(self.stream, self.log, self.length)
