"""Rollouts that are all here -> a RolloutSet, which knows where each came from, which belong together, and how good
each was.

They are read block by block, and gathered in memory or, where that is too small, on disk and mapped.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from millstream.advantages import group_codes, masked_counts
from millstream.errors import LoaderError, RecordError
from millstream.loaders.rollout_rated import Rated, comparable, rate
from millstream.loaders.rollout_task import RolloutTask
from millstream.loaders.settings import whole
from millstream.rollouts import OnBad, RolloutBlock, content_hash, notes_of, read_rollouts
from millstream.stats import Ledger, counted
from millstream.storage import disk

Numbers = npt.NDArray[np.int64]
_LOSSES = ("unscored", "baselines", "groups_of_one", "nothing_trained", "tokens_not_trained", "rewards_ignored")
"""What is counted of the rollouts that are here."""
AT_A_TIME = 1024
"""Rollouts that are copied at a time."""
MOST_BYTES = 1 << 30
"""Of rollouts in memory, where no budget was given."""
FREE_SPACE = "rollouts that do not fit into memory lie there while they are used: free some space, or pass cache_dir="


class Gathering:
    """Puts blocks together. What is said of tokens goes to disk once it is more than the budget.

    The files have no name: they are gone with the process, however it ends.
    """

    def __init__(self, memory_budget: int | None, folder: Path | None) -> None:
        self._most = MOST_BYTES if memory_budget is None else memory_budget // 2
        self._folder = folder
        self._blocks: list[RolloutBlock] = []
        self._columns: dict[str, _OnDisk] | None = None
        self._bytes = 0

    def add(self, block: RolloutBlock) -> None:
        """Put rollouts behind the others."""
        self._bytes += block.nbytes
        if self._columns is None and self._bytes > self._most:
            self._columns = {}
            self._blocks = [self._without_tokens(each) for each in self._blocks]
        self._blocks.append(block if self._columns is None else self._without_tokens(block))

    def _without_tokens(self, block: RolloutBlock) -> RolloutBlock:
        """Write the columns of tokens to disk; what is left is one value per rollout."""
        assert self._columns is not None
        with disk.reported(self._folder or Path(tempfile.gettempdir()), full=FREE_SPACE):
            for name, column in block.tokens.items():
                if name not in self._columns:
                    self._columns[name] = _OnDisk(self._folder)
                self._columns[name].append(column)
        # Copies: a view of what was read would keep all of that in memory.
        rows = {name: column.copy() for name, column in block.rows.items()}
        return RolloutBlock(block.ends.copy(), rows, {}, block.kept_ids.copy())

    def gathered(self) -> RolloutBlock:
        """All rollouts."""
        block = RolloutBlock.concat(self._blocks)
        if self._columns is None:
            return block
        tokens = {name: column.mapped() for name, column in self._columns.items()}
        return RolloutBlock(block.ends, block.rows, tokens, block.kept_ids)


class _OnDisk:
    """A column in a file without a name."""

    def __init__(self, folder: Path | None) -> None:
        if folder is not None:
            disk.make_directory(folder)
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - until it is mapped
        self._dtype: Any = None
        self._shape: tuple[int, ...] = ()
        self._values = 0

    def append(self, column: npt.NDArray[Any]) -> None:
        self._dtype, self._shape = column.dtype, column.shape[1:]
        self._values += len(column)
        self._file.write(np.ascontiguousarray(column).data)

    def mapped(self) -> npt.NDArray[Any]:
        """All values; the file lives as long as they do."""
        with self._file:
            self._file.flush()
            return np.memmap(self._file, self._dtype, "r", shape=(self._values, *self._shape))


@dataclass(frozen=True, eq=False)
class RolloutSet:
    """Rollouts that are trained on, numbered from 0."""

    rated: Rated
    files: Sequence[str]
    """The files they came from."""
    file_numbers: Numbers
    """Which of the files each rollout came from."""
    file_rows: Numbers
    """Its row in that file, from 0."""
    losses: Ledger = field(default_factory=Ledger)
    """Records that are not here, or not as they were given, and rollouts that teach nothing."""

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

    def check_number(self, number: int) -> None:
        """Insist on the number of a rollout."""
        rollouts = len(self.block)
        place = whole(number)
        if place is None or not 0 <= place < rollouts:
            raise LoaderError(
                f"there is no rollout {number!r} among {counted(rollouts, 'rollout')}",
                hint=f"they count from 0 to {rollouts - 1}; number_of(rollout_id) finds one by its id",
            )


def read_set(source: Any, task: RolloutTask, on_bad: OnBad) -> RolloutSet:
    """Read rollouts, and rate them with their groups whole."""
    gathering = Gathering(task.settings.memory_budget, task.settings.cache_dir)
    files, numbers, rows = dict[str, int](), [], []
    losses = Ledger()
    first_bad: RecordError | None = None
    for chunk in read_rollouts(source, tokenizer=task.tokenizer, on_bad=on_bad):
        left_out = Counter(bad.error.reason for bad in chunk.bad) + Counter(repeated=chunk.repeated)
        kept = task.limits.kept(chunk.block, on_bad, left_out, chunk.where)
        losses.add_all("left_out", left_out, source=task.name)
        block = chunk.block if len(kept) == len(chunk.block) else chunk.block.select(kept)
        gathering.add(block)
        losses.add_all("changed", {**notes_of(block), "tokenised anew": chunk.tokenized}, source=task.name)
        number = files.setdefault(chunk.file, len(files))
        numbers.append(np.full(len(kept), number, np.int64))
        rows.append(chunk.rows[kept])
        first_bad = first_bad or next((bad.error for bad in chunk.bad), None)
    if not sum(map(len, numbers)):
        counts = losses.reasons("left_out", source=task.name)
        reasons = ", ".join(f"{count} {reason}" for reason, count in counts.items())
        if first_bad is None:
            raise LoaderError(f"there are no rollouts{reasons and f': {reasons}'}", hint="give at least one")
        raise LoaderError(f"there are no rollouts: {reasons}, the first at {first_bad.message}", hint=first_bad.hint)
    gathered = gathering.gathered()
    chosen = np.arange(len(gathered)) if on_bad == "error" else comparable(gathered, task.rating)
    if 0 < len(chosen) < len(gathered):  # where nothing is left, rating says why
        losses.add("left_out", "group of one", len(gathered) - len(chosen), source=task.name)
        gathered = _selected(gathered, chosen, task)
    rated = rate(gathered, task.rating)
    if not len(rated.block):
        raise LoaderError("there are only baselines, nothing to train on", hint="give rollouts of kind 'sample', too")
    idle = int(np.sum(masked_counts(gathered["loss_mask"], gathered.ends)[rated.rows] == 0))
    for fact, count in {**rated.facts, "nothing_trained": idle}.items():
        if fact in _LOSSES and count:
            losses.add(fact, count=int(count), source=task.name)
    chosen = chosen[rated.rows]
    where = np.concatenate(numbers)[chosen], np.concatenate(rows)[chosen]
    return RolloutSet(rated, list(files), *where, losses)


def _selected(block: RolloutBlock, chosen: Numbers, task: RolloutTask) -> RolloutBlock:
    """Some rollouts, in the memory that there is for all."""
    gathering = Gathering(task.settings.memory_budget, task.settings.cache_dir)
    for first in range(0, len(chosen), AT_A_TIME):
        gathering.add(block.select(chosen[first : first + AT_A_TIME]))
    return gathering.gathered()
