"""Integers to integers: which sample stands at which position. No files, no state, nothing of the size of the data."""

from millstream.order.mix import quotas
from millstream.order.phase import Phase, Recipe, Share
from millstream.order.schedule import Schedule, StepPlace
from millstream.order.shuffle import SampleOrder, source_key

__all__ = ["Phase", "Recipe", "SampleOrder", "Schedule", "Share", "StepPlace", "quotas", "source_key"]
