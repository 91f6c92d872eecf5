"""What users do to rows and batches on their way out, without breaking the laws.

A transform of a batch is a function batch -> batch. A transform of a row, marked with `per_row`, is a function
(row, rng) -> row: its random generator is keyed by the seed and the row's place in the run, so the same row is
treated the same way on any number of ranks, threads and batch sizes, and after a resume.

A row holds `input_ids`, `labels`, `length` (one number: its real tokens, before the padding) and, where documents are
kept apart, `position_ids`. How much padding a row has may depend on its batch, so what is done to a row must not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.errors import LoaderError
from millstream.loaders.loader import BatchT

Row = dict[str, npt.NDArray[Any]]
RowFunction = Callable[[Row, np.random.Generator], Row]


class PerRow:
    """A function (row, rng) -> row, marked as one."""

    def __init__(self, function: RowFunction, *, relabels: bool = False) -> None:
        self.function = function
        self.relabels = relabels
        """Whether it changes which tokens are learned: what is counted of those beforehand would be wrong."""

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


def transform_rows(
    transforms: list[PerRow],
    columns: Row,
    key: tuple[int, int],
    first: int,
    *,
    grouped: bool = False,
) -> None:
    """Apply row transforms to columns of shape (rows, length), in place.

    `key` is the seed and the epoch, `first` the place of the first row in its epoch; rows that are `grouped` share it.
    """
    seed, epoch = key
    for number in range(len(columns["input_ids"])):
        row = {name: column[number] for name, column in columns.items() if name != "length"}
        row["length"] = columns["length"][number : number + 1]
        in_epoch, in_group = (first, number) if grouped else (first + number, 0)
        for place, transform in enumerate(transforms):
            words = np.array([seed & (2**64 - 1), 0x726F77], np.uint64)
            counter = [0, place + (in_group << 32), epoch, in_epoch]
            rng = np.random.Generator(np.random.Philox(key=words, counter=counter))
            _put_back(transform(row, rng), row)


def _put_back(changed: object, row: Row) -> None:
    """Write what a transform made of a row into the batch; who says nothing of its length leaves it as it is."""
    if not isinstance(changed, dict) or {*changed, "length"} != set(row):
        found = ", ".join(map(str, changed)) if isinstance(changed, dict) else type(changed).__name__
        raise LoaderError(
            f"a row transform must return a row with the fields {', '.join(row)}, not {found or 'nothing'}",
            hint="change the row's arrays in place and return the row",
        )
    for name, values in changed.items():
        array = np.asarray(values)
        if array.shape != row[name].shape or array.dtype.kind not in "iu":
            raise LoaderError(
                f"a row transform changed {name!r} from {row[name].shape} integers to {array.shape} of {array.dtype}",
                hint="rows keep their length and type: pad or cut inside the transform, and round what is no integer",
            )
        row[name][...] = array


def transform_batch(transform: Callable[[BatchT], BatchT], batch: BatchT) -> BatchT:
    """Apply a transform of a whole batch."""
    changed = transform(batch)
    if not isinstance(changed, type(batch)):
        raise LoaderError(
            f"a batch transform must return a {type(batch).__name__}, not {type(changed).__name__}",
            hint="change the batch and return it; mark a transform of single rows with `per_row`",
        )
    return changed
