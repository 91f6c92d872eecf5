"""What a self-play run does (`SelfPlayTask`), and how it shares one memory budget (`MemoryShares`).

A budget is divided between the reservoir, kept positions, games between stages, and batches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from millstream.errors import BudgetError
from millstream.games import ORIGIN, SLOT_BYTES, filter_facts
from millstream.order import source_key
from millstream.selfplay.chunk_feed import Output, Partial, buffer_offsets
from millstream.selfplay.hanse import HanseSampling
from millstream.selfplay.sampling import ALL_POSITIONS, PositionSampling
from millstream.selfplay.window import Window

GAME_BYTES = 1 << 20
"""Room for a game: several times a usual one."""
STAGES = 6
"""Stages whose threads and whose queue hold games."""
FEW, LARGEST_POLICY_BYTES = 1024, (218 - 64) * 8
"""Positions of a small reservoir that may all have as many moves as a position can, and what that takes of each."""
MOST_GAMES = 16
"""Games in a queue; more make nothing faster."""


@dataclass(frozen=True)
class SelfPlayTask:
    """Which games are used, which of their positions, and what is done to them."""

    path: str
    num_chunks: int | None = None
    watch: bool = True
    poll_s: float | None = None
    partial: Partial = "drop"
    """What becomes of archives that are cut."""
    shuffle: bool = True
    """False: games in the order of their files, and positions in that of their games."""
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
    queue_games: int = 16
    """Games that wait between two stages, at most."""
    game_bytes: int | None = None
    """Of a game in memory, at most; None: any."""
    reservoir_bytes: int | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """What must stay the same for a run to go on."""
        return {
            "num_chunks": self.num_chunks,
            "watch": self.watch,
            "partial": self.partial,
            "shuffle": self.shuffle,
            "shuffle_frames": self.shuffle_frames,
            "positions": repr(self.positions),
            "hanse": repr(self.hanse),
            "rescore": repr(self.rescore),
            **filter_facts(**self.filters or {"rules": None, "match": None, "predicates": ()}),
        }

    def epoch_seed(self, seed: int, epoch: int) -> int:
        """Passes over what does not change are orders of their own; a run that watches has one order, without end."""
        return seed if self.watch or not epoch else source_key(seed, f"self-play epoch {epoch}")

    def window(self, seed: int, epoch: int) -> Window:
        """The window of games of an epoch, before anything has entered."""
        return Window(
            self.num_chunks,
            self.epoch_seed(seed, epoch),
            endless=self.watch,
            first_use=0 if self.watch else epoch,
            shuffle=self.shuffle,
        )

    @property
    def knows_length(self) -> bool:
        """Whether every frame of every game is used, so that the headers of files say how many there are."""
        changes = self.hanse is not None or self.filters is not None or self.rescore is not None
        return not self.watch and self.positions == ALL_POSITIONS and not changes


@dataclass(frozen=True)
class MemoryShares:
    """Who may hold how many bytes; None: no limit."""

    batches: int | None = None
    """Buffers of batches, those in the user's hands too."""
    queue_games: int = MOST_GAMES
    """Games in each queue, and in the hands of each thread."""
    game_bytes: int | None = None
    """One game; a larger one is an error."""
    reservoir_bytes: int | None = None

    def given_to(self, task: SelfPlayTask) -> SelfPlayTask:
        """The task, of which no part holds more."""
        return replace(
            task, queue_games=self.queue_games, game_bytes=self.game_bytes, reservoir_bytes=self.reservoir_bytes
        )

    @staticmethod
    def of(task: SelfPlayTask, budget: int | None, *, batch_size: int, ranks: int, prefetch: int) -> MemoryShares:
        """Share a budget in bytes; one that is too small is an error that says for what."""
        if budget is None:
            return MemoryShares()
        ahead, rows = 1 + prefetch, batch_size * ranks
        few = min(task.shuffle_frames, FEW) * LARGEST_POLICY_BYTES
        slots = task.shuffle_frames * SLOT_BYTES * 21 // 20 + few  # some policies have more entries than a slot
        fixed = {
            "the reservoir (shuffle_frames=)": slots + task.shuffle_frames * ORIGIN.itemsize,
            "kept positions (position_cache=)": task.position_cache,
            "positions of batches that are made (batch_size=, prefetch=)": ahead * rows * SLOT_BYTES,
        }
        batch = buffer_offsets(task.output, batch_size)[-1]
        left = budget - sum(fixed.values())
        games = left // 8
        if left - games < 2 * batch:
            two = {"two batches, one in your hands": 2 * batch}
            told = ", ".join(f"{what} {size:,}" for what, size in {**fixed, **two}.items() if size)
            enough = sum(fixed.values()) + (1 + ahead) * batch * 8 // 7 + 8
            raise BudgetError(
                f"memory_budget is {budget:,} bytes, of which are needed: {told}",
                hint=f"pass memory_budget={enough} or more, or make one of them smaller",
            )
        spare = max(0, left - games - (2 + ahead) * batch) // 2  # for policies of another kind
        holders = STAGES * (1 + 2 * task.threads)
        queue_games = min(max(1, games // (holders * GAME_BYTES)), MOST_GAMES)
        game_bytes = max(GAME_BYTES, games // (holders * queue_games))
        return MemoryShares(left - games - spare, queue_games, game_bytes, slots + spare)
