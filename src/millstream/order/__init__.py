"""Integers to integers: which sample stands at which position. No files, no state, nothing of the size of the data."""

from typing import TYPE_CHECKING

from millstream.lazy import lazy

if TYPE_CHECKING:
    from millstream.order.balance import CostModel, partition
    from millstream.order.micro_batches import MicroBatchRule
    from millstream.order.mix import quotas
    from millstream.order.phase import Phase, Recipe, Share
    from millstream.order.schedule import Schedule, StepPlace
    from millstream.order.shuffle import SampleOrder, source_key
    from millstream.order.step_plan import StepPlan
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "balance": "CostModel partition",
            "micro_batches": "MicroBatchRule",
            "mix": "quotas",
            "phase": "Phase Recipe Share",
            "schedule": "Schedule StepPlace",
            "shuffle": "SampleOrder source_key",
            "step_plan": "StepPlan",
        },
    )

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
