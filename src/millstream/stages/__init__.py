"""Stages joined by queues: threads that pass items on, in an order that does not depend on them."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "lifetime": "ForkLock HomeProcess after_fork close_on_exit defer_sigint",
        "metrics": "INPUT History filling",
        "native": "Budget BytePool",
        "ordered": "Ordered Threads cpus in_order",
        "pipeline": "Pipeline",
        "pipeline_file": "register_stage",
        "prometheus": "serve_metrics",
        "queue": "Queue",
        "queue_ends": "Producer",
        "stage": "Stage failure_of",
        "stage_kinds": "FunctionStage IterableStage MapStage SourceStage",
        "wait": "POLL_S Deadline Reconnect Waits checked_timeout poll retry wait_for warn",
    },
)
