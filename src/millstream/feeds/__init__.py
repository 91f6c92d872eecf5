"""Ways from those who make rollouts to the one who trains on them: in a process, through a folder, Redis or HTTP."""

from millstream.feeds.feed import Arrival, Control, Feed, RolloutSource
from millstream.feeds.gathering import Gather
from millstream.feeds.http import HttpSource
from millstream.feeds.http_feed import HttpFeed
from millstream.feeds.memory import MemoryFeed
from millstream.feeds.opening import open_feed, open_source
from millstream.feeds.spool import SpoolFeed, SpoolSource

__all__ = [
    "Arrival",
    "Control",
    "Feed",
    "Gather",
    "HttpFeed",
    "HttpSource",
    "MemoryFeed",
    "RolloutSource",
    "SpoolFeed",
    "SpoolSource",
    "open_feed",
    "open_source",
]
