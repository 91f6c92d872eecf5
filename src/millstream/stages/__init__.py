"""Stages joined by queues: threads that pass items on, in an order that does not depend on them."""

from millstream.stages.map_stage import MapStage
from millstream.stages.plain import FunctionStage, IterableStage
from millstream.stages.queue import Producer, Queue
from millstream.stages.source_stage import SourceStage
from millstream.stages.stage import Stage

__all__ = ["FunctionStage", "IterableStage", "MapStage", "Producer", "Queue", "SourceStage", "Stage"]
