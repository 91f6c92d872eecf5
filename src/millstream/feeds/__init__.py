"""Feeds carry rollouts from producers to the trainer: in a process, through a folder, Redis or HTTP."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "arrival_log": "ArrivalLog",
        "feed": "Arrival Control Cursor Feed RolloutSource",
        "gathering": "Gather",
        "http_feed": "HttpFeed",
        "memory_feed": "MemoryFeed",
        "opening": "open_feed open_source",
        "spool": "SpoolFeed is_spool",
    },
)
