"""The stages of a self-play run, connected: from a folder to shuffled positions.

`SelfPlayGraph` builds them at a `StartPoint`. `GraphMaker` makes one where the trainer stands, each time that the run
goes elsewhere, and connects what the stages do to the journal.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from millstream.games import Game
from millstream.selfplay.admission import AdmissionPolicy, FollowerPolicy
from millstream.selfplay.chunk_feed import (
    PREFETCHED_USES,
    ChunkFilter,
    ChunkReader,
    ChunkRescorer,
    ChunkSet,
    ChunkSourceFeed,
    ChunkUnpacker,
    Discovery,
    EmptyPassBackoff,
    FrameShuffler,
    GamePlace,
    GameStage,
    Output,
    PositionCache,
)
from millstream.selfplay.delivered_state import DeliveredState, RecentSteps
from millstream.selfplay.events import Event, Loss, Losses, LostUse
from millstream.selfplay.refill import ReservoirRefill
from millstream.selfplay.resume import Replay
from millstream.selfplay.run_files import RunFiles, SourceHistory
from millstream.selfplay.settings import SelfPlayTask
from millstream.selfplay.status import describe_progress
from millstream.selfplay.window import Window, WindowEntry
from millstream.stages import Pipeline, Stage

logger = logging.getLogger("millstream.loaders")
Listener = Callable[[Sequence[Event]], None]
"""Hears what happens to the window of the stages."""


@dataclass(frozen=True)
class StartPoint:
    """Where the stages begin: at the very beginning, or where a run stood."""

    window: Window
    entrance: AdmissionPolicy
    last: tuple[GamePlace, WindowEntry] | None = None
    losses: Losses = field(default_factory=Losses)
    lost: Callable[[LostUse], None] = lambda _: None
    counted: Callable[[str, int, int | None], None] | None = None
    """Hears of everything that is left out: why, how much, and at which draw, if it was drawn."""
    shared: bool = False
    listeners: Sequence[Callable[[Sequence[Event]], None]] = ()

    def notify(self, events: Sequence[Event]) -> None:
        """Say what happens to the window."""
        for listener in self.listeners:
            listener(events)


class SelfPlayGraph:
    """The stages from a folder to shuffled positions."""

    def __init__(self, task: SelfPlayTask, begin: StartPoint, *, positions_seed: int) -> None:
        self.output: Output = task.output
        watch = task.watch and not begin.entrance.outlives_input  # else the leader or a journal says what comes
        self.discovery = Discovery(task.path, watch=watch, poll_s=task.poll_s)
        self.feed = ChunkSourceFeed(self.discovery, cache_dir=task.index_cache, partial=task.partial)
        self.chunk_set = ChunkSet(
            self.feed,
            hanse=task.hanse,
            root=task.path,
            window=begin.window,
            entrance=begin.entrance,
            last=begin.last,
            journal=begin.notify,
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
        self.chunk_set.backoff = EmptyPassBackoff(lambda: unpacker.counters()["out"])
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


class GraphMaker:
    """Makes the stages of a run, once more each time that it goes elsewhere.

    Args:
        task: What the stages do.
        seed: Of the run.
        past: Where the trainer stands, and what was left out until there.
        entered: Remembers what enters, where nothing is written down.
        replay: An earlier run that is made again.
        is_closed: Whether the run has ended for good.
        shared: Whether other ranks use the same games.
    """

    def __init__(
        self,
        task: SelfPlayTask,
        seed: int,
        past: RecentSteps,
        entered: SourceHistory,
        replay: Replay | None,
        is_closed: Callable[[], bool],
        *,
        shared: bool,
    ) -> None:
        self._task, self._seed, self._recent, self._history = task, seed, past, entered
        self._replay, self._is_closed, self._shared = replay, is_closed, shared
        self._gone, self._guard = set[str](), threading.Lock()

    def unlock(self) -> None:
        """In a forked child: a thread that is not here may hold the lock."""
        self._guard = threading.Lock()

    def begin(self, files: RunFiles, epoch: int, entrance: AdmissionPolicy, lost: Iterable[Loss]) -> SelfPlayGraph:
        """Stages of an epoch that begin where the trainer stands.

        Args:
            files: Where it is written down what they do.
            epoch: Its number.
            entrance: Lets games in; a replay has one of its own.
            lost: What is known to be lost, beside what the files say.
        """
        seed = self._seed
        losses = Losses([*lost, *(self._replay or files.journal).losses(epoch)])
        mirror, window = self._recent.mirror, self._task.window(seed, epoch)
        window.load(*mirror.window.state())
        if self._replay is not None:
            entrance = self._replay.entrance(epoch, window.draws, watch=self._task.watch)
        place, entry = mirror.place, mirror.entry
        note = partial(self._note, files, epoch)
        listeners: list[Listener] = [mirror.note]  # in this order: a fork may come between
        if files.folder is None:  # else the journal knows
            listeners.append(self._history.note)
        listeners.append(partial(files.journal.write, epoch=epoch))
        begin = StartPoint(
            window,
            entrance,
            last=None if place is None or entry is None else (place, entry),
            losses=losses,
            lost=note,
            counted=self._recent.count,
            shared=self._shared,
            listeners=listeners,
        )
        task = replace(self._task, seed=self._task.epoch_seed(seed, epoch))
        graph = SelfPlayGraph(task, begin, positions_seed=seed)
        graph.pipeline.on_close(listeners.clear)  # a thread that ends late says nothing of the stages that come then
        graph.pipeline.on_close(graph.count_no_more)
        try:
            self._restore(graph, mirror, losses, note)
        except BaseException:
            graph.pipeline.close()
            raise
        mirror.window.acceptance = graph.chunk_set.window.acceptance
        return graph

    def _restore(
        self, graph: SelfPlayGraph, mirror: DeliveredState, losses: Losses, note: Callable[[Loss], None]
    ) -> None:
        """Read the frames of the reservoir again; those that cannot be are lost from now on."""
        if not mirror.counter:
            return
        frames, lost = ReservoirRefill(self._task, graph.changes, mirror.entries, self._is_closed).reservoir(
            mirror, losses
        )
        for loss in lost:
            note(loss)
            losses.add(loss)
        graph.shuffler.restore(frames, mirror.counter)

    def _note(self, files: RunFiles, epoch: int, loss: Loss) -> None:
        """Say that something is lost with its file; of games, on a thread of the reader."""
        if self._replay is not None:
            raise self._replay.missing(loss.name)
        with self._guard:
            told = loss.name in self._gone
            self._gone.add(loss.name)
        if not told:
            logger.warning("%s is gone, and was still needed: what is lost with it is in the journal", loss.name)
        files.journal.note(loss, epoch)

    def what_for(self, files: RunFiles, entrance: AdmissionPolicy, graph: SelfPlayGraph | None) -> str:
        """Say what is waited for."""
        led = ""
        if isinstance(entrance, FollowerPolicy) and entrance.waits:
            where = f"in {files.folder}, the cache_dir that all ranks must share"
            led = f"rank 0 to say which games enter; it does so {where}; "
        return led + describe_progress(self._task, graph, self._recent.losses)
