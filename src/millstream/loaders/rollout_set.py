"""RolloutSet: rollouts that do not change, where each came from, which belong together, and how good each was."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from millstream.advantages import AdvantageSettings
from millstream.advantages.groups import group_codes
from millstream.errors import LoaderError
from millstream.loaders.rollout_rated import Rated, rate
from millstream.loaders.rollout_task import RolloutLimits
from millstream.rollouts import RolloutBlock, content_hash
from millstream.rollouts.files import RolloutChunk

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RolloutSet:
    """Rollouts that somebody trains on, numbered from 0."""

    rated: Rated
    files: Sequence[str]
    """The files they came from."""
    file_numbers: Numbers
    """Which of the files each rollout came from."""
    file_rows: Numbers
    """Its row in that file, from 0."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Records that are not here, by reason."""

    @property
    def block(self) -> RolloutBlock:
        """Their columns."""
        return self.rated.block

    @property
    def longest(self) -> int:
        """Tokens of the longest."""
        return int(self.block.lengths.max())

    @cached_property
    def fingerprint(self) -> str:
        """Names the content: other rollouts, or another order, have another one. Advantages follow from settings."""
        derived = ("advantages", "returns", "rewards", "shaped_reward", "zero_variance")
        rows = {name: column for name, column in self.block.rows.items() if name not in derived}
        tokens = {name: column for name, column in self.block.tokens.items() if name not in derived}
        given = RolloutBlock(self.block.ends, rows, tokens, self.block.kept_ids)
        return hashlib.blake2b(np.ascontiguousarray(content_hash(given)).tobytes(), digest_size=16).hexdigest()

    @cached_property
    def groups(self) -> Numbers:
        """The number of each rollout's group, in the order in which groups appear."""
        return group_codes(self.block["group_id"])

    @cached_property
    def group_members(self) -> list[Numbers]:
        """The rollouts of each group, in their order."""
        order = np.argsort(self.groups, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(self.groups[order])) + 1)

    def origin(self, number: int) -> str:
        """Where a rollout came from."""
        return f"{self.files[int(self.file_numbers[number])]}:{int(self.file_rows[number]) + 1}"


def gathered(
    chunks: Iterable[RolloutChunk], rating: AdvantageSettings | None, limits: RolloutLimits, left_out: Counter[str]
) -> RolloutSet:
    """Put rollouts together and rate them, all groups whole."""
    blocks, files, numbers, rows = [], dict[str, int](), [], []
    for chunk in chunks:
        limits.check(chunk.block, chunk.file)
        blocks.append(chunk.block)
        number = files.setdefault(chunk.file, len(files))
        numbers.append(np.full(len(chunk.block), number, np.int64))
        rows.append(np.asarray(chunk.rows, np.int64))
    if not sum(map(len, blocks)):
        raise LoaderError(
            "there are no rollouts", hint="give at least one; with on_bad='skip', look at what was wrong with them"
        )
    rated = rate(blocks[0] if len(blocks) == 1 else RolloutBlock.concat(blocks), rating)
    if not len(rated.block):
        raise LoaderError("there are only baselines, nothing to train on", hint="give rollouts of kind 'sample', too")
    return RolloutSet(
        rated, list(files), np.concatenate(numbers)[rated.rows], np.concatenate(rows)[rated.rows], left_out
    )
