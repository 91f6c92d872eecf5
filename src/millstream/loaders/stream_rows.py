"""Tokens of lanes -> the columns of a batch: the rows that a store's engine would make of the same tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.batches.batch import NO_LOSS

Columns = dict[str, npt.NDArray[Any]]


class RowColumns:
    """The columns of one batch while its rows are written."""

    def __init__(self, rows: int, length: int, *, isolate: bool, labels: str, id_bytes: int) -> None:
        kind = np.int64 if id_bytes == 8 else np.int32
        self._length, self._same = length, labels == "same"
        names = ("input_ids", "labels", *(("position_ids",) if isolate else ()))
        self.columns: Columns = {name: np.empty((rows, length), kind) for name in names}
        self._starts: list[npt.NDArray[np.int64]] = []
        self.lengths = np.full(rows, length, np.int32)

    def write(self, row: int, tokens: npt.NDArray[Any]) -> None:
        """Write a row of inputs, and one more token as the last target."""
        self.columns["input_ids"][row] = tokens[:-1]
        self.columns["labels"][row] = tokens[:-1] if self._same else tokens[1:]

    def isolate(self, row: int, ends: npt.NDArray[np.int64]) -> None:
        """Keep the documents of a row apart; `ends` are the places in it behind which a document ends."""
        starts = np.concatenate([[0], ends[ends < self._length]])
        labels = self.columns["labels"][row]
        labels[starts if self._same else ends - 1] = NO_LOSS
        lengths = np.diff(starts, append=self._length)
        self.columns["position_ids"][row] = np.arange(self._length) - np.repeat(starts, lengths)
        self._starts.append(starts + row * self._length)

    def segment_starts(self) -> npt.NDArray[np.int32]:
        """The starts of all segments in the flattened rows, and their end."""
        end = self.columns["input_ids"].size
        return np.concatenate([*self._starts, [end]]).astype(np.int32)
