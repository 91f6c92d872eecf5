"""Where a streaming run stands: samples delivered, and from them, for every lane, the place of its next token."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream._core import order_version
from millstream.errors import LoaderError, UnknownLength
from millstream.loaders.lane_run import DEFAULT_PREFETCH, LaneRun
from millstream.loaders.lane_steps import samples_of, step_of
from millstream.loaders.losses import named_losses
from millstream.loaders.origin import RowOrigin
from millstream.loaders.settings import LoaderSettings
from millstream.loaders.stream import Stream
from millstream.loaders.stream_explain import Explainer, not_in_the_log
from millstream.loaders.stream_lanes import StreamLanes
from millstream.loaders.stream_state import delivered, read_state

WORTH_SAYING_TOKENS = 10**7
_log = logging.getLogger("millstream.loaders")


class StreamRun(LaneRun):
    """A step of a stream. An epoch ends when every lane has been read to its end."""

    kind = "stream"

    def __init__(self, stream: Stream, settings: LoaderSettings, length: int, row_facts: dict[str, Any]) -> None:
        super().__init__(settings, {**row_facts, "chunk_size": length})
        self.stream, self.length = stream, length
        own = range(settings.rank, stream.lanes, settings.world_size)
        limit = settings.limits.vocab_size
        self.lanes = StreamLanes(stream, length, own, settings.cache_dir, self._taken, limit)
        self.restart()

    def _taken(self, lane: int) -> int:
        return delivered(self.sample, lane, self.stream.lanes)

    @property
    def streams(self) -> dict[str, StreamLanes]:
        """The lanes of the one stream."""
        return {self.stream.name: self.lanes}

    def sources_of(self, samples: Sequence[int]) -> tuple[list[str], npt.NDArray[np.int64]]:
        """All samples are those of the one stream."""
        return [self.stream.name] * len(samples), np.array(samples, np.int64)

    def ahead(self, prefetch: int | None) -> dict[str, int]:
        """All lanes are used in turn."""
        return {self.stream.name: -(-(prefetch or DEFAULT_PREFETCH) * self.step_rows // self.stream.lanes)}

    @property
    def epoch(self) -> int:
        """How often every lane was read to its end, as far as this rank knows."""
        if len(self.lanes.lane_tokens) < len(self.lanes.own):  # some lane has no end yet; asked for with every batch
            return 0
        return min(self.lanes.epoch_of(lane) for lane in self.lanes.own)

    def epoch_end(self, epoch: int) -> int:
        """The first sample behind an epoch: by then every lane has been read to its end once more."""
        tokens = self.lanes.lane_tokens
        missing = self.stream.lanes - len(tokens)
        if missing:
            raise UnknownLength(
                f"{missing} of {self.stream.lanes} lanes have not been read to their end yet, so nobody knows how much "
                "there is",
                hint="take batches with next() and count steps; one rank knows all lanes after its first epoch; "
                "a prepared store knows everything at once",
            )
        lanes, length = self.stream.lanes, self.length
        return max((-(-(epoch + 1) * n // length) - 1) * lanes + lane + 1 for lane, n in tokens.items())

    def check_epochs(self) -> None:
        """With several ranks the end must be known beforehand, or each of them would stop elsewhere."""
        if self.settings.world_size > 1:
            self.epoch_end(self.epoch)

    def in_epoch(self, epoch: int) -> bool:
        """Whether the next step belongs to an epoch, which ends when every lane was read to its end once more."""
        if self.settings.world_size == 1:
            return self.epoch == epoch
        return self.sample < self.epoch_end(epoch)

    def steps_in_epoch(self) -> int:
        """Steps of the present epoch, at the loader's own batch size; unknown until every lane was read to its end."""
        epoch, rows = self.epoch, self.own_rows
        before = -(-self.epoch_end(epoch - 1) // rows) if epoch else 0
        return -(-self.epoch_end(epoch) // rows) - before

    def present_state(self) -> dict[str, Any]:
        """Describe where the run stands, with the places of this rank's lanes; those of others may lie far behind."""
        return {**self._header(), "data": self.stream.data, **self.lanes.state()}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Stand where a state was saved, or change nothing."""
        self.check(state)
        read = read_state(state, self.stream.lanes, self.length, self.stream.data)
        self.step, self.sample, self.phases = read.step, read.sample, read.phases
        self.lanes.resume(read.lanes)
        self.resize(self.settings.batch_size)
        warn_of_reading_again(self.lanes)

    def origins(self, step: int) -> list[RowOrigin]:
        """Name the origin of each row of this rank at a step that was delivered."""
        samples = samples_of(step, self.phases, self.settings.rank, self.settings.world_size)
        return self._explainer().rows(samples)

    def steps_of(self, document: int, source: str | None) -> list[int]:
        """Name the steps of the present epoch whose rows held tokens of a document, as `explain` numbers it."""
        if source not in (None, self.stream.name):
            raise LoaderError(f"there is no source {source!r}", hint=f"there is {self.stream.name!r}")
        found = self._explainer().samples_with(document, [self.epoch])
        steps = {step_of(sample, self.phases) for sample in found} - {None}
        if not steps:
            raise not_in_the_log(document)
        return sorted(step for step in steps if step is not None)

    def _explainer(self) -> Explainer:
        return Explainer(self.stream, self.lanes.log, self.length)

    def fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common."""
        shared = ("seed", "batch_size", "world_size", "labels")
        return {
            "loader": self.kind,
            "order_version": order_version,
            **{f"{key} of the stream": value for key, value in self.stream.data.items()},
            **{key: getattr(self.settings, key) for key in shared},
            "chunk_size": self.length,
            "documents": self._row_facts["documents"],
            "step": self.step,
            "sample": self.sample,
        }

    @property
    def losses(self) -> dict[str, int]:
        """What this rank left out and changed since the run began or last went elsewhere, by reason."""
        return named_losses(self.stream.name, self.lanes.left_out, self.lanes.changed)


def warn_of_reading_again(lanes: StreamLanes) -> None:
    """Say so when the places of lanes are not known well, and finding them takes long."""
    for lane, behind in lanes.read_again().items():
        if behind > WORTH_SAYING_TOKENS:
            _log.warning("lane %d: %d tokens are read again to find its place (see merge_states)", lane, behind)
