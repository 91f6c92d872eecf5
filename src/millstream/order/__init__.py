"""Integers to integers: which sample stands at which position. No files, no state, nothing of the size of the data."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "balance": "CostModel Integers members partition",
        "draws": "derive_key draw_below draw_fraction draw_uniform",
        "micro_batches": "MicroBatchRule",
        "mix": "BLOCK_PLACES MOST_PLACES quotas",
        "native": "Clock Plan order_version",
        "phase": "LONGEST_RUN UNKNOWN Phase Recipe Share Standing next_phase settled steps_in",
        "schedule": "Schedule StepPlace",
        "shuffle": "SampleOrder Shuffle source_key",
        "step_plan": "StepPlan",
        "steps": "StepPhase resized",
        "windows": "Windows",
    },
)
