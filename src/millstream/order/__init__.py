"""Integers to integers: which sample stands at which position. No files, no state, nothing of the size of the data."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "balance": "CostModel Integers MicroBatchRule StepPlan members partition",
        "native": "Clock Plan order_version",
        "phase": "Phase PhaseSettings next_phase settled",
        "schedule": "Schedule StepPlace",
        "shares": "BLOCK_PLACES MOST_PLACES UNKNOWN Share Standing Windows quotas",
        "shuffle": "SampleOrder Shuffle derive_key draw_below draw_fraction draw_uniform source_key",
        "steps": "LONGEST_RUN StepPhase resized steps_in",
    },
)
