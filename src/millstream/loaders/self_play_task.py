"""What a self-play loader makes of a folder, and the stages that do it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from millstream.games import FrameBlock, Game
from millstream.games.chunk_source import ChunkSource
from millstream.live.chunk_filter import ChunkFilter
from millstream.live.chunk_reader import ChunkReader
from millstream.live.chunk_rescorer import ChunkRescorer
from millstream.live.chunk_set import ChunkSet, Draw
from millstream.live.chunk_source_feed import ChunkSourceFeed
from millstream.live.chunk_unpacker import ChunkUnpacker
from millstream.live.discovery import Discovery
from millstream.live.entrance import Entrance
from millstream.live.events import Event
from millstream.live.frame_shuffler import FrameShuffler
from millstream.live.hanse import HanseSampling
from millstream.live.losses import Losses, LostUse
from millstream.live.place import Place
from millstream.live.position_cache import PositionCache
from millstream.live.positions import ALL_POSITIONS, PositionSampling
from millstream.live.tensor_maker import Output
from millstream.live.window import Entry, Window
from millstream.stages import Pipeline, Stage

PREFETCHED_USES = 8
"""Uses of a game whose positions are kept when it is read, where positions are kept."""


@dataclass(frozen=True)
class SelfPlayTask:
    """Which games are used, which of their positions, and what is done to them."""

    path: str
    num_chunks: int | None = None
    watch: bool = True
    poll_s: float | None = None
    shuffle_frames: int = 1 << 17
    positions: PositionSampling = ALL_POSITIONS
    hanse: HanseSampling | None = None
    position_cache: int = 0
    """Bytes for positions of games that were read anyway."""
    filters: dict[str, Any] | None = None
    rescore: Any = None
    output: Output = "float32"
    seed: int = 0
    threads: int = 1
    index_cache: str | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """What must stay the same for a run to go on."""
        return {
            "num_chunks": self.num_chunks,
            "watch": self.watch,
            "shuffle_frames": self.shuffle_frames,
            "positions": repr(self.positions),
            "hanse": repr(self.hanse),
            "filters": repr(self.filters),
            "rescore": repr(self.rescore),
        }

    @property
    def knows_length(self) -> bool:
        """Whether every frame is used, so that the headers of files say how many there are."""
        return not self.watch and self.positions == ALL_POSITIONS and self.hanse is None and self.filters is None


@dataclass(frozen=True)
class Begin:
    """Where the stages begin: at the very beginning, or where a run stood."""

    window: Window
    entrance: Entrance
    last: tuple[Place, Entry] | None = None
    restore: tuple[FrameBlock, int] | None = None
    losses: Losses = field(default_factory=Losses)
    lost: Callable[[LostUse], None] = lambda _: None
    shared: bool = False
    listeners: Sequence[Callable[[Sequence[Event]], None]] = ()

    def tell(self, events: Sequence[Event]) -> None:
        """Say what happens to the window."""
        for listener in self.listeners:
            listener(events)


class SelfPlayGraph:
    """The stages from a folder to shuffled positions."""

    def __init__(self, task: SelfPlayTask, begin: Begin, *, positions_seed: int) -> None:
        watch = task.watch and not begin.entrance.outlives_input  # else somebody else says what comes
        self.discovery = Discovery(task.path, watch=watch, poll_s=task.poll_s)
        self.feed = ChunkSourceFeed(self.discovery, cache_dir=task.index_cache)
        self.chunk_set = ChunkSet(
            self.feed,
            hanse=task.hanse,
            root=task.path,
            window=begin.window,
            entrance=begin.entrance,
            last=begin.last,
            journal=begin.tell,
            losses=begin.losses,
        )
        changes = task.filters is not None or task.rescore is not None
        cache = PositionCache(task.position_cache) if task.position_cache else None
        at_once = not changes and cache is None and not task.positions.needs_frames
        self.reader = ChunkReader(
            self.chunk_set,
            sampling=task.positions if at_once else None,
            seed=positions_seed,
            cache=cache,
            losses=begin.losses,
            lost=begin.lost,
            shared=begin.shared,
            threads=task.threads,
        )
        stages: dict[str, Stage[Any]] = {
            "discovery": self.discovery,
            "chunk_source_feed": self.feed,
            "chunk_set": self.chunk_set,
            "chunk_reader": self.reader,
        }
        last: Stage[Game] = self.reader
        self.changes: list[Any] = []
        if task.filters is not None:
            last = stages["chunk_filter"] = ChunkFilter(last, threads=task.threads, **task.filters)
            self.changes.append(last)
        if task.rescore is not None:
            last = stages["chunk_rescorer"] = ChunkRescorer(last, rescore=task.rescore, threads=task.threads)
            self.changes.append(last)
        prefetch = PREFETCHED_USES if cache is not None else 0
        unpacker = ChunkUnpacker(last, sampling=task.positions, seed=positions_seed, cache=cache, prefetch=prefetch)
        self.shuffler = FrameShuffler(
            unpacker, frames=task.shuffle_frames, seed=task.seed, restore=begin.restore, losses=begin.losses
        )
        self.pipeline = Pipeline({**stages, "chunk_unpacker": unpacker, "frame_shuffler": self.shuffler})

    def reread(self, draw: Draw) -> list[Game]:
        """What the stages make of a game before its positions are chosen."""
        games = list(self.reader.process(draw))
        for change in self.changes:
            games = [changed for game in games for changed in change.process(game)]
        return games

    def drops(self) -> Counter[str]:
        """What the stages left out, by reason."""
        found: Counter[str] = Counter()
        for stage in self.pipeline.counters()["stages"].values():
            found.update(stage["drops"])
        return found

    def memory(self) -> dict[str, int]:
        """Bytes of the window and of the reservoir."""
        window, reservoir = self.chunk_set.gauges(), self.shuffler.gauges()
        return {"window": int(window["index_bytes"]), "reservoir": int(reservoir["bytes"])}


def count_frames(task: SelfPlayTask) -> int:
    """How many positions the files have, by their headers."""
    found = Discovery(task.path, watch=False)
    sources = ChunkSourceFeed(found, cache_dir=task.index_cache)
    with Pipeline({"discovery": found, "chunk_source_feed": sources}) as pipeline:
        opened = sorted((each for each in pipeline if isinstance(each, ChunkSource)), key=lambda each: each.name)
    counts = [np.zeros(0, np.int64), *(source.frames.astype(np.int64) for source in opened)]
    newest = np.concatenate(counts)
    return int(newest[-task.num_chunks :].sum() if task.num_chunks else newest.sum())
