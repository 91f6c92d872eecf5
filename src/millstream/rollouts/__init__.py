"""What inference engines and self-play produce -> `RolloutBlock`: rollouts in columns, checked."""

from millstream.rollouts.block import RolloutBlock
from millstream.rollouts.columns import FINISHES, KINDS, Finish, Id
from millstream.rollouts.parse import BadRollout, Parsed, block_of, no_rollouts, parse_records
from millstream.rollouts.record import Rollout, rollout_at
from millstream.rollouts.repeats import Repeats, content_hash

__all__ = [
    "FINISHES",
    "KINDS",
    "BadRollout",
    "Finish",
    "Id",
    "Parsed",
    "Repeats",
    "Rollout",
    "RolloutBlock",
    "block_of",
    "content_hash",
    "no_rollouts",
    "parse_records",
    "rollout_at",
]
