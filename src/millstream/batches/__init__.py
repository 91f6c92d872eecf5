"""Rows -> batches: what a trainer takes in its hands, the ring that fills it, and its way between threads and ranks."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "batch": "COLUMNS TrainingBatch",
        "columns": "Columns",
        "completion": "CompletionTracker",
        "distribution": "distribute register_balancer",
        "engine": "Counters Engine EngineSettings Fill bytes_for_batches closed_error feed_source packing_of",
        "isolation": "check_isolation",
        "masks": "NO_LOSS",
        "native": "Batch Feed Packing",
        "pool": "BatchPool PoolStats",
        "queue": "BatchQueue QueueStats",
        "rollout_loss": "MeanOf",
        "rollouts": "RolloutFormat RolloutRows RolloutStep RowBuffers",
        "self_play": "SelfPlayBatch",
        "topology": "Topology",
    },
)
