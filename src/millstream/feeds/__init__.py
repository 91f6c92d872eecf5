"""Ways from those who make rollouts to the one who trains on them: in a process, through a folder, Redis or HTTP."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "arrivals": "ArrivalLog",
        "feed": "Arrival Control Cursor Feed RolloutSource",
        "gathering": "Gather",
        "http_feed": "HttpFeed",
        "memory": "MemoryFeed",
        "opening": "open_feed open_source",
        "spool": "SpoolFeed is_spool",
    },
)
