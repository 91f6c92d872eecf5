"""What users do to rows and batches on their way out, without breaking the laws.

A transform of a batch is a function batch -> batch. A transform of a row, marked with `per_row`, is a function
(row, rng) -> row: its random generator is keyed by the seed and the row's place in the run, so the same row is
treated the same way on any number of ranks, threads and batch sizes, and after a resume.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.errors import LoaderError

Row = dict[str, npt.NDArray[Any]]
RowFunction = Callable[[Row, np.random.Generator], Row]


class PerRow:
    """A function (row, rng) -> row, marked as one."""

    def __init__(self, function: RowFunction) -> None:
        self.function = function

    def __call__(self, row: Row, rng: np.random.Generator) -> Row:
        """Treat one row."""
        return self.function(row, rng)


def per_row(function: RowFunction) -> PerRow:
    """Mark a function as a transform of single rows.

    >>> @per_row
    ... def drop_some(row, rng):
    ...     row["input_ids"][rng.random(row["input_ids"].shape) < 0.1] = 0
    ...     return row
    >>> isinstance(drop_some, PerRow)
    True
    """
    return PerRow(function)


def transform_rows(transforms: list[PerRow], columns: Row, key: tuple[int, int], first: int) -> None:
    """Apply row transforms to columns of shape (rows, length), in place.

    `key` is the seed and the epoch, `first` the place of the first row in its epoch.
    """
    seed, epoch = key
    for number in range(len(columns["input_ids"])):
        row = {name: column[number] for name, column in columns.items()}
        for place, transform in enumerate(transforms):
            words = np.array([seed & (2**64 - 1), 0x726F77], np.uint64)
            rng = np.random.Generator(np.random.Philox(key=words, counter=[0, place, epoch, first + number]))
            _write_back(row, transform(row, rng))


def _write_back(row: Row, changed: Row) -> None:
    if not isinstance(changed, dict) or set(changed) != set(row):
        raise LoaderError(f"a row transform must return a row with the fields {', '.join(row)}")
    for name, values in changed.items():
        if np.shape(values) != row[name].shape:
            raise LoaderError(f"a row transform changed {name!r} from {row[name].shape} to {np.shape(values)}")
        row[name][...] = values
