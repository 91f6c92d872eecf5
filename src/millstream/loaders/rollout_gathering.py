"""Blocks that come one by one -> one block: in memory, or, when it grows too large, on disk and mapped."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from millstream.rollouts import RolloutBlock
from millstream.storage import disk

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
