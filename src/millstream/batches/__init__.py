"""Rows -> batches: what a trainer takes in its hands, the ring that fills it, and its way between threads and ranks."""

from typing import TYPE_CHECKING

from millstream.lazy import lazy

if TYPE_CHECKING:
    from millstream.batches.batch import TrainingBatch
    from millstream.batches.completion import CompletionTracker
    from millstream.batches.distribution import Balancer, distribute, register_balancer
    from millstream.batches.engine import Engine, EngineSettings
    from millstream.batches.isolation import check_isolation
    from millstream.batches.pool import BatchPool, PoolStats
    from millstream.batches.queue import BatchQueue, QueueStats
    from millstream.batches.rollouts import RolloutFormat, RolloutRows, RolloutStep, RowBuffers
    from millstream.batches.self_play import SelfPlayBatch
    from millstream.batches.topology import Topology
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "batch": "TrainingBatch",
            "completion": "CompletionTracker",
            "distribution": "Balancer distribute register_balancer",
            "engine": "Engine EngineSettings",
            "isolation": "check_isolation",
            "pool": "BatchPool PoolStats",
            "queue": "BatchQueue QueueStats",
            "rollouts": "RolloutFormat RolloutRows RolloutStep RowBuffers",
            "self_play": "SelfPlayBatch",
            "topology": "Topology",
        },
    )

__all__ = [
    "Balancer",
    "BatchPool",
    "BatchQueue",
    "CompletionTracker",
    "Engine",
    "EngineSettings",
    "PoolStats",
    "QueueStats",
    "RolloutFormat",
    "RolloutRows",
    "RolloutStep",
    "RowBuffers",
    "SelfPlayBatch",
    "Topology",
    "TrainingBatch",
    "check_isolation",
    "distribute",
    "register_balancer",
]
