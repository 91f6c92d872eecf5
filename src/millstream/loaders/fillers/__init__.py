"""Fillers: what makes the steps of a run, for each kind of data."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "ring": "RingFiller",
        "rollouts": "RolloutDelivery RolloutFiller",
        "stages": "StageFiller",
    },
)
