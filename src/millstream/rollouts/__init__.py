"""What inference engines and self-play produce -> `RolloutBlock`: rollouts in columns, checked."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "block": "EQUAL_WITHIN FINISHES KINDS NAMED_REWARD ROW_COLUMNS Id RolloutBlock",
        "check": "shown",
        "codec": "ROLLOUTS_SUFFIX Part decode decode_all encode encode_parts iter_blocks",
        "completions": "notes_of",
        "files": "RolloutChunk read_rollouts write_rollouts",
        "groups": "RolloutSummary",
        "lint": "lint_rollouts",
        "parse": "OnBad block_of",
        "reads": "OWN_SUFFIXES find_rollouts",
        "record": "Rollout holds_rollouts",
        "repeats": "content_hash",
    },
)
