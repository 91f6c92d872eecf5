"""One memory budget -> what of it the reservoir, kept positions, games on their way and batches may take."""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.errors import BudgetError
from millstream.games import ORIGIN, SLOT_BYTES
from millstream.live import buffer_offsets
from millstream.loaders import LoaderSettings
from millstream.loaders.self_play.task import SelfPlayTask

GAME_BYTES = 1 << 20
"""Room for a game: several times a usual one."""
STAGES = 6
"""Stages whose threads and whose queue hold games."""
FEW, LARGEST_POLICY_BYTES = 1024, (218 - 64) * 8
"""Positions of a small reservoir that may all have as many moves as a position can, and what that takes of each."""
MOST_GAMES = 16
"""Games in a queue; more make nothing faster."""


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
    def of(task: SelfPlayTask, settings: LoaderSettings) -> MemoryShares:
        """Share a loader's budget; one that is too small is an error that says for what."""
        budget = settings.memory_budget
        if budget is None:
            return MemoryShares()
        ahead, rows = 1 + (settings.prefetch or 2), settings.batch_size * settings.world_size
        few = min(task.shuffle_frames, FEW) * LARGEST_POLICY_BYTES
        slots = task.shuffle_frames * SLOT_BYTES * 21 // 20 + few  # some policies have more entries than a slot
        fixed = {
            "the reservoir (shuffle_frames=)": slots + task.shuffle_frames * ORIGIN.itemsize,
            "kept positions (position_cache=)": task.position_cache,
            "positions of batches that are made (batch_size=, prefetch=)": ahead * rows * SLOT_BYTES,
        }
        batch = buffer_offsets(task.output, settings.batch_size)[-1]
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
