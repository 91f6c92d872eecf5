"""What inference engines and self-play produce -> `RolloutBlock`: rollouts in columns, checked."""

from millstream.rollouts.block import RolloutBlock
from millstream.rollouts.columns import FINISHES, KINDS, Finish, Id

__all__ = ["FINISHES", "KINDS", "Finish", "Id", "RolloutBlock"]
