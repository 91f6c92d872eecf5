"""How many batches an epoch of a self-play run has, where that can be known before they are made."""

from __future__ import annotations

import numpy as np

from millstream.errors import UnknownLength
from millstream.games import ChunkSource
from millstream.live import ChunkSourceFeed, Discovery, sort_key
from millstream.loaders.self_play.memory import SelfPlayTask
from millstream.loaders.self_play.task import SelfPlayGraph
from millstream.order import steps_in
from millstream.stages import Pipeline


class EpochLength:
    """Counts the positions of an epoch by the headers of its files, and those of the next one anew: files may come."""

    def __init__(self, task: SelfPlayTask, step_rows: int, *, drop_last: bool) -> None:
        self._task, self._step_rows, self._drop_last = task, step_rows, drop_last
        self._loses_games = False
        self._counted: tuple[tuple[int, bool], int] | None = None

    def end_epoch(self, graph: SelfPlayGraph | None) -> None:
        """An epoch is over: what could not be read in it will not be read in the next one, either."""
        self._loses_games = self._loses_games or _loses_games(graph)

    def batches(self, epoch: int, graph: SelfPlayGraph | None) -> int:
        """How many batches an epoch has; `graph` has its files, once it has given a batch."""
        task = self._task
        if task.watch:
            raise UnknownLength("a folder that is watched has no end", hint="count steps yourself")
        if not task.knows_length:
            raise UnknownLength("how many positions are used shows when they are read", hint="iterate once and count")
        if self._loses_games or _loses_games(graph):
            raise UnknownLength(
                "some games cannot be read, and how many others cannot shows when they are read",
                hint="loader.losses has the reasons; iterate once and count",
            )
        place = epoch, graph is not None
        if self._counted is None or self._counted[0] != place:
            self._counted = place, _frames_there(task) if graph is None else _frames_in(graph)
        return steps_in(self._counted[1], self._step_rows, drop_last=self._drop_last)


def _loses_games(graph: SelfPlayGraph | None) -> bool:
    return graph is not None and bool(graph.reader.bad)


def _frames_in(graph: SelfPlayGraph) -> int:
    """The positions of an epoch that has begun: those of the files that it found then."""
    window, frames = graph.chunk_set.window, 0
    for entry in window.entries:
        if (source := graph.chunk_set.source_of(entry)) is not None:
            frames += int(source.frames[max(0, window.lower - entry.first) :].sum())
    return frames


def _frames_there(task: SelfPlayTask) -> int:
    """The positions of an epoch that would begin now."""
    found = Discovery(task.path, watch=False)
    feed = ChunkSourceFeed(found, cache_dir=task.index_cache, partial=task.partial)
    with Pipeline({"discovery": found, "chunk_source_feed": feed}) as pipeline:
        sources = [each for each in pipeline if isinstance(each, ChunkSource)]
    by_game = [source.frames for source in sorted(sources, key=lambda each: sort_key(each.path))]
    games = np.concatenate([np.zeros(0, np.uint32), *by_game])
    return int(games[-(task.num_chunks or 0) :].sum())
