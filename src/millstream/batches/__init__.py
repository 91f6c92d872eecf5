"""Rows -> batches: what a trainer takes in its hands, and the native ring that fills it."""

from millstream.batches.batch import TrainingBatch
from millstream.batches.engine import Engine, EngineSettings, Source

__all__ = ["Engine", "EngineSettings", "Source", "TrainingBatch"]
