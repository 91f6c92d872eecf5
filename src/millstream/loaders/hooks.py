"""The user's own code in a loader: transforms change batches or rows, callbacks hear of batches and epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from millstream.errors import LoaderError

BatchT = TypeVar("BatchT")

Row = dict[str, npt.NDArray[Any]]
RowFunction = Callable[[Row, np.random.Generator], Row]
EVENTS = ("on_epoch_start", "on_epoch_end", "on_batch", "on_error")


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
    """Write what a transform made of a row into the batch; without a length in what it returns, the length stays."""
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


class Callbacks:
    """Tells the user's objects what happens; costs nothing when there are none."""

    def __init__(self, listeners: Sequence[object]) -> None:
        self._calls: dict[str, list[Callable[[Any], None]]] = {
            event: [getattr(listener, event) for listener in listeners if hasattr(listener, event)] for event in EVENTS
        }
        for listener in listeners:
            if not any(hasattr(listener, event) for event in EVENTS):
                raise LoaderError(
                    f"callbacks: {listener!r} listens to nothing", hint=f"give it one of {', '.join(EVENTS)}"
                )
        self.any = bool(listeners)
        self._epoch: int | None = None

    def delivered(self, epoch: int, batch: object) -> None:
        """A batch is about to be handed over."""
        if epoch != self._epoch:
            self.epoch_ended(self._epoch)
            self._epoch = epoch
            self._tell("on_epoch_start", epoch)
        self._tell("on_batch", batch)

    def epoch_ended(self, epoch: int | None) -> None:
        """The last batch of an epoch was handed over."""
        if self._epoch is not None and epoch == self._epoch:
            self._epoch = None
            self._tell("on_epoch_end", epoch)

    def on_seek(self) -> None:
        """The run stands elsewhere: no epoch ended, and one begins, or continues, with the next batch."""
        self._epoch = None

    def error(self, error: BaseException) -> None:
        """Something failed; the error is raised after this."""
        self._tell("on_error", error)

    def _tell(self, event: str, value: Any) -> None:
        for call in self._calls[event]:
            call(value)
