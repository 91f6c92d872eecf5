from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.order.balance import CostModel as CostModel
    from millstream.order.balance import Integers as Integers
    from millstream.order.balance import MicroBatchRule as MicroBatchRule
    from millstream.order.balance import StepPlan as StepPlan
    from millstream.order.balance import members as members
    from millstream.order.balance import partition as partition
    from millstream.order.native import Clock as Clock
    from millstream.order.native import Plan as Plan
    from millstream.order.native import order_version as order_version
    from millstream.order.phase import Phase as Phase
    from millstream.order.phase import PhaseSettings as PhaseSettings
    from millstream.order.phase import next_phase as next_phase
    from millstream.order.phase import settled as settled
    from millstream.order.schedule import Schedule as Schedule
    from millstream.order.schedule import StepPlace as StepPlace
    from millstream.order.shares import BLOCK_PLACES as BLOCK_PLACES
    from millstream.order.shares import MOST_PLACES as MOST_PLACES
    from millstream.order.shares import UNKNOWN as UNKNOWN
    from millstream.order.shares import Share as Share
    from millstream.order.shares import Standing as Standing
    from millstream.order.shares import Windows as Windows
    from millstream.order.shares import quotas as quotas
    from millstream.order.shuffle import SampleOrder as SampleOrder
    from millstream.order.shuffle import Shuffle as Shuffle
    from millstream.order.shuffle import derive_key as derive_key
    from millstream.order.shuffle import draw_below as draw_below
    from millstream.order.shuffle import draw_fraction as draw_fraction
    from millstream.order.shuffle import draw_uniform as draw_uniform
    from millstream.order.shuffle import source_key as source_key
    from millstream.order.steps import LONGEST_RUN as LONGEST_RUN
    from millstream.order.steps import StepPhase as StepPhase
    from millstream.order.steps import resized as resized
    from millstream.order.steps import steps_in as steps_in

__all__ = [
    "BLOCK_PLACES",
    "LONGEST_RUN",
    "MOST_PLACES",
    "UNKNOWN",
    "Clock",
    "CostModel",
    "Integers",
    "MicroBatchRule",
    "Phase",
    "PhaseSettings",
    "Plan",
    "SampleOrder",
    "Schedule",
    "Share",
    "Shuffle",
    "Standing",
    "StepPhase",
    "StepPlace",
    "StepPlan",
    "Windows",
    "derive_key",
    "draw_below",
    "draw_fraction",
    "draw_uniform",
    "members",
    "next_phase",
    "order_version",
    "partition",
    "quotas",
    "resized",
    "settled",
    "source_key",
    "steps_in",
]
