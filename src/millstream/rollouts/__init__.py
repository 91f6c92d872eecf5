"""What inference engines and self-play produce -> `RolloutBlock`: rollouts in columns, checked."""

from typing import TYPE_CHECKING

from millstream.lazy import lazy

if TYPE_CHECKING:
    from millstream.rollouts.block import RolloutBlock
    from millstream.rollouts.codec import Decoded, decode, decode_all, encode, encode_parts, encoded_size
    from millstream.rollouts.columns import FINISHES, KINDS, Finish, Id
    from millstream.rollouts.fields import holds_rollouts
    from millstream.rollouts.files import RolloutChunk, read_rollouts, write_rollouts
    from millstream.rollouts.parse import BadRollout, Parsed, block_of, no_rollouts, parse_records
    from millstream.rollouts.record import Rollout, rollout_at
    from millstream.rollouts.repeats import Repeats, content_hash
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "block": "RolloutBlock",
            "codec": "Decoded decode decode_all encode encode_parts encoded_size",
            "columns": "FINISHES KINDS Finish Id",
            "fields": "holds_rollouts",
            "files": "RolloutChunk read_rollouts write_rollouts",
            "parse": "BadRollout Parsed block_of no_rollouts parse_records",
            "record": "Rollout rollout_at",
            "repeats": "Repeats content_hash",
        },
    )

__all__ = [
    "FINISHES",
    "KINDS",
    "BadRollout",
    "Decoded",
    "Finish",
    "Id",
    "Parsed",
    "Repeats",
    "Rollout",
    "RolloutBlock",
    "RolloutChunk",
    "block_of",
    "content_hash",
    "decode",
    "decode_all",
    "encode",
    "encode_parts",
    "encoded_size",
    "holds_rollouts",
    "no_rollouts",
    "parse_records",
    "read_rollouts",
    "rollout_at",
    "write_rollouts",
]
