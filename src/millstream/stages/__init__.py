"""Stages joined by queues: threads that pass items on, in an order that does not depend on them."""

from millstream.stages.kinds import register_stage
from millstream.stages.map_stage import MapStage
from millstream.stages.pipeline import Pipeline
from millstream.stages.plain import FunctionStage, IterableStage
from millstream.stages.producer import Producer
from millstream.stages.prometheus import MetricsServer, metrics_text, serve_metrics
from millstream.stages.queue import Queue
from millstream.stages.source_stage import SourceStage
from millstream.stages.stage import Stage

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
