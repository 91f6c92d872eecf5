from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.feeds.arrival_log import ArrivalLog as ArrivalLog
    from millstream.feeds.feed import Arrival as Arrival
    from millstream.feeds.feed import Control as Control
    from millstream.feeds.feed import Cursor as Cursor
    from millstream.feeds.feed import Feed as Feed
    from millstream.feeds.feed import RolloutSource as RolloutSource
    from millstream.feeds.gathering import Gather as Gather
    from millstream.feeds.http_feed import HttpFeed as HttpFeed
    from millstream.feeds.memory_feed import MemoryFeed as MemoryFeed
    from millstream.feeds.opening import open_feed as open_feed
    from millstream.feeds.opening import open_source as open_source
    from millstream.feeds.spool import SpoolFeed as SpoolFeed
    from millstream.feeds.spool import is_spool as is_spool

__all__ = [
    "Arrival",
    "ArrivalLog",
    "Control",
    "Cursor",
    "Feed",
    "Gather",
    "HttpFeed",
    "MemoryFeed",
    "RolloutSource",
    "SpoolFeed",
    "is_spool",
    "open_feed",
    "open_source",
]
