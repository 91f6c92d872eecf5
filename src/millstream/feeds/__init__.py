"""Ways from those who make rollouts to the one who trains on them: in a process, through a folder, Redis or HTTP."""

from millstream.feeds.feed import Arrival, Control, Feed, RolloutSource

__all__ = ["Arrival", "Control", "Feed", "RolloutSource"]
