"""FrameShuffler: positions of one game after the other -> positions of many games in random order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.errors import BudgetError
from millstream.games import ORIGIN, FrameBlock, Game, Reservoir, join_records
from millstream.selfplay import Losses
from millstream.selfplay.chunk_feed.game_stage import Draw, DropReportingStage, GamePlace
from millstream.stages import Queue, Stage

TOGETHER = 1024
"""Positions that leave the reservoir at once when nothing more comes in, and whose coming is told at once."""
GONE_FROM_RESERVOIR = "gone from the reservoir"
"""Why a position is lost that waited in a slot when a run ended, and whose file is not there any more."""
_NOTHING = np.zeros(0, ORIGIN)


@dataclass(frozen=True, slots=True)
class ReservoirMoves:
    """What happened to the slots of a reservoir, as far as it concerns where frames are from."""

    filled: npt.NDArray[np.void]
    """Origins that went into free slots, first of all."""
    slots: npt.NDArray[np.uint32]
    """The slot of each frame that left."""
    arrivals: npt.NDArray[np.void]
    """The origin of what took its place; none when nothing came in: then the last slot's frame did."""
    place: GamePlace | None
    """Where the game stands that the last of what came in is from; None: nothing came in since the stage began."""

    def split(self, rows: int) -> tuple[ReservoirMoves, ReservoirMoves]:
        """Cut them behind so many frames that left."""
        if rows == len(self.slots):
            return self, ReservoirMoves(self.filled[:0], self.slots[:0], self.arrivals[:0], self.place)
        later = len(self.arrivals[rows:])
        place = self.place and replace(self.place, used=self.place.used - later)
        head = ReservoirMoves(self.filled, self.slots[:rows], self.arrivals[:rows], place)
        return head, ReservoirMoves(self.filled[:0], self.slots[rows:], self.arrivals[rows:], self.place)

    @property
    def drains(self) -> bool:
        """Whether frames left, and nothing came in."""
        return len(self.slots) > len(self.arrivals)


def joined(moves: Sequence[ReservoirMoves]) -> list[ReservoirMoves]:
    """The same moves in two at most, which hold no array of a game: first a reservoir fills and exchanges, and when
    nothing more comes in, it drains."""
    if not moves[-1].drains:
        return [_joined(moves)]
    first = next(number for number, move in enumerate(moves) if move.drains)
    return [_joined(some) for some in (moves[:first], moves[first:]) if some]


