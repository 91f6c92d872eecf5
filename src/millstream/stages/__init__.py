"""Stages joined by queues: threads that pass items on, in an order that does not depend on them."""

from typing import TYPE_CHECKING

from millstream.lazy import lazy

if TYPE_CHECKING:
    from millstream.stages.kinds import register_stage
    from millstream.stages.map_stage import MapStage
    from millstream.stages.pipeline import Pipeline
    from millstream.stages.plain import FunctionStage, IterableStage
    from millstream.stages.producer import Producer
    from millstream.stages.prometheus import MetricsServer, metrics_text, serve_metrics
    from millstream.stages.queue import Queue
    from millstream.stages.source_stage import SourceStage
    from millstream.stages.stage import Stage
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "kinds": "register_stage",
            "map_stage": "MapStage",
            "pipeline": "Pipeline",
            "plain": "FunctionStage IterableStage",
            "producer": "Producer",
            "prometheus": "MetricsServer metrics_text serve_metrics",
            "queue": "Queue",
            "source_stage": "SourceStage",
            "stage": "Stage",
        },
    )

__all__ = [
    "FunctionStage",
    "IterableStage",
    "MapStage",
    "MetricsServer",
    "Pipeline",
    "Producer",
    "Queue",
    "SourceStage",
    "Stage",
    "metrics_text",
    "register_stage",
    "serve_metrics",
]
