"""The tokens of this rank's lanes, in the order of their lanes, whatever was read when: one policy for what is bad."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from millstream.errors import BudgetError, SourceError
from millstream.loaders.lane import EpochEnd, Piece, Place, Tokens, Window
from millstream.loaders.lane_feed import LaneFeed
from millstream.loaders.lane_log import Entry
from millstream.loaders.settings import LoaderSettings
from millstream.loaders.stream_run import StreamRun
from millstream.parts.policy import BadRecords, KeptAside, OnBad
from millstream.parts.prepare import MEMORY_PER_CHUNK, cpus
from millstream.parts.process import Job
from millstream.sources.record import NO_BYTES
from millstream.store.format import token_dtype

DEFAULT_PREFETCH = 4
_log = logging.getLogger("millstream.loaders")


class LaneSource:
    """Reads the lanes of a rank from where its run stands. Pieces are judged and counted when a row needs them."""

    def __init__(self, run: StreamRun, on_bad: OnBad, threads: int | None, prefetch: int | None) -> None:
        stream, settings = run.stream, run.settings
        self._run = run
        cursors = {lane: run.cursor(lane) for lane in _by_need(run)}
        self._windows = {lane: Window(cursor.start) for lane, cursor in cursors.items()}
        self._kept = _kept_aside(settings, on_bad, run.sample)
        self._bad = BadRecords(on_bad, self._kept)
        threads = threads or cpus()
        rounds = -(-(prefetch or DEFAULT_PREFETCH) * run.rows // stream.lanes)
        self.feed = LaneFeed(
            {lane: stream.reader(lane, cursor.place) for lane, cursor in cursors.items()},
            threads=threads,
            ahead_tokens=rounds * run.length,
            budget_bytes=_share(settings.memory_budget, threads, len(cursors), stream.job),
        )

    def tokens(self, lane: int, number: int) -> Tokens:
        """The tokens of a lane's sample: its inputs, and one more as the last target."""
        start, stop = number * self._run.length, (number + 1) * self._run.length + 1
        window = self._windows[lane]
        while window.stop < stop:
            self._admit(lane, window, self.feed.take(lane))
        held = window.bytes
        tokens = window.tokens(start, stop)
        if window.bytes < held:
            self.feed.let_go(held - window.bytes)
        return tokens

    def ends(self, lane: int, number: int) -> npt.NDArray[np.int64]:
        """Where documents end among the inputs of a sample whose tokens were just taken."""
        start = number * self._run.length
        return self._windows[lane].ends(start, start + self._run.length)

    @property
    def held_bytes(self) -> int:
        """What is held of all lanes."""
        return self.feed.held_bytes

    def close(self) -> None:
        """Stop reading."""
        self.feed.stop()
        if self._kept is not None:
            self._kept.close()

    def _admit(self, lane: int, window: Window, piece: Piece | EpochEnd) -> None:
        """Judge and count a piece, and put it behind the others."""
        if isinstance(piece, EpochEnd):
            if piece.epoch == 0:
                self._run.lane_tokens[lane] = window.stop
            return
        part, file = piece.part, piece.file
        if piece.place == Place(0, self._run.stream.ranges.in_lane(lane)):
            _log.warning("lane %d has no tokens of its own, and repeats those of the following one", lane)
        in_rows = bool(part.bad) and part.bad[0].start == NO_BYTES
        from_byte = f" from byte {piece.chunk_start}" if piece.chunk_start and not in_rows else ""
        is_new = self._run.is_new(lane, piece.place)
        if is_new or self._bad.on_bad == "error":
            self._bad.take(file.name + from_byte, part.bad, rows_before=piece.chunk_start if in_rows else 0)
        if is_new:
            self._run.losses += Counter(bad.reason for bad in part.bad) + Counter(part.skipped) + Counter(part.reasons)
        self._check_ids(piece)
        if len(part.tokens):
            self._run.log.add(lane, Entry(window.stop, window.stop + len(part.tokens), piece.place))
        window.add(part)

    def _check_ids(self, piece: Piece) -> None:
        limit = self._run.settings.limits.vocab_size
        if limit is None or limit >= self._run.stream.job.tokenizer.vocab_size or not len(piece.part.tokens):
            return
        largest = int(piece.part.tokens.max())
        if largest >= limit:
            raise SourceError(
                f"{piece.file.name}: its tokens hold the id {largest}, but the model's vocabulary has {limit} ids",
                hint="use the model's tokenizer, or enlarge the model's embedding",
            )


def _by_need(run: StreamRun) -> list[int]:
    """This rank's lanes, beginning with the one that the next row comes from."""
    lanes = run.stream.lanes
    return sorted(run.own_lanes, key=lambda lane: (lane - run.sample) % lanes)


def _share(budget: int | None, threads: int, lanes: int, job: Job) -> int | None:
    """Up to where a budget is for reading ahead: the rest is for the chunks that threads are at, and for one chunk of
    each lane, which is read when a row needs it however full the lanes are."""
    if budget is None:
        return None
    chunk_bytes = job.reading.chunk_bytes
    working, least = threads * MEMORY_PER_CHUNK * chunk_bytes, lanes * chunk_bytes * token_dtype(job.dtype).itemsize
    if budget < working + least:
        raise BudgetError(
            f"memory_budget is {budget:,} bytes; {threads} threads at chunks of {chunk_bytes:,} bytes take {working:,}"
            f" and {lanes} lanes {least:,}",
            hint=f"pass memory_budget={working + least} or more, fewer threads, or reading={{'chunk_bytes': …}}",
        )
    return budget - working - least


def _kept_aside(settings: LoaderSettings, on_bad: OnBad, sample: int) -> KeptAside | None:
    """Where bad records are kept, if they are."""
    if on_bad != "quarantine":
        return None
    if settings.cache_dir is None:
        raise SourceError(
            'on_bad="quarantine" needs a folder', hint='pass cache_dir= for the file, or on_bad="skip" to count only'
        )
    settings.cache_dir.mkdir(parents=True, exist_ok=True)
    name = f"quarantine-rank{settings.rank}-sample{sample}"
    again = len(list(settings.cache_dir.glob(f"{name}-*")))
    return KeptAside(Path(settings.cache_dir, f"{name}-{again}.jsonl"))
