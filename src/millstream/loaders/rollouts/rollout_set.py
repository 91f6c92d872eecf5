"""Rollouts that are all here -> a RolloutSet, with the origin, the group and the advantages of each.

They are read block by block, and gathered in memory or, where that is too small, on disk and mapped. Advantages are
columns like any other, computed on whole groups before anything is cut. In a mixture the tokens of rollouts are a store
like any other, and what is said of them is put beside their rows.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from millstream.advantages import (
    Advantages,
    AdvantageSettings,
    compute_advantages,
    find_estimator,
    group_codes,
    masked_counts,
)
from millstream.batches import Columns, RolloutFormat, RolloutRows, TrainingBatch
from millstream.errors import BusyError, LoaderError, RecordError, StoreError
from millstream.loaders import whole
from millstream.loaders.rollouts.settings import RolloutTask
from millstream.rollouts import KINDS, OnBad, RolloutBlock, content_hash, notes_of, read_rollouts
from millstream.stages import close_on_exit, poll
from millstream.stats import Ledger, counted
from millstream.storage import disk, staged
from millstream.store import WEIGHTED, WEIGHTS, TokenStore, TokenStoreWriter, codes_of
from millstream.tensors import backend

Numbers = npt.NDArray[np.int64]
_LOSSES = ("unscored", "baselines", "groups_of_one", "nothing_trained", "tokens_not_trained", "rewards_ignored")
"""What is counted of the rollouts that are here."""
AT_A_TIME = 1024
"""Rollouts that are copied at a time."""
MOST_BYTES = 1 << 30
"""Of rollouts in memory, where no budget was given."""
FREE_SPACE = "rollouts that do not fit into memory lie there while they are used: free some space, or pass cache_dir="


@dataclass(frozen=True, eq=False)
class Rated:
    """Rollouts that are trained on, with everything that is derived from them."""

    block: RolloutBlock
    facts: dict[str, float | int]
    """Numbers to report: of rewards, of groups that teach nothing, of what was left out."""
    rows: npt.NDArray[np.int64]
    """Which rollouts of those that were given these are: baselines are only compared with."""


def rate(block: RolloutBlock, settings: AdvantageSettings | None) -> Rated:
    """Compute what is asked for; without settings, only leave out what is not trained on.

    >>> from millstream.rollouts import block_of
    >>> record = {"group_id": "g", "token_ids": [5, 6], "loss_mask": [0, 1], "finish": "stop"}
    >>> records = [{**record, "rollout_id": name, "reward": reward} for name, reward in (("a", 1.0), ("b", 0.0))]
    >>> rated = rate(block_of(records), AdvantageSettings("rloo"))
    >>> rated.block["advantages"].tolist(), rated.block["rewards"].tolist()
    ([1.0, -1.0], [1.0, 0.0])
    """
    tokens, rows = dict(block.tokens), dict(block.rows)
    facts: dict[str, float | int] = {}
    if settings is not None:
        advantages = compute_advantages(block, settings)
        facts = advantages.facts
        _add(advantages, tokens, rows)
    if "token_rewards" in tokens:
        tokens["rewards"] = tokens["token_rewards"]
    else:  # a batch puts it at the last token that is learned
        rows["rewards"] = np.nan_to_num(rows["reward"], nan=0.0)
    whole = RolloutBlock(block.ends, rows, tokens, block.kept_ids)
    trained = np.arange(len(block), dtype=np.int64)
    if "kind" in rows and rows["kind"].any():
        trained = np.flatnonzero(rows["kind"] == KINDS.index("sample"))
        whole = whole.select(trained)
    return Rated(whole, facts, trained)


def comparable(block: RolloutBlock, settings: AdvantageSettings | None) -> npt.NDArray[np.int64]:
    """The rollouts that can be rated: where groups are compared, those of groups of one cannot."""
    if settings is None or settings.allow_singleton or not find_estimator(settings).groups:
        return np.arange(len(block), dtype=np.int64)
    found = compute_advantages(block, replace(settings, allow_singleton=True))
    return np.flatnonzero(~np.isin(found.groups, found.groups[found.alone]))


def _add(
    advantages: Advantages, tokens: dict[str, npt.NDArray[np.generic]], rows: dict[str, npt.NDArray[np.generic]]
) -> None:
    if advantages.per_rollout is not None:
        rows["advantages"] = advantages.per_rollout
    else:
        tokens["advantages"] = advantages.token_advantages()
    if advantages.returns is not None:
        tokens["returns"] = advantages.returns
    if advantages.loss_mask is not None:
        tokens["loss_mask"] = advantages.loss_mask
    rows["shaped_reward"] = advantages.rewards
    rows["zero_variance"] = advantages.zero_variance[advantages.groups]


class RolloutBuffer:
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
        """Append rollouts."""
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
    gathering = RolloutBuffer(task.settings.memory_budget, task.settings.cache_dir)
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
    gathering = RolloutBuffer(task.settings.memory_budget, task.settings.cache_dir)
    for first in range(0, len(chosen), AT_A_TIME):
        gathering.add(block.select(chosen[first : first + AT_A_TIME]))
    return gathering.gathered()


def stored(block: RolloutBlock, fingerprint: str, folder: Path | None) -> TokenStore:
    """The tokens of rollouts with their weights in the loss, as a store: in the cache, or for as long as it is open."""
    path = Path(folder or tempfile.mkdtemp(prefix="millstream-rollouts-"), f"rollouts-{fingerprint}")
    poll(lambda: _is_written(block, path) or None)
    store = TokenStore(path)
    if folder is None:
        close_on_exit(store, partial(shutil.rmtree, path.parent, ignore_errors=True))
    return store


def _is_written(block: RolloutBlock, path: Path) -> bool:
    """Make the store whole or not at all; another rank may do so at the same time: whether it is there now."""
    if path.exists():
        return True
    with suppress(BusyError):
        _write(block, path)
    return path.exists()


def _write(block: RolloutBlock, path: Path) -> None:
    try:
        with staged(path) as building, TokenStoreWriter(building, dtype=WEIGHTED) as writer:
            writer.extend(block["token_ids"], block.ends, weights=_codes(block))
    except StoreError:
        if not path.exists():
            raise


def _codes(block: RolloutBlock) -> npt.NDArray[np.uint8]:
    """What each token weighs: nothing, or what its rollout does."""
    weights = np.repeat(block.filled("weight"), block.lengths) * block["loss_mask"]
    codes = codes_of(weights)
    if not np.array_equal(WEIGHTS[codes], weights):
        raise LoaderError(
            "some rollouts have a weight that a mixture cannot keep exactly",
            hint="weights are hundredths up to 1, tenths up to 10; or leave them out, and train by themselves",
        )
    return codes


class MixedRollouts:
    """Puts what is said of rollouts beside their rows; rows of other sources have 0 and None there."""

    def __init__(self, blocks: Mapping[str, RolloutBlock], labels: Any, framework: str) -> None:
        self._rows = {name: RolloutRows([block], RolloutFormat(labels=labels)) for name, block in blocks.items()}
        self._make = backend(framework).from_numpy

    def add(self, batch: TrainingBatch, names: Sequence[str], samples: npt.NDArray[Any]) -> TrainingBatch:
        """Add columns to a batch whose first rows are these samples of these sources."""
        rows, length = (int(size) for size in batch.input_ids.shape)
        tokens: dict[str, npt.NDArray[Any]] = {}
        facts: dict[str, list[Any]] = {}
        for name, source in self._rows.items():
            here = np.array([row for row, each in enumerate(names) if each == name], np.int64)
            numbers = samples[here].astype(np.int64)
            step = source.step(np.stack([np.zeros_like(numbers), numbers], axis=1))
            part = step.batch(np.arange(len(here)), length=length)
            for column in source.columns.tokens:
                given = part.metadata[column]
                all_rows = tokens.setdefault(column, np.zeros((rows, *given.shape[1:]), given.dtype))
                all_rows[here] = given[: len(here)]
            for fact in source.columns.samples:
                values = facts.setdefault(fact, [None] * rows)
                for row, value in zip(here.tolist(), part.metadata[fact], strict=False):
                    values[row] = value
        batch.metadata |= facts | {name: self._make(column) for name, column in tokens.items()}
        batch.columns = Columns(tuple(tokens), tuple(facts))
        return batch
