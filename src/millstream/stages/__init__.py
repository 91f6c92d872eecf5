"""Stages joined by queues: threads that pass items on, in an order that does not depend on them."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "clock": "INPUT",
        "kinds": "register_stage",
        "lifetime": "ForkLock HomeProcess after_fork close_on_exit defer_sigint",
        "map_stage": "MapStage",
        "native": "Budget BytePool",
        "ordered": "Ordered Threads cpus in_order",
        "pipeline": "Pipeline",
        "plain": "FunctionStage IterableStage",
        "producer": "Producer",
        "prometheus": "serve_metrics",
        "queue": "Queue",
        "source_stage": "SourceStage",
        "stage": "Stage failure_of",
        "statistics": "History filling",
        "wait": "POLL_S Deadline Reconnect Waits checked_timeout poll retry wait_for warn",
    },
)
