from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.loaders.fillers.ring import RingFiller as RingFiller
    from millstream.loaders.fillers.rollouts import RolloutDelivery as RolloutDelivery
    from millstream.loaders.fillers.rollouts import RolloutFiller as RolloutFiller
    from millstream.loaders.fillers.stages import StageFiller as StageFiller

__all__ = [
    "RingFiller",
    "RolloutDelivery",
    "RolloutFiller",
    "StageFiller",
]
