"""Integers to integers: which sample stands at which position. No files, no state, nothing of the size of the data."""

from millstream.order.balance import CostModel, partition
from millstream.order.micro_batches import MicroBatchRule
from millstream.order.mix import quotas
from millstream.order.phase import Phase, Recipe, Share
from millstream.order.schedule import Schedule, StepPlace
from millstream.order.shuffle import SampleOrder, source_key
from millstream.order.step_plan import StepPlan

__all__ = [
    "CostModel",
    "MicroBatchRule",
    "Phase",
    "Recipe",
    "SampleOrder",
    "Schedule",
    "Share",
    "StepPlace",
    "StepPlan",
    "partition",
    "quotas",
    "source_key",
]
