from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.loaders.runs.checkpoint import JOURNAL as JOURNAL
    from millstream.loaders.runs.checkpoint import FeedCheckpoint as FeedCheckpoint
    from millstream.loaders.runs.feed import FeedRun as FeedRun
    from millstream.loaders.runs.feed_history import LEADER as LEADER
    from millstream.loaders.runs.rollout_set import RolloutSetRun as RolloutSetRun
    from millstream.loaders.runs.run import Filler as Filler
    from millstream.loaders.runs.run import Finisher as Finisher
    from millstream.loaders.runs.run import Locks as Locks
    from millstream.loaders.runs.run import Run as Run
    from millstream.loaders.runs.run import RunEnded as RunEnded
    from millstream.loaders.runs.self_play import SelfPlayRun as SelfPlayRun
    from millstream.loaders.runs.self_play_explain import RecordedSelfPlay as RecordedSelfPlay
    from millstream.loaders.runs.store import Mark as Mark
    from millstream.loaders.runs.store import StoreRun as StoreRun

__all__ = [
    "JOURNAL",
    "LEADER",
    "FeedCheckpoint",
    "FeedRun",
    "Filler",
    "Finisher",
    "Locks",
    "Mark",
    "RecordedSelfPlay",
    "RolloutSetRun",
    "Run",
    "RunEnded",
    "SelfPlayRun",
    "StoreRun",
]
