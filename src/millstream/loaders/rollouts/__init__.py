"""Rollouts -> steps: a fixed set or a feed, its settings, how steps are dealt to ranks, and what people see of them."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "explain": "Recorded RecordedRun",
        "feed_settings": "FEED_SCHEMES LiveSettings feed_run is_feed",
        "rollout_set": "MixedRollouts RolloutSet read_set stored",
        "settings": "RolloutKeywords RolloutTask StepSettings advantage_settings",
        "show": "show_rollout",
        "steps": "Dealer DealtStep FeedOrder FeedPhase FeedPlace MicroBatches RolloutBatch StepSamples",
    },
)
