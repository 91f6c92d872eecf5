from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.batches.batch import COLUMNS as COLUMNS
    from millstream.batches.batch import TrainingBatch as TrainingBatch
    from millstream.batches.columns import Columns as Columns
    from millstream.batches.completion import CompletionTracker as CompletionTracker
    from millstream.batches.denominators import EngineMeanOf as EngineMeanOf
    from millstream.batches.denominators import LossMean as LossMean
    from millstream.batches.denominators import MeanOf as MeanOf
    from millstream.batches.distribution import distribute as distribute
    from millstream.batches.distribution import register_balancer as register_balancer
    from millstream.batches.engine import Batch as Batch
    from millstream.batches.engine import Counters as Counters
    from millstream.batches.engine import Engine as Engine
    from millstream.batches.engine import EngineSettings as EngineSettings
    from millstream.batches.engine import Feed as Feed
    from millstream.batches.engine import Fill as Fill
    from millstream.batches.engine import Packing as Packing
    from millstream.batches.engine import bytes_for_batches as bytes_for_batches
    from millstream.batches.engine import closed_error as closed_error
    from millstream.batches.engine import feed_source as feed_source
    from millstream.batches.engine import packing_of as packing_of
    from millstream.batches.isolation import check_isolation as check_isolation
    from millstream.batches.masks import NO_LOSS as NO_LOSS
    from millstream.batches.pool import BatchPool as BatchPool
    from millstream.batches.pool import PoolStats as PoolStats
    from millstream.batches.queue import BatchQueue as BatchQueue
    from millstream.batches.queue import QueueStats as QueueStats
    from millstream.batches.rollouts import RolloutFormat as RolloutFormat
    from millstream.batches.rollouts import RolloutRows as RolloutRows
    from millstream.batches.rollouts import RolloutStep as RolloutStep
    from millstream.batches.rollouts import RowBuffers as RowBuffers
    from millstream.batches.self_play import SelfPlayBatch as SelfPlayBatch
    from millstream.batches.topology import Topology as Topology

__all__ = [
    "COLUMNS",
    "NO_LOSS",
    "Batch",
    "BatchPool",
    "BatchQueue",
    "Columns",
    "CompletionTracker",
    "Counters",
    "Engine",
    "EngineMeanOf",
    "EngineSettings",
    "Feed",
    "Fill",
    "LossMean",
    "MeanOf",
    "Packing",
    "PoolStats",
    "QueueStats",
    "RolloutFormat",
    "RolloutRows",
    "RolloutStep",
    "RowBuffers",
    "SelfPlayBatch",
    "Topology",
    "TrainingBatch",
    "bytes_for_batches",
    "check_isolation",
    "closed_error",
    "distribute",
    "feed_source",
    "packing_of",
    "register_balancer",
]
