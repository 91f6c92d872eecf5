"""Rows -> batches: what a trainer takes in its hands, the ring that fills it, and its way between threads and ranks."""

from millstream.batches.batch import TrainingBatch
from millstream.batches.completion import CompletionTracker
from millstream.batches.distribute import Balancer, distribute, register_balancer
from millstream.batches.engine import Engine, EngineSettings
from millstream.batches.isolation import check_isolation
from millstream.batches.pool import BatchPool, PoolStats
from millstream.batches.queue import BatchQueue, QueueStats
from millstream.batches.rollouts import RolloutFormat, RolloutRows, RolloutStep, RowBuffers
from millstream.batches.self_play import SelfPlayBatch
from millstream.batches.topology import Topology

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
