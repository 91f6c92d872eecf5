"""What a self-play loader makes of a folder, and the stages that do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.games import Game
from millstream.live import (
    PREFETCHED_USES,
    Barren,
    ChunkFilter,
    ChunkReader,
    ChunkRescorer,
    ChunkSet,
    ChunkSourceFeed,
    ChunkUnpacker,
    Discovery,
    Entrance,
    Entry,
    Event,
    FrameShuffler,
    GameStage,
    Losses,
    LostUse,
    Output,
    Place,
    PositionCache,
    Window,
)
from millstream.loaders.self_play.memory import SelfPlayTask
from millstream.stages import Pipeline, Stage


@dataclass(frozen=True)
class Begin:
    """Where the stages begin: at the very beginning, or where a run stood."""

    window: Window
    entrance: Entrance
    last: tuple[Place, Entry] | None = None
    losses: Losses = field(default_factory=Losses)
    lost: Callable[[LostUse], None] = lambda _: None
    counted: Callable[[str, int, int | None], None] | None = None
    """Hears of everything that is left out: why, how much, and at which draw, if it was drawn."""
    shared: bool = False
    listeners: Sequence[Callable[[Sequence[Event]], None]] = ()

    def tell(self, events: Sequence[Event]) -> None:
        """Say what happens to the window."""
        for listener in self.listeners:
            listener(events)


class SelfPlayGraph:
    """The stages from a folder to shuffled positions."""

    def __init__(self, task: SelfPlayTask, begin: Begin, *, positions_seed: int) -> None:
        self.output: Output = task.output
        watch = task.watch and not begin.entrance.outlives_input  # else somebody else says what comes
        self.discovery = Discovery(task.path, watch=watch, poll_s=task.poll_s)
        self.feed = ChunkSourceFeed(self.discovery, cache_dir=task.index_cache, partial=task.partial)
        self.chunk_set = ChunkSet(
            self.feed,
            hanse=task.hanse,
            root=task.path,
            window=begin.window,
            entrance=begin.entrance,
            last=begin.last,
            journal=begin.tell,
            losses=begin.losses,
            opens=self.feed.open,
            outlives_input=True,  # the window says how many passes there are
            capacity=task.queue_games,
        )
        changes = task.filters is not None or task.rescore is not None
        self._cache = cache = PositionCache(task.position_cache) if task.position_cache else None
        at_once = not changes and cache is None and not task.positions.needs_frames
        workers: dict[str, Any] = {"threads": task.threads, "capacity": task.queue_games}
        self.reader = ChunkReader(
            self.chunk_set,
            sampling=task.positions if at_once else None,
            seed=positions_seed,
            cache=cache,
            losses=begin.losses,
            lost=begin.lost,
            shared=begin.shared,
            most_bytes=task.game_bytes,
            **workers,
        )
        changing = _changing(task, self.reader, workers)
        self.changes: list[GameStage] = list(changing.values())
        self.unpacker = unpacker = ChunkUnpacker(
            self.changes[-1] if self.changes else self.reader,
            sampling=task.positions,
            seed=positions_seed,
            cache=cache,
            prefetch=0 if cache is None else PREFETCHED_USES,
            capacity=task.queue_games,
        )
        self.shuffler = FrameShuffler(
            unpacker,
            frames=task.shuffle_frames,
            seed=task.seed,
            losses=begin.losses,
            drain=not task.watch,  # what is watched has no end
            most_bytes=task.reservoir_bytes,
            capacity=task.queue_games,
        )
        self.chunk_set.barren = Barren(lambda: unpacker.counters()["out"])
        stages: dict[str, Stage[Any]] = {
            "discovery": self.discovery,
            "chunk_source_feed": self.feed,
            "chunk_set": self.chunk_set,
            "chunk_reader": self.reader,
            **changing,
            "chunk_unpacker": unpacker,
            "frame_shuffler": self.shuffler,
        }
        self._stages = list(stages.values())
        for stage in self._stages:
            stage.counted = begin.counted
        self.pipeline = Pipeline(stages)
        self.pipeline.on_close(self.feed.descriptors.close)

    def count_no_more(self) -> None:
        """Threads that end late count nothing: others have begun."""
        for stage in self._stages:
            stage.counted = None

    def memory(self) -> dict[str, int]:
        """Bytes of the window, of games between stages, of the reservoir and of kept positions."""
        window, reservoir = self.chunk_set.gauges(), self.shuffler.gauges()
        carry: list[Stage[Game]] = [self.reader, *self.changes, self.unpacker]
        return {
            "window": int(window["index_bytes"]),
            "games": sum(stage.output().total(lambda game: game.frames.nbytes) for stage in carry),
            "reservoir": int(reservoir["bytes"]),
            "positions": 0 if self._cache is None else self._cache.counters()["bytes"],
        }


def _changing(task: SelfPlayTask, games: Stage[Game], workers: dict[str, Any]) -> dict[str, GameStage]:
    """What stands between the games as they were written and the choice of their positions."""
    stages: dict[str, GameStage] = {}
    if task.filters is not None:
        games = stages["chunk_filter"] = ChunkFilter(games, **workers, **task.filters)
    if task.rescore is not None:
        stages["chunk_rescorer"] = ChunkRescorer(games, rescore=task.rescore, **workers)
    return stages
