from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.loaders.rollouts.explain import Recorded as Recorded
    from millstream.loaders.rollouts.explain import RecordedRun as RecordedRun
    from millstream.loaders.rollouts.feed_settings import FEED_SCHEMES as FEED_SCHEMES
    from millstream.loaders.rollouts.feed_settings import LiveSettings as LiveSettings
    from millstream.loaders.rollouts.feed_settings import feed_run as feed_run
    from millstream.loaders.rollouts.feed_settings import is_feed as is_feed
    from millstream.loaders.rollouts.rollout_set import MixedRollouts as MixedRollouts
    from millstream.loaders.rollouts.rollout_set import RolloutSet as RolloutSet
    from millstream.loaders.rollouts.rollout_set import read_set as read_set
    from millstream.loaders.rollouts.rollout_set import stored as stored
    from millstream.loaders.rollouts.settings import RolloutKeywords as RolloutKeywords
    from millstream.loaders.rollouts.settings import RolloutTask as RolloutTask
    from millstream.loaders.rollouts.settings import StepSettings as StepSettings
    from millstream.loaders.rollouts.settings import advantage_settings as advantage_settings
    from millstream.loaders.rollouts.show import show_rollout as show_rollout
    from millstream.loaders.rollouts.steps import Dealer as Dealer
    from millstream.loaders.rollouts.steps import DealtStep as DealtStep
    from millstream.loaders.rollouts.steps import FeedOrder as FeedOrder
    from millstream.loaders.rollouts.steps import FeedPhase as FeedPhase
    from millstream.loaders.rollouts.steps import FeedPlace as FeedPlace
    from millstream.loaders.rollouts.steps import MicroBatches as MicroBatches
    from millstream.loaders.rollouts.steps import RolloutBatch as RolloutBatch
    from millstream.loaders.rollouts.steps import StepSamples as StepSamples

__all__ = [
    "FEED_SCHEMES",
    "Dealer",
    "DealtStep",
    "FeedOrder",
    "FeedPhase",
    "FeedPlace",
    "LiveSettings",
    "MicroBatches",
    "MixedRollouts",
    "Recorded",
    "RecordedRun",
    "RolloutBatch",
    "RolloutKeywords",
    "RolloutSet",
    "RolloutTask",
    "StepSamples",
    "StepSettings",
    "advantage_settings",
    "feed_run",
    "is_feed",
    "read_set",
    "show_rollout",
    "stored",
]