def _joined(moves: Sequence[ReservoirMoves]) -> ReservoirMoves:
    filled = [move.filled for move in moves if len(move.filled)]
    arrivals = [move.arrivals for move in moves if len(move.arrivals)]
    return ReservoirMoves(
        join_records(filled) if filled else _NOTHING,
        np.concatenate([move.slots for move in moves]),
        join_records(arrivals) if arrivals else _NOTHING,
        moves[-1].place,  # what came in once has told it ever since
    )


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Frames that left the reservoir."""

    frames: FrameBlock
    moves: ReservoirMoves

    def __len__(self) -> int:
        return len(self.frames)

    def split(self, rows: int) -> tuple[Shuffled, Shuffled]:
        """Cut it behind so many frames."""
        head, rest = self.moves.split(rows)
        if rows == len(self):
            return self, Shuffled(FrameBlock.empty(), rest)
        return Shuffled(self.frames.part(0, rows), head), Shuffled(self.frames.part(rows, len(self)), rest)


class FrameShuffler(DropReportingStage[Game | Draw, Shuffled]):
    """Holds so many positions, and gives a random one for each that comes in; at the end, all that are left.

    >>> from millstream.games import example_games
    >>> games = Queue()
    >>> stage = FrameShuffler(games, frames=6, seed=1)
    >>> stage.start()
    >>> with games.producer() as producer:
    ...     producer.put_many(example_games(2, plies=4))
    >>> [piece.frames.origins["chunk"].tolist() for piece in stage.output()]
    [[0, 1], [1, 0, 1, 0, 1, 0]]

    Args:
        input: Gives games, or says which: all of their positions, or those that were chosen.
        frames: Positions that it holds.
        seed: Of the order.
        losses: What was lost in its slots: it keeps its place among the others, and does not leave the stage.
        drain: Give at the end what is left; else it waits for what would have come.
        most_bytes: Of what it holds; policies of many moves may take more, which is an error.
    """

    takes, gives = (Game, Draw), Shuffled
    one_thread = True
    together = 16

    def __init__(
        self,
        input: Queue[Game] | Queue[Draw] | Stage[Game] | Stage[Draw],
        *,
        frames: int = 1 << 17,
        seed: int = 0,
        losses: Losses | None = None,
        drain: bool = True,
        most_bytes: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(input, **settings)
        self._drain, self._most_bytes, self._fills = drain, most_bytes, True
        self._reservoir, self._losses = Reservoir(frames, seed), losses or Losses()
        self._filled: list[npt.NDArray[np.void]] = []
        """Origins that went into free slots, and were not told yet: small blocks would fill the memory behind it."""
        self._place: GamePlace | None = None
        """Where the last game stands: what is left at the end may be the first to tell it."""

    def restore(self, frames: FrameBlock, counter: int) -> None:
        """Hold these positions from the start, slot by slot, with the counter that there was."""
        self._reservoir.restore(frames, counter)

    def process(self, item: Game | Draw) -> Iterator[Shuffled]:
        """Let the positions of a game in, and as many others out, when it is full."""
        if (game := self.game_of(item)) is not None:
            yield from self._exchanged(game)

    def _exchanged(self, item: Game) -> Iterator[Shuffled]:
        out = self._reservoir.exchange(item.frames)
        self._check_size()
        free = len(item.frames) - len(out.frames)
        used = item.skip + len(item.frames)
        self._place = GamePlace(item.draw, item.chunk, item.use, item.source, item.index, used, used)
        origins = item.frames.origins
        if free:
            self._filled.append(origins[:free])
        if len(out.frames) or sum(map(len, self._filled)) >= TOGETHER:
            yield from self._left(
                Shuffled(out.frames, ReservoirMoves(self._told(), out.slots, origins[free:], self._place))
            )

    def finish(self) -> Iterator[Shuffled]:
        """Give what is left."""
        self._fills = False
        while self._drain and len(self._reservoir):
            out = self._reservoir.drain(TOGETHER)
            yield from self._left(Shuffled(out.frames, ReservoirMoves(self._told(), out.slots, _NOTHING, self._place)))

    def _check_size(self) -> None:
        if self._most_bytes is not None and self._reservoir.nbytes > self._most_bytes:
            raise BudgetError(
                f"the positions in the reservoir take {self._reservoir.nbytes:,} bytes, and may take "
                f"{self._most_bytes:,}: their policies have more entries than usual",
                hint="pass a larger memory_budget, or a smaller shuffle_frames",
            )

    def _told(self) -> npt.NDArray[np.void]:
        """What went into free slots since this was asked last."""
        filled = np.concatenate(self._filled) if self._filled else _NOTHING
        self._filled.clear()
        return filled

    def _left(self, whole: Shuffled) -> Iterator[Shuffled]:
        """What has just left the reservoir, without the positions that were lost; their moves stay."""
        lost = np.zeros(0, bool)
        if self._losses.any_in_slots:
            lost = self._losses.in_slots(whole.frames.origins["chunk"], self._reservoir.counter - len(whole))
        if not lost.any():
            yield whole
            return
        self.count(GONE_FROM_RESERVOIR, int(lost.sum()))
        for run in np.split(lost, np.flatnonzero(np.diff(lost)) + 1):
            part, whole = whole.split(len(run))
            yield Shuffled(FrameBlock.empty(), part.moves) if run[0] else part

    def gauges(self) -> dict[str, float]:
        """Positions that it holds, of how many, since none leaves before it is full or its input ends, and their
        bytes."""
        most = {"capacity": self._reservoir.capacity} if self._fills else {}
        return {"frames": len(self._reservoir), **most, "bytes": self._reservoir.nbytes}
