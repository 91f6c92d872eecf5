"""ChunkSet: sources of games, as they come -> the game to use next, from the shuffled window of the newest ones.

A pass that yields no position is followed by a pause, which doubles until one does (`EmptyPassBackoff`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from pathlib import PurePath
from typing import Any

from millstream.errors import LoaderError, QueueClosed, RecordError, WaitTimeout
from millstream.games import ChunkSource, open_chunk_source
from millstream.selfplay import (
    Acceptance,
    AdmissionPolicy,
    Event,
    EventSource,
    FileRemoved,
    HanseSampling,
    HanseWeights,
    LivePolicy,
    Losses,
    ScanComplete,
    Window,
    WindowEntry,
    apply,
    grouped,
)
from millstream.selfplay.chunk_feed.game_stage import Draw, GamePlace
from millstream.stages import Producer, Queue, SourceStage, Stage

logger = logging.getLogger("millstream.selfplay")
PATIENCE_S = 0.2
"""How long an empty window waits for a source at a time."""
FIRST_S = 0.01
LONGEST_S = 1.0
ON_THEIR_WAY = 1024
"""Games that may be drawn before anything is known of the first of them."""


class ChunkSet(SourceStage[Draw]):
    """The window of the newest games: those that come are taken in, the oldest leave, each is given once in a pass.

    >>> from millstream.games import example_folder
    >>> from millstream.selfplay.chunk_feed.chunk_source_feed import ChunkSourceFeed
    >>> from millstream.selfplay.chunk_feed.discovery import Discovery
    >>> found = Discovery(example_folder(4), watch=False)
    >>> sources = ChunkSourceFeed(found)
    >>> newest = ChunkSet(sources, num_chunks=2, seed=1, endless=False)
    >>> for stage in (found, sources, newest):
    ...     stage.start()
    >>> [draw.source.name for draw in newest.output()]
    ['training.2.gz', 'training.3.gz']

    A stage that takes games reads them, so the stages of the live road join as they stand. With `endless`, passes end
    with the input: what is watched continues, and a folder that is looked at once is gone through once.

    >>> from millstream import ChunkFilter, ChunkRescorer, FrameShuffler
    >>> found = Discovery(example_folder(4), watch=False)
    >>> sources = ChunkSourceFeed(found)
    >>> newest = ChunkSet(sources, seed=1)
    >>> wanted = ChunkFilter(newest, rules="moves", threads=2)
    >>> rescored = ChunkRescorer(wanted, new_input_format=3, threads=2)
    >>> shuffled = FrameShuffler(rescored, frames=16, seed=1)
    >>> for stage in (found, sources, newest, wanted, rescored, shuffled):
    ...     stage.start()
    >>> sum(len(positions) for positions in shuffled.output())
    48

    Args:
        input: Gives chunk sources, the end of the first scan, and files that are gone.
        num_chunks: Games in the window; None: all.
        seed: Of the order.
        endless: Begin a new pass when each game was given, as long as more may come in; else end. The first time a
            warning is logged: from then on games are used again.
        outlives_input: Begin new passes also when the input has ended, until it is stopped, without a warning.
        hanse: Use heavy games more often.
        root: The folder that names are relative to.
        entrance: Which sources enter, and when; by default as they come.
        window: Continue this one.
        last: Begin with this game, of which some positions were given out, and its source.
        journal: Called with what happened, before the next draw is made; at first also if that is nothing.
        losses: What was lost when the same draws were made before.
        opens: Opens a file that another rank has found.
    """

    takes, gives = ChunkSource, Draw

    def __init__(
        self,
        input: Queue[Any] | Stage[Any],
        *,
        num_chunks: int | None = None,
        seed: int = 0,
        endless: bool = True,
        outlives_input: bool = False,
        hanse: HanseSampling | None = None,
        root: str = "",
        entrance: AdmissionPolicy | None = None,
        window: Window | None = None,
        last: tuple[GamePlace, WindowEntry] | None = None,
        journal: Callable[[Sequence[Event]], None] | None = None,
        losses: Losses | None = None,
        opens: Callable[[str], ChunkSource] = open_chunk_source,
        **settings: Any,
    ) -> None:
        super().__init__(input, **settings)
        self._sources: dict[str, ChunkSource] = {}
        self._arrived: dict[str, ChunkSource] = {}
        """Sources that wait for their entrance: one of the same name may still be in the window."""
        self._root, self._last, self._journal, self._opens = PurePath(root), last, journal, opens
        self._entrance, self._outlives_input = entrance or LivePolicy(), outlives_input
        self.weights = None if hanse is None else HanseWeights(hanse, self.source_of, self.count)
        acceptance = None
        if self.weights is not None and hanse is not None:
            unseen = () if losses is None else losses.unseen
            acceptance = Acceptance(self.weights.of, hanse.gamma, self.weights.proved, unseen)
        self.window = Window(num_chunks, seed, endless=endless) if window is None else window
        self.window.acceptance = acceptance
        self._files_gone = self._files_left = 0
        self._gone_meanwhile: dict[str, FileRemoved] = {}
        self._came_meanwhile: dict[str, ChunkSource] = {}
        """What has come and gone while no games were taken, by path."""
        self._input_ended, self._warns = False, not outlives_input
        self.backoff: EmptyPassBackoff | None = None
        """Slows down passes that yield nothing, where their yield is known."""

    def produce(self) -> Iterator[Draw]:
        """Take in what the first scan finds, then give games, until there is no new pass."""
        self._entrance.stop_with(self.stopping)
        self._begin()
        if self._last is not None:
            last, entry = self._last
            if last.used < last.of:
                source = self.source_of(entry)
                yield Draw(last.draw, last.chunk, last.use, last.source, last.index, source, last.used, weighed=True)
            self._last = None
            self._let_go({last.source} - {entry.name for entry in self.window.entries})
        pause_s = 0.0
        while not self.stopping.is_set():
            self._take(self._news(pause_s))
            if self._entrance.is_over(self.window):
                return
            if self._input_ended and not self._outlives_input:
                self.window.endless = False  # the present pass is the last one
            passes, drawn, pause_s = self.window.passes, self.window.draw(), 0.0
            if self.window.passes != passes:
                self._say_that_a_pass_begins()
                pause_s = 0.0 if self.backoff is None else self.backoff.pause_s(self.window.draws)
            if drawn is not None:
                weighed = self.weights is not None and self.weights.of(drawn.entry, drawn.index) < inf
                source = self.source_of(drawn.entry) if weighed or self.weights is None else None  # lost, though back
                name = drawn.entry.name
                yield Draw(drawn.number, drawn.chunk, drawn.use, name, drawn.index, source, weighed=weighed)
            elif self._input_ended and not (self._entrance.outlives_input and self.window.endless):
                return
            else:
                self._take(self._waited_for(), starved=self.window.endless)

    def _say_that_a_pass_begins(self) -> None:
        window = self.window
        level = logging.WARNING if self._warns else logging.INFO
        logger.log(level, "%s: each of its %d games was given; pass %d begins", self.name, len(window), window.passes)
        self._warns = False

    def gauges(self) -> dict[str, float]:
        """Sources and games in the window, files that are gone and that were let go of, passes, games that were not
        accepted, bytes of the index, and how old the oldest and the newest file are."""
        window, entries = self.window, self.window.entries
        held = [*self._sources.values(), *self._came_meanwhile.values()]
        return {
            **self._ages(entries),
            "sources": len(entries),
            "files_gone": self._files_gone,
            "files_left": self._files_left,
            "chunks": len(window),
            "chunks_total": window.total,
            "passes": window.passes,
            "rejected": window.rejected,
            "index_bytes": window.nbytes + sum(source.nbytes for source in held),
        }

    def _ages(self, entries: Sequence[WindowEntry]) -> dict[str, float]:
        found = [self._sources.get(entry.name) for entry in (*entries[:1], *entries[-1:])]
        changed = [source.changed_ns for source in found if source is not None]
        if not changed:
            return {}
        now = time.time_ns()
        oldest_s, newest_s = (now - min(changed)) / 1e9, (now - max(changed)) / 1e9
        return {"oldest_s": oldest_s, "newest_s": newest_s, "span_s": oldest_s - newest_s}

    def source_of(self, entry: WindowEntry) -> ChunkSource | None:
        """The source of an entry, if its file is there: another one may have taken its name."""
        source = self._sources.get(entry.name)
        return source if source is not None and _is(source, entry.count, entry.stamp) else None

    def put_slowly(self, producer: Producer[Draw], items: Sequence[Draw]) -> None:
        """While no games are taken, take in what comes: the input may have other consumers."""
        while not self._input_ended and not self.output().has_room(PATIENCE_S):
            self._keep_for_later(self._news())
        super().put_slowly(producer, items)

    def _keep_for_later(self, news: Sequence[Any]) -> None:
        """What came and is gone by then never was: else an unused window would grow without limit."""
        for item in news:
            if isinstance(item, ChunkSource):
                self._came_meanwhile[item.path] = item
            elif isinstance(item, FileRemoved):
                self._came_meanwhile.pop(item.path, None)
                if (name := self._name(item.path)) in self._sources or name in self._arrived:
                    self._gone_meanwhile[item.path] = item
            else:
                self._refuse_others(item)

    def _refuse_others(self, item: Any) -> None:
        """Of a queue it is not known before what comes; to wait for sources among other things would have no end."""
        if not isinstance(item, FileRemoved | ScanComplete):
            raise LoaderError(
                f"{self.name} takes chunk sources, not a {type(item).__name__}",
                hint="let a ChunkSourceFeed stand before it, which opens files",
            )

    # What comes in

    def _begin(self) -> None:
        """Take in what the first scan finds."""
        while True:
            try:
                item = self.inputs[0].get()
            except QueueClosed:
                self._input_ended = True
                break
            if isinstance(item, ScanComplete):
                break
            if isinstance(item, ChunkSource):
                self._sources[self._name(item.path)] = item
            else:
                self._refuse_others(item)
        events = self._entrance.first(self.window, [_found(*each) for each in self._sources.items()])
        self._do(events)
        if not events and self._journal is not None:
            self._journal(events)
        self._let_go(set(self._sources) - {entry.name for entry in self.window.entries if self.source_of(entry)})
        missing = (self.window.num_chunks or 0) - len(self.window)
        if missing > 0:
            logger.info("the window lacks %d of %d games", missing, self.window.num_chunks)

    def _news(self, pause_s: float = 0.0) -> list[Any]:
        news: list[Any] = [*self._gone_meanwhile.values(), *self._came_meanwhile.values()]
        self._gone_meanwhile, self._came_meanwhile = {}, {}
        news += self._waited_for(pause_s) if pause_s else []
        if pause_s and self._input_ended:
            self.stopping.wait(pause_s)
        while not self._input_ended:
            try:
                item = self.inputs[0].try_get()
            except QueueClosed:
                self._input_ended = True
                break
            if item is None:
                break
            news.append(item)
        return news

    def _waited_for(self, seconds: float = PATIENCE_S) -> list[Any]:
        if self._input_ended:
            return []
        try:
            return self.inputs[0].get_many(1 << 10, seconds)
        except QueueClosed:
            self._input_ended = True
        except WaitTimeout:
            pass
        return []

    def _take(self, items: Sequence[Any], *, starved: bool = False) -> None:
        gone: set[str] = set()
        came: dict[str, EventSource] = {}
        for item in items:
            if isinstance(item, ChunkSource):
                name = self._name(item.path)
                self._arrived[name], came[name] = item, _found(name, item)
            elif isinstance(item, FileRemoved):
                name = self._name(item.path)
                if name in self._sources or name in self._arrived:
                    gone.add(name)
                    self._arrived.pop(name, None)
                    came.pop(name, None)
            else:
                self._refuse_others(item)
        left = self._do(self._entrance.later(self.window, list(came.values()), sorted(gone), starved=starved))
        if gone:
            left |= gone - {entry.name for entry in self.window.entries}
        self._let_go(left)
        for name in came:
            if name in self._arrived and not self._entrance.may_need(name):
                self._arrived.pop(name).close()

    def _do(self, events: Sequence[Event]) -> set[str]:
        """Let sources in and out; gives the names of those that have left."""
        left: set[str] = set()
        for some in grouped(events):
            if (event := some[0]).kind == "enter":
                left.discard(event.name)
                self._ensure(event)
            elif event.kind == "gone":
                self._files_gone += len(some)
            out = apply(self.window, some)
            left |= {entry.name for entry in out}
            if self._journal is None and self.weights is not None:  # else who follows asks for them, and forgets them
                for entry in out:
                    self.weights.forget(entry)
        if events and self._journal is not None:
            self._journal(events)
        return left

    def _ensure(self, event: Event) -> None:
        """Have a source at hand that enters. It may not be found yet here, if another rank says when it enters; and it
        may be gone, if it entered before a run resumed."""
        if event.name in self._arrived:
            self._sources[event.name] = self._arrived.pop(event.name)
        source, problem = self._sources.pop(event.name, None), "it is another file here"
        if source is None:
            try:
                source = self._opens(str(self._root / event.name))
            except RecordError as error:
                problem = str(error)
        if source is not None and _is(source, event.chunks, event.stamp):
            self._sources[event.name] = source
        elif self._entrance.needs(event):
            raise LoaderError(
                f"{event.name}: rank 0 lets it in, and here it cannot be read: {problem}",
                hint="ranks read the same folder; keep files as long as they are in the window",
            )

    def _let_go(self, names: Iterable[str]) -> None:
        """Close sources that are not in the window; who replays may need them later."""
        last = None if self._last is None else self._last[0].source
        for name in names:
            if name != last and name in self._sources and not self._entrance.may_need(name):
                self._sources.pop(name).close()
                self._files_left += 1

    def _name(self, path: str) -> str:
        parts = PurePath(path)
        return parts.relative_to(self._root).as_posix() if parts.is_relative_to(self._root) else parts.as_posix()


def _found(name: str, source: ChunkSource) -> EventSource:
    return EventSource(name, len(source), source.stamp)


def _is(source: ChunkSource, chunks: int, stamp: str) -> bool:
    return len(source) == chunks and source.stamp == stamp


class EmptyPassBackoff:
    """Says how long to wait before a pass, so that games without a wanted position are not read over and over.

    >>> came = [0]
    >>> backoff = EmptyPassBackoff(lambda: came[0])
    >>> [backoff.pause_s(draws) for draws in (7040, 9000, 9040, 9080)]
    [0.0, 0.01, 0.02, 0.04]
    >>> came[0] += 1
    >>> backoff.pause_s(9120)
    0.0

    Args:
        came: Gives how many games have come through to where they are needed.
    """

    def __init__(self, came: Callable[[], int]) -> None:
        self._came, self._before, self._next_s = came, 0, FIRST_S
        self._since: int | None = None  # a resumed run has made draws before

    def pause_s(self, draws: int) -> float:
        """A pass is over, at this draw: no time where some games came through, or may still do so."""
        if (came := self._came()) > self._before or self._since is None:
            self._before, self._since, self._next_s = came, draws, FIRST_S
        if draws - self._since < ON_THEIR_WAY:
            return 0.0
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, LONGEST_S)
        return pause_s
