"""Rows that are named one by one -> native batches, made by whoever asks.

The engine does the same with threads of its own for rows that a plan names; here some rows may come from elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from millstream._core import Batch, Budget, DataError, FeedSource, Gather
from millstream.batches.engine import data_error, in_use_error
from millstream.errors import BudgetError

Numbers = npt.NDArray[np.int64]
StepWeight = tuple[int, int, int]
"""Targets of an update on all ranks, what they weigh in hundredths, and segments that have any."""
NO_WEIGHT: StepWeight = (0, 0, 0)


@dataclass
class LentRows:
    """Rows that were made elsewhere, each with one token more than its length; and where documents begin in them."""

    length: int
    _rows: list[npt.NDArray[Any]] = field(default_factory=list)
    _boundaries: list[Numbers] = field(default_factory=list)

    def add(self, tokens: npt.NDArray[Any], boundaries: Numbers | None) -> int:
        """Put a row behind the others; gives its number."""
        self._rows.append(tokens)
        if boundaries is not None:
            self._boundaries.append(boundaries)
        return len(self._rows) - 1

    @property
    def native(self) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32], npt.NDArray[np.uint64]]:
        """Tokens, boundaries, and where the boundaries of each row end, as the core takes them.

        All rows are copied in one step: each lets go of the interpreter, and has to wait until it is its turn again.
        """
        tokens = np.empty((len(self._rows), self.length + 1), np.uint32)
        if self._rows:
            np.concatenate(self._rows, out=tokens.reshape(-1), casting="unsafe")
        ends = np.cumsum([len(each) for each in self._boundaries], dtype=np.uint64)
        boundaries = np.concatenate(self._boundaries) if self._boundaries else np.empty(0)
        return tokens, boundaries.astype(np.uint32), ends


def lent_source(documents: str) -> FeedSource:
    """A source whose rows are lent."""
    return FeedSource(None, 0, documents)


def bytes_for_batches(memory_budget: int) -> int:
    """What of a budget is for batches: half. The rest is for whoever reads and makes the rows that are lent."""
    return memory_budget // 2


class Gatherer:
    """Makes batches of stores and lent rows, in its part of a memory budget. One thread at a time."""

    def __init__(
        self,
        sources: Sequence[FeedSource],
        *,
        length: int,
        labels: Literal["next", "same"],
        pad_id: int,
        id_bytes: int,
        mean_of: str = "targets",
        unit: int = 0,
        memory_budget: int | None = None,
    ) -> None:
        self._budget = Budget() if memory_budget is None else Budget(bytes_for_batches(memory_budget))
        shape = (length, labels, pad_id, id_bytes, self._budget)
        self._make = partial(Gather, list(sources), *shape, mean_of=mean_of, unit=unit)
        self._most_rows = 0
        self._gather = self._make(most_rows=1)

    @property
    def used_bytes(self) -> int:
        """Bytes of all buffers, also of those in the user's hands."""
        return self._budget.used_bytes

    def batch(
        self,
        sources: Sequence[int],
        samples: Numbers,
        lent: LentRows,
        *,
        filled_to: int = 0,
        step_weight: StepWeight = NO_WEIGHT,
    ) -> Batch:
        """Make a batch; behind its rows comes filler, up to so many."""
        rows = max(len(sources), filled_to)
        if rows > self._most_rows:
            self._make_room(rows)
        try:
            tokens, boundaries, ends = lent.native
            batch = self._gather.batch(*_words(sources, samples), tokens, boundaries, ends, filled_to, step_weight)
        except DataError as error:
            raise data_error(error) from None
        if batch is None:
            raise in_use_error(self._budget)
        return batch

    def _make_room(self, rows: int) -> None:
        """Let batches have so many rows, if two of them fit: one in the user's hands and one being made."""
        batch_bytes, most = self._gather.batch_bytes(rows), self._budget.most_bytes
        if 2 * batch_bytes > most:
            raise BudgetError(
                f"batches may take {most} bytes, half of memory_budget; one of {rows} rows takes {batch_bytes}, and "
                "two are needed: one in your hands and one being made",
                hint=f"pass memory_budget={4 * batch_bytes} or more, a smaller batch_size or a smaller chunk_size",
            )
        self._gather, self._most_rows = self._make(most_rows=rows), rows

    def weigh(self, sources: Sequence[int], samples: Numbers) -> StepWeight:
        """What the targets of rows weigh; lent ones need not be there yet."""
        try:
            return self._gather.weigh(*_words(sources, samples))
        except DataError as error:
            raise data_error(error) from None


def _words(sources: Sequence[int], samples: Numbers) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    return np.array(sources, np.uint64), samples.astype(np.uint64)
