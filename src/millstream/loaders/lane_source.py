"""The tokens of this rank's lanes, in the order of their lanes, whatever was read when: one policy for what is bad."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from millstream.batches.gather import bytes_for_batches
from millstream.errors import BudgetError, SourceError
from millstream.loaders.lane import EpochEnd, Piece, Place, Tokens, Window
from millstream.loaders.lane_feed import LaneFeed, Reading
from millstream.loaders.lane_log import Entry
from millstream.loaders.settings import LoaderSettings
from millstream.loaders.stream_lanes import StreamLanes
from millstream.parts.policy import BadRecords, KeptAside
from millstream.parts.process import MEMORY_PER_CHUNK, Job
from millstream.sources.record import NO_BYTES
from millstream.stages.ordered import cpus
from millstream.store.format import token_dtype

_log = logging.getLogger("millstream.loaders")


class LaneSource:
    """Reads the lanes of a rank from where its run stands. Pieces are judged and counted when a row needs them.

    `ahead` says how many rows of each lane of a stream are kept ready.
    """

    def __init__(
        self,
        streams: Mapping[str, StreamLanes],
        settings: LoaderSettings,
        *,
        sample: int,
        threads: int | None,
        ahead: Mapping[str, int],
    ) -> None:
        self._streams = streams
        cursors = {(name, lane): streams[name].cursor(lane) for name, lane in _by_need(streams, sample)}
        self._windows = {lane: Window(cursor.start) for lane, cursor in cursors.items()}
        policies = {name: lanes.stream.on_bad for name, lanes in streams.items()}
        self._kept = _kept_aside(settings, sample) if "quarantine" in policies.values() else None
        self._bad = {name: BadRecords(on_bad, self._kept) for name, on_bad in policies.items()}
        threads = threads or cpus()
        self.feed = LaneFeed(
            {
                (name, lane): Reading(
                    streams[name].stream.reader(lane, cursor.place), ahead[name] * streams[name].length
                )
                for (name, lane), cursor in cursors.items()
            },
            threads=threads,
            budget_bytes=_share(settings.memory_budget, threads, streams.values()),
        )

    def tokens(self, name: str, sample: int) -> Tokens:
        """The tokens of a stream's sample: its inputs, and one more as the last target."""
        lanes, lane, start = self._place(name, sample)
        window, stop = self._windows[name, lane], start + lanes.length + 1
        while window.stop < stop:
            self._admit(name, lane, window, self.feed.take((name, lane)))
        held = window.bytes
        tokens = window.tokens(start, stop)
        if window.bytes < held:
            self.feed.let_go(held - window.bytes)
        return tokens

    def ends(self, name: str, sample: int) -> npt.NDArray[np.int64]:
        """Where documents end among the inputs of a sample whose tokens were just taken."""
        lanes, lane, start = self._place(name, sample)
        return self._windows[name, lane].ends(start, start + lanes.length)

    def _place(self, name: str, sample: int) -> tuple[StreamLanes, int, int]:
        lanes = self._streams[name]
        number, lane = divmod(sample, lanes.stream.lanes)
        return lanes, lane, number * lanes.length

    @property
    def held_bytes(self) -> int:
        """What is held of all lanes."""
        return self.feed.held_bytes

    def close(self) -> None:
        """Stop reading."""
        self.feed.stop()
        if self._kept is not None:
            self._kept.close()

    def _admit(self, name: str, lane: int, window: Window, piece: Piece | EpochEnd) -> None:
        """Judge and count a piece, and put it behind the others."""
        lanes, bad = self._streams[name], self._bad[name]
        if isinstance(piece, EpochEnd):
            if piece.epoch == 0:
                lanes.lane_tokens[lane] = window.stop
            return
        part, file = piece.part, piece.file
        if piece.place == Place(0, lanes.stream.ranges.in_lane(lane)):
            _log.warning("lane %d has no tokens of its own, and repeats those of the following one", lane)
        in_rows = bool(part.bad) and part.bad[0].start == NO_BYTES
        from_byte = f" from byte {piece.chunk_start}" if piece.chunk_start and not in_rows else ""
        is_new = lanes.is_new(lane, piece.place)
        if is_new or bad.on_bad == "error":
            bad.take(file.name + from_byte, part.bad, rows_before=piece.chunk_start if in_rows else 0)
        if is_new:
            lanes.left_out += Counter(each.reason for each in part.bad) + Counter(part.skipped) + Counter(part.reasons)
            lanes.changed += Counter(part.changed)
        _check_ids(piece, lanes)
        if len(part.tokens):
            lanes.log.add(lane, Entry(window.stop, window.stop + len(part.tokens), piece.place))
        window.add(part)


def _check_ids(piece: Piece, lanes: StreamLanes) -> None:
    """Insist on ids that the model has an embedding for."""
    limit = lanes.id_limit
    if limit is None or limit >= lanes.stream.job.tokenizer.vocab_size or not len(piece.part.tokens):
        return
    largest = int(piece.part.tokens.max())
    if largest >= limit:
        raise SourceError(
            f"{piece.file.name}: its tokens hold the id {largest}, but the model's vocabulary has {limit} ids",
            hint="use the model's tokenizer, or enlarge the model's embedding",
        )


def _by_need(streams: Mapping[str, StreamLanes], sample: int) -> list[tuple[str, int]]:
    """This rank's lanes, beginning with those that the next row may come from."""
    lanes = [(name, lane) for name, each in streams.items() for lane in each.own]
    return sorted(lanes, key=lambda lane: (lane[1] - sample) % streams[lane[0]].stream.lanes)


def _share(budget: int | None, threads: int, streams: Collection[StreamLanes]) -> int | None:
    """Up to where a budget is for reading ahead.

    The rest is for batches, for the chunks that threads are at, and for one chunk of each lane, which is read when a
    row needs it however full the lanes are.
    """
    if budget is None:
        return None
    chunk_bytes = max(each.stream.job.reading.chunk_bytes for each in streams)
    working, lanes = threads * MEMORY_PER_CHUNK * chunk_bytes, sum(len(each.own) for each in streams)
    least = sum(len(each.own) * _piece_bytes(each.stream.job) for each in streams)
    needed, room = working + least, budget - bytes_for_batches(budget)
    if room < needed:
        raise BudgetError(
            f"memory_budget is {budget:,} bytes, half of it for batches; {threads} threads at chunks of "
            f"{chunk_bytes:,} bytes take {working:,} and {lanes} lanes {least:,}",
            hint=f"pass memory_budget={2 * needed} or more, fewer threads, or reading={{'chunk_bytes': …}}",
        )
    return room - needed


def _piece_bytes(job: Job) -> int:
    return job.reading.chunk_bytes * token_dtype(job.dtype).itemsize


def _kept_aside(settings: LoaderSettings, sample: int) -> KeptAside:
    """Where bad records are kept."""
    if settings.cache_dir is None:
        raise SourceError(
            'on_bad="quarantine" needs a folder', hint='pass cache_dir= for the file, or on_bad="skip" to count only'
        )
    settings.cache_dir.mkdir(parents=True, exist_ok=True)
    name = f"quarantine-rank{settings.rank}-sample{sample}"
    again = len(list(settings.cache_dir.glob(f"{name}-*")))
    return KeptAside(Path(settings.cache_dir, f"{name}-{again}.jsonl"))
