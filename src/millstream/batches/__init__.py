"""Rows -> batches: what a trainer takes in its hands, the ring that fills it, and its way between threads and ranks."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "batch": "COLUMNS TrainingBatch",
        "columns": "Columns",
        "completion": "CompletionTracker",
        "denominators": "EngineMeanOf LossMean MeanOf",
        "distribution": "distribute register_balancer",
        "engine": "Batch Counters Engine EngineSettings Feed Fill Packing bytes_for_batches closed_error feed_source "
        "packing_of",
        "isolation": "check_isolation",
        "masks": "NO_LOSS",
        "pool": "BatchPool PoolStats",
        "queue": "BatchQueue QueueStats",
        "rollouts": "RolloutFormat RolloutRows RolloutStep RowBuffers",
        "self_play": "SelfPlayBatch",
        "topology": "Topology",
    },
)
