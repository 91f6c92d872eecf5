"""Rows -> batches: what a trainer takes in its hands, and the native ring that fills it."""

from millstream.batches.batch import TrainingBatch
from millstream.batches.engine import Engine, EngineSettings, FeedSource

__all__ = ["Engine", "EngineSettings", "FeedSource", "TrainingBatch"]
