from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.stages.lifetime import ForkLock as ForkLock
    from millstream.stages.lifetime import HomeProcess as HomeProcess
    from millstream.stages.lifetime import after_fork as after_fork
    from millstream.stages.lifetime import close_on_exit as close_on_exit
    from millstream.stages.lifetime import defer_sigint as defer_sigint
    from millstream.stages.metrics import INPUT as INPUT
    from millstream.stages.metrics import History as History
    from millstream.stages.metrics import filling as filling
    from millstream.stages.native import Budget as Budget
    from millstream.stages.native import BytePool as BytePool
    from millstream.stages.ordered import Ordered as Ordered
    from millstream.stages.ordered import Threads as Threads
    from millstream.stages.ordered import cpus as cpus
    from millstream.stages.ordered import in_order as in_order
    from millstream.stages.pipeline import Pipeline as Pipeline
    from millstream.stages.pipeline_file import register_stage as register_stage
    from millstream.stages.prometheus import serve_metrics as serve_metrics
    from millstream.stages.queue import Queue as Queue
    from millstream.stages.queue_ends import Producer as Producer
    from millstream.stages.stage import Stage as Stage
    from millstream.stages.stage import failure_of as failure_of
    from millstream.stages.stage_kinds import FunctionStage as FunctionStage
    from millstream.stages.stage_kinds import IterableStage as IterableStage
    from millstream.stages.stage_kinds import MapStage as MapStage
    from millstream.stages.stage_kinds import SourceStage as SourceStage
    from millstream.stages.wait import POLL_S as POLL_S
    from millstream.stages.wait import Deadline as Deadline
    from millstream.stages.wait import Reconnect as Reconnect
    from millstream.stages.wait import Waits as Waits
    from millstream.stages.wait import checked_timeout as checked_timeout
    from millstream.stages.wait import poll as poll
    from millstream.stages.wait import retry as retry
    from millstream.stages.wait import wait_for as wait_for
    from millstream.stages.wait import warn as warn

__all__ = [
    "INPUT",
    "POLL_S",
    "Budget",
    "BytePool",
    "Deadline",
    "ForkLock",
    "FunctionStage",
    "History",
    "HomeProcess",
    "IterableStage",
    "MapStage",
    "Ordered",
    "Pipeline",
    "Producer",
    "Queue",
    "Reconnect",
    "SourceStage",
    "Stage",
    "Threads",
    "Waits",
    "after_fork",
    "checked_timeout",
    "close_on_exit",
    "cpus",
    "defer_sigint",
    "failure_of",
    "filling",
    "in_order",
    "poll",
    "register_stage",
    "retry",
    "serve_metrics",
    "wait_for",
    "warn",
]
