"""ChunkSet: sources of games, as they come -> which game is used next. The window of the newest, shuffled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from millstream.errors import QueueClosed, WaitTimeout
from millstream.games.chunk_source import ChunkSource
from millstream.live.arrivals import Gone, ScanComplete
from millstream.live.entrance import AsTheyCome, Entrance
from millstream.live.events import Event, apply
from millstream.live.hanse import HanseSampling, HanseWeights
from millstream.live.place import Place
from millstream.live.window import Acceptance, Window
from millstream.stages import Queue, SourceStage, Stage

logger = logging.getLogger("millstream.live")
PATIENCE_S = 0.2
"""How long an empty window waits for a source at a time."""


@dataclass(frozen=True, slots=True)
class Draw:
    """A game that is to be read: which draw it is, which game, how often it was used before, and where it lies."""

    number: int
    chunk: int
    use: int
    name: str
    index: int
    source: ChunkSource
    skip: int = 0
    """Positions at its front that were given out before a run was gone on with."""


class ChunkSet(SourceStage[Draw]):
    """The window of the newest games: those that come are taken in, the oldest leave, each is given once in a pass.

    >>> from millstream.games.example import example_folder
    >>> from millstream.live import ChunkSourceFeed, Discovery
    >>> found = Discovery(example_folder(4), watch=False)
    >>> sources = ChunkSourceFeed(found)
    >>> newest = ChunkSet(sources, num_chunks=2, seed=1, endless=False)
    >>> for stage in (found, sources, newest):
    ...     stage.start()
    >>> [draw.source.name for draw in newest.output()]
    ['training.2.gz', 'training.3.gz']

    Args:
        input: Gives chunk sources, the end of the first scan, and files that are gone.
        num_chunks: Games in the window; None: all.
        seed: Of the order.
        endless: Begin a new pass when each game was given; else end.
        hanse: Use heavy games more often.
        root: The folder that names are relative to.
        entrance: Which sources enter, and when; by default as they come.
        window: Go on with this one.
        last: Begin with this game, of which some positions were given out.
        journal: Called with what happened, before the next draw is made.
    """

    gives = Draw

    def __init__(
        self,
        input: Queue[Any] | Stage[Any],
        *,
        num_chunks: int | None = None,
        seed: int = 0,
        endless: bool = True,
        hanse: HanseSampling | None = None,
        root: str = "",
        entrance: Entrance | None = None,
        window: Window | None = None,
        last: Place | None = None,
        journal: Callable[[Sequence[Event]], None] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(input, **settings)
        self._sources: dict[str, ChunkSource] = {}
        self._root, self._last, self._journal = PurePath(root), last, journal
        self._entrance = entrance or AsTheyCome()
        self.weights = None if hanse is None else HanseWeights(hanse, self._sources)
        acceptance = None if self.weights is None or hanse is None else Acceptance(self.weights.of, hanse.gamma)
        self.window = Window(num_chunks, seed, endless=endless) if window is None else window
        self.window.acceptance = acceptance
        self._input_ended = False

    def produce(self) -> Iterator[Draw]:
        """Take in what the first scan finds, then give games, for ever or until the pass is over."""
        self._begin()
        if (last := self._last) is not None:
            if (source := self._sources.get(last.source)) is not None:
                yield Draw(last.draw, last.chunk, last.use, last.source, last.index, source, last.used)
            else:
                self.count("gone")
        while not self.stopping.is_set():
            self._take(self._news())
            passes, drawn = self.window.passes, self.window.draw()
            if self.window.passes != passes:
                logger.info("pass %d over %d games begins", self.window.passes, len(self.window))
            if drawn is not None:
                name = drawn.entry.name
                yield Draw(drawn.number, drawn.chunk, drawn.use, name, drawn.index, self._sources[name])
            elif self._input_ended:
                return
            else:
                self._take(self._waited_for())

    def gauges(self) -> dict[str, float]:
        """Sources and games in the window, passes, how many games were not accepted, and bytes of the index."""
        window = self.window
        return {
            "sources": len(window.entries),
            "chunks": len(window),
            "chunks_total": window.total,
            "passes": window.passes,
            "rejected": window.rejected,
            "index_bytes": window.nbytes + sum(source.nbytes for source in list(self._sources.values())),
        }

    def source_of(self, name: str) -> ChunkSource | None:
        """A source in the window."""
        return self._sources.get(name)

    # What comes in

    def _begin(self) -> None:
        while True:
            try:
                item = self.inputs[0].get()
            except QueueClosed:
                self._input_ended = True
                break
            if isinstance(item, ScanComplete):
                break
            self._hold(item)
        sizes = {name: len(source) for name, source in self._sources.items()}
        self._do(self._entrance.first(self.window, sizes))
        self._let_go(set(sizes) - {entry.name for entry in self.window.entries})
        missing = (self.window.num_chunks or 0) - len(self.window)
        if missing > 0:
            logger.info("the window lacks %d of %d games", missing, self.window.num_chunks)

    def _news(self) -> list[Any]:
        news: list[Any] = []
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

    def _waited_for(self) -> list[Any]:
        try:
            return self.inputs[0].get_many(1 << 10, PATIENCE_S)
        except QueueClosed:
            self._input_ended = True
        except WaitTimeout:
            pass
        return []

    def _take(self, items: Sequence[Any]) -> None:
        came = [name for name in map(self._hold, items) if name is not None]
        gone = [self._name(item.path) for item in items if isinstance(item, Gone)]
        in_window = {name for name in gone if name in self._sources and name not in came}
        fresh = [(name, len(self._sources[name])) for name in came]
        if events := self._entrance.later(self.window, fresh, in_window):
            self._let_go(self._do(events))

    def _hold(self, item: Any) -> str | None:
        """Keep a source at hand; gives its name."""
        if not isinstance(item, ChunkSource):
            return None
        name = self._name(item.path)
        self._sources[name] = item
        return name

    def _do(self, events: Sequence[Event]) -> set[str]:
        """Let sources in and out; gives the names of those that have left."""
        left: set[str] = set()
        for event in events:
            left |= {entry.name for entry in apply(self.window, event)}
            if event.kind == "gone":
                self.count("gone")
        if events and self._journal is not None:
            self._journal(events)
        return left

    def _let_go(self, names: Iterable[str]) -> None:
        """Close sources that are not in the window; who replays may need them later."""
        last = None if self._last is None else self._last.source
        for name in names:
            if name != last and name in self._sources and not self._entrance.may_need(name):
                self._sources.pop(name).close()
                self.count("left the window")

    def _name(self, path: str) -> str:
        parts = PurePath(path)
        return parts.relative_to(self._root).as_posix() if parts.is_relative_to(self._root) else parts.as_posix()
