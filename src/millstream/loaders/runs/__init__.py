"""Runs: where a loader stands in its data, for each kind of data."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "checkpoint": "JOURNAL FeedCheckpoint",
        "feed": "FeedRun",
        "feed_history": "LEADER",
        "rollout_set": "RolloutSetRun",
        "run": "Filler Finisher Locks Run RunEnded",
        "self_play": "SelfPlayRun",
        "self_play_explain": "RecordedSelfPlay",
        "store": "Mark StoreRun",
    },
)
