"""Stages that begin where the trainer of a self-play run stands, and what is written down of what they do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from millstream.live import AsLed, Entrance, Event, Loss, Losses, Mirror
from millstream.loaders.self_play.entered import Entered
from millstream.loaders.self_play.files import RunFiles
from millstream.loaders.self_play.memory import SelfPlayTask
from millstream.loaders.self_play.past import Past
from millstream.loaders.self_play.replay import Replay
from millstream.loaders.self_play.reread import Reread
from millstream.loaders.self_play.task import Begin, SelfPlayGraph
from millstream.loaders.self_play.waiting import what_is_there

logger = logging.getLogger("millstream.loaders")
Listener = Callable[[Sequence[Event]], None]
"""Hears what happens to the window of the stages."""


class StageMaker:
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
        past: Past,
        entered: Entered,
        replay: Replay | None,
        is_closed: Callable[[], bool],
        *,
        shared: bool,
    ) -> None:
        self._task, self._seed, self._past, self._entered = task, seed, past, entered
        self._replay, self._is_closed, self._shared = replay, is_closed, shared
        self._gone, self._guard = set[str](), threading.Lock()

    def unlock(self) -> None:
        """In a forked child: a thread that is not here may hold the lock."""
        self._guard = threading.Lock()

    def begin(self, files: RunFiles, epoch: int, entrance: Entrance, lost: Iterable[Loss]) -> SelfPlayGraph:
        """Stages of an epoch that begin where the trainer stands.

        Args:
            files: Where it is written down what they do.
            epoch: Its number.
            entrance: Lets games in; a replay has one of its own.
            lost: What is known to be lost, beside what the files say.
        """
        seed = self._seed
        losses = Losses([*lost, *(self._replay or files.journal).losses(epoch)])
        mirror, window = self._past.mirror, self._task.window(seed, epoch)
        window.load(*mirror.window.state())
        if self._replay is not None:
            entrance = self._replay.entrance(epoch, window.draws, watch=self._task.watch)
        place, entry = mirror.place, mirror.entry
        note = partial(self._note, files, epoch)
        listeners: list[Listener] = [mirror.note]  # in this order: a fork may come between
        if files.folder is None:  # else the journal knows
            listeners.append(self._entered.note)
        listeners.append(partial(files.journal.write, epoch=epoch))
        begin = Begin(
            window,
            entrance,
            last=None if place is None or entry is None else (place, entry),
            losses=losses,
            lost=note,
            counted=self._past.count,
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

    def _restore(self, graph: SelfPlayGraph, mirror: Mirror, losses: Losses, note: Callable[[Loss], None]) -> None:
        """Read the frames of the reservoir again; those that cannot be are lost from now on."""
        if not mirror.counter:
            return
        frames, lost = Reread(self._task, graph.changes, mirror.entries, self._is_closed).reservoir(mirror, losses)
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

    def what_for(self, files: RunFiles, entrance: Entrance, graph: SelfPlayGraph | None) -> str:
        """Say what is waited for."""
        led = ""
        if isinstance(entrance, AsLed) and entrance.waits:
            where = f"in {files.folder}, the cache_dir that all ranks must share"
            led = f"rank 0 to say which games enter; it does so {where}; "
        return led + what_is_there(self._task, graph, self._past.losses)
