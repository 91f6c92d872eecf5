"""The frames of a reservoir, read again from their files when a run resumes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.batches import closed_error
from millstream.errors import RecordError, StateError
from millstream.games import FRAME, ORIGIN, ChunkSource, Descriptors, FrameBlock, Game, IndexCache, open_chunk_source
from millstream.selfplay.chunk_feed import GameStage
from millstream.selfplay.delivered_state import DeliveredState
from millstream.selfplay.events import Losses, LostSlots
from millstream.selfplay.settings import SelfPlayTask
from millstream.selfplay.window import WindowEntry
from millstream.stages import Threads, failure_of, in_order

AT_ONCE = 64
"""Games that are in memory at the same time."""
_BLANK = FrameBlock(
    np.zeros(1, FRAME), np.zeros(1, np.uint32), np.zeros(0, np.uint16), np.zeros(0, np.float32), np.zeros(1, ORIGIN)
)


class FramePlace(NamedTuple):
    """A use of a game, and where it lies."""

    chunk: int
    use: int
    entry: WindowEntry
    source: ChunkSource


class ReservoirRefill:
    """Reads each game once, whole, and keeps the frames that are asked for.

    Args:
        task: Where games lie.
        changes: What is done to them before positions are chosen.
        entries: The sources, by the numbers of their games.
        stopping: Says whether the run was closed.
    """

    def __init__(
        self,
        task: SelfPlayTask,
        changes: Sequence[GameStage],
        entries: Sequence[WindowEntry],
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._task, self._changes, self._stopping = task, changes, stopping
        self._entries, self._firsts = list(entries), [entry.first for entry in entries]
        self._descriptors = Descriptors()
        self._cache = None if task.index_cache is None else IndexCache(task.index_cache)
        self._opened: tuple[WindowEntry | None, ChunkSource | None] = (None, None)

    def reservoir(self, mirror: DeliveredState, losses: Losses) -> tuple[FrameBlock, list[LostSlots]]:
        """The frames of a reservoir, slot by slot, and what of them is lost from now on."""
        frames, kept = self.frames(mirror.origins)
        missing = mirror.origins["chunk"][~kept]
        missing = missing[~losses.in_slots(missing, mirror.counter)]
        lost = [entry for entry in self._entries if ((entry.first <= missing) & (missing < entry.stop)).any()]
        self._refuse_unknown(missing)
        return frames, [LostSlots(mirror.counter, entry.name, entry.first, entry.stop) for entry in lost]

    def _refuse_unknown(self, chunks: npt.NDArray[np.uint64]) -> None:
        """A file may be gone; a game that is in none of them never entered."""
        unknown = [int(chunk) for chunk in np.unique(chunks) if self._entry(int(chunk)) is None]
        if unknown:
            named = ", ".join(map(str, unknown[:8])) + (f" and {len(unknown) - 8} more" if len(unknown) > 8 else "")
            raise StateError(
                f"positions of the games {named} wait in the reservoir, and no source that entered has these games",
                hint="the state and its window do not belong together: take another state",
            )

    def frames(self, origins: npt.NDArray[np.void]) -> tuple[FrameBlock, npt.NDArray[np.bool_]]:
        """The frames of these origins, in this order, and which of them could be read: the others are blank."""
        order = np.lexsort([origins[key] for key in ("ply", "use", "chunk")])
        by_game = origins[order]
        uses = by_game[["chunk", "use"]]
        begins = np.flatnonzero(np.r_[True, uses[1:] != uses[:-1]]) if len(uses) else np.zeros(0, np.int64)
        kept, blocks = np.zeros(len(origins), bool), [_BLANK]
        for first in range(0, len(begins), AT_ONCE):
            bounds = [*begins[first : first + AT_ONCE + 1].tolist(), len(origins)][: AT_ONCE + 1]
            spans = list(pairwise(bounds))
            for (start, stop), game in zip(spans, self._games(by_game, spans), strict=True):
                found, there = _selected(game, by_game["ply"][start:stop])
                kept[order[start:stop]] = there
                blocks.append(found)
        places = np.empty(len(origins), np.int64)
        places[order] = np.where(kept[order], np.cumsum(kept[order]), 0)
        self._descriptors.close()
        return replace(FrameBlock.concat(blocks).select(places), origins=origins.copy()), kept

    def _games(self, by_game: npt.NDArray[np.void], spans: list[tuple[int, int]]) -> Iterator[FrameBlock | None]:
        places = [self._place(by_game[start]) for start, _ in spans]
        with Threads(self._task.threads, "millstream-reread") as threads:
            yield from in_order(threads, self._game, ((place,) for place in places), ahead=len(places))

    def _place(self, origin: np.void) -> FramePlace | None:
        chunk = int(origin["chunk"])
        if (entry := self._entry(chunk)) is None or (source := self._source(entry)) is None:
            return None
        return FramePlace(chunk, int(origin["use"]), entry, source)

    def _entry(self, chunk: int) -> WindowEntry | None:
        """The source that a game is from."""
        place = bisect_right(self._firsts, chunk) - 1
        return self._entries[place] if place >= 0 and chunk < self._entries[place].stop else None

    def _source(self, entry: WindowEntry) -> ChunkSource | None:
        """The source of an entry; games are asked for in order, so the last one is enough to remember."""
        if self._opened[0] != entry:
            try:
                source = open_chunk_source(Path(self._task.path, entry.name), self._descriptors, self._cache)
                known = (len(source), source.stamp) == (entry.count, entry.stamp)
                self._opened = entry, source if known else None
            except RecordError:
                self._opened = entry, None
        return self._opened[1]

    def _game(self, place: FramePlace | None) -> FrameBlock | None:
        if self._stopping():
            raise closed_error()
        return None if place is None else self._changed(*place)

    def _changed(self, chunk: int, use: int, entry: WindowEntry, source: ChunkSource) -> FrameBlock | None:
        """A game as it was before positions were chosen, if it can be read."""
        index = chunk - entry.first
        try:
            frames = source.read(index).of_game(chunk, use)
            game = Game(chunk, use, entry.name, index, int(source.frames[index]), frames)
            for change in self._changes:
                game = _changed_by(change, game)
        except RecordError:
            return None
        return game.frames


def _changed_by(change: GameStage, game: Game) -> Game:
    """What a stage makes of a game; if it fails, that is said as if it were at work."""
    try:
        return change.changed(game)
    except RecordError:
        raise
    except Exception as error:
        raise failure_of(change.name, error) from error


def _selected(game: FrameBlock | None, plies: npt.NDArray[np.uint32]) -> tuple[FrameBlock, npt.NDArray[np.bool_]]:
    """The frames of a game at these plies, and which of them it has."""
    if game is None or not len(game):
        return FrameBlock.empty(), np.zeros(len(plies), bool)
    order = np.argsort(game.origins["ply"], kind="stable")
    there = game.origins["ply"][order]
    rows = np.minimum(np.searchsorted(there, plies), len(there) - 1)
    found = there[rows] == plies
    return game.select(order[rows[found]]), found
