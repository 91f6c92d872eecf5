from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.rollouts.block import EQUAL_WITHIN as EQUAL_WITHIN
    from millstream.rollouts.block import FINISHES as FINISHES
    from millstream.rollouts.block import KINDS as KINDS
    from millstream.rollouts.block import NAMED_REWARD as NAMED_REWARD
    from millstream.rollouts.block import ROW_COLUMNS as ROW_COLUMNS
    from millstream.rollouts.block import Id as Id
    from millstream.rollouts.block import RolloutBlock as RolloutBlock
    from millstream.rollouts.check import shown as shown
    from millstream.rollouts.codec import ROLLOUTS_SUFFIX as ROLLOUTS_SUFFIX
    from millstream.rollouts.codec import Part as Part
    from millstream.rollouts.codec import decode as decode
    from millstream.rollouts.codec import decode_all as decode_all
    from millstream.rollouts.codec import encode as encode
    from millstream.rollouts.codec import encode_parts as encode_parts
    from millstream.rollouts.codec import iter_blocks as iter_blocks
    from millstream.rollouts.completions import notes_of as notes_of
    from millstream.rollouts.files import RolloutChunk as RolloutChunk
    from millstream.rollouts.files import read_rollouts as read_rollouts
    from millstream.rollouts.files import write_rollouts as write_rollouts
    from millstream.rollouts.groups import RolloutSummary as RolloutSummary
    from millstream.rollouts.lint import lint_rollouts as lint_rollouts
    from millstream.rollouts.parse import OnBad as OnBad
    from millstream.rollouts.parse import block_of as block_of
    from millstream.rollouts.reads import OWN_SUFFIXES as OWN_SUFFIXES
    from millstream.rollouts.reads import find_rollouts as find_rollouts
    from millstream.rollouts.record import Rollout as Rollout
    from millstream.rollouts.record import holds_rollouts as holds_rollouts
    from millstream.rollouts.repeats import content_hash as content_hash

__all__ = [
    "EQUAL_WITHIN",
    "FINISHES",
    "KINDS",
    "NAMED_REWARD",
    "OWN_SUFFIXES",
    "ROLLOUTS_SUFFIX",
    "ROW_COLUMNS",
    "Id",
    "OnBad",
    "Part",
    "Rollout",
    "RolloutBlock",
    "RolloutChunk",
    "RolloutSummary",
    "block_of",
    "content_hash",
    "decode",
    "decode_all",
    "encode",
    "encode_parts",
    "find_rollouts",
    "holds_rollouts",
    "iter_blocks",
    "lint_rollouts",
    "notes_of",
    "read_rollouts",
    "shown",
    "write_rollouts",
]
