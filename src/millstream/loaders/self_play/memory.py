"""One memory budget -> what of it the reservoir, kept positions, games on their way and batches may take."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors import BudgetError
from millstream.games.frame import ORIGIN
from millstream.games.reservoir import SLOT_BYTES
from millstream.live.tensor_maker import buffer_offsets
from millstream.loaders.self_play.task import SelfPlayTask
from millstream.loaders.settings import LoaderSettings

GAME_BYTES = 1 << 18
"""A game of usual length: some 200 positions."""
STAGES = 6
"""Stages whose threads and whose queue hold games."""
MOST_GAMES = 16
"""Games in a queue; more make nothing faster."""


@dataclass(frozen=True)
class MemoryShares:
    """Who may hold how many bytes."""

    batches: int | None
    """Buffers of batches, those in the user's hands too; None: no limit."""
    queue_games: int = MOST_GAMES
    """Games in each queue."""

    @staticmethod
    def of(task: SelfPlayTask, settings: LoaderSettings) -> MemoryShares:
        """Share a loader's budget; one that is too small is an error that says for what."""
        budget = settings.memory_budget
        if budget is None:
            return MemoryShares(None)
        ahead, rows = 1 + (settings.prefetch or 2), settings.batch_size * settings.world_size
        fixed = {
            "the reservoir (shuffle_frames=)": task.shuffle_frames * (SLOT_BYTES + ORIGIN.itemsize),
            "kept positions (position_cache=)": task.position_cache,
            "positions of batches that are made (batch_size=, prefetch=)": ahead * rows * SLOT_BYTES,
        }
        batch = buffer_offsets(task.output, settings.batch_size)[-1]
        left = budget - sum(fixed.values())
        games = left // 8
        if left - games < batch:
            told = ", ".join(f"{what} {size:,}" for what, size in {**fixed, "a batch": batch}.items() if size)
            enough = sum(fixed.values()) + (1 + ahead) * batch * 8 // 7 + 8
            raise BudgetError(
                f"memory_budget is {budget:,} bytes, of which are needed: {told}",
                hint=f"pass memory_budget={enough} or more, or make one of them smaller",
            )
        queue_games = games // (GAME_BYTES * STAGES * (1 + settings.threads))
        return MemoryShares(left - games, min(max(1, queue_games), MOST_GAMES))
