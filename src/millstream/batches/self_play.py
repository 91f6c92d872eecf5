"""SelfPlayBatch: planes, policy and values of some positions, in the tensors of one framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.batches.mapped import MovableBatch, no_name
from millstream.errors import BatchError
from millstream.tensors import backend, framework_of

TENSORS = ("planes", "policy", "values")
VALUES = ("result", "best", "played", "orig", "root", "st")
"""Rows of `values`: the game's outcome, the search's best move, the played move, the network before the search, the
search as a whole, and the average of the next moves. Their columns are q, d and the plies that are left."""


class SelfPlayBatch(MovableBatch):
    """Positions that are ready to train on. Its length is the number of its rows.

    >>> batch = SelfPlayBatch(*(np.zeros((2, *shape), np.float32) for shape in ((112, 8, 8), (1858,), (6, 3))))
    >>> batch["planes"].shape, batch.metadata["rows"], batch.wdl("best").tolist()
    ((2, 112, 8, 8), 2, [[0.5, 0.0, 0.5], [0.5, 0.0, 0.5]])

    Args:
        planes: What the network sees: (rows, 112, 8, 8).
        policy: The share of visits of each move, -1 for illegal ones: (rows, 1858).
        values: Six estimates of the outcome (`VALUES`), each as q, d and plies left: (rows, 6, 3). NaN where the engine
            did not know it (`orig`) or there is none (the plies left of `st`); 0 where an older frame lacks it.
        framework: Of the tensors; by default that of `planes`.
        metadata: `epoch`, `step`, `rows`, and of each row its `chunk` (the game's number), `ply` and `use`.
    """

    __slots__ = ("framework", "metadata", "planes", "policy", "values")
    unit = 1
    """Rows that stay together."""

    def __init__(
        self,
        planes: Any,
        policy: Any,
        values: Any,
        *,
        framework: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        rows = int(planes.shape[0])
        if policy.shape[0] != rows or values.shape[0] != rows:
            raise BatchError(
                f"planes have {rows} rows, policy {policy.shape[0]} and values {values.shape[0]}",
                hint="pass a row of each for every position",
            )
        self.planes, self.policy, self.values = planes, policy, values
        self.framework = framework or framework_of(planes) or "numpy"
        self.metadata = {"epoch": 0, "step": 0, "rows": rows, **(metadata or {})}

    def __copy__(self) -> SelfPlayBatch:
        return self._with(lambda name: getattr(self, name), self.framework)

    def __reduce__(self) -> tuple[Any, ...]:
        whole = self.copy()  # of a view, torch would pickle everything that it is a view of
        return _unpickled, (*(getattr(whole, name) for name in TENSORS), whole.framework, whole.metadata)

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str):
            raise no_name(name, "planes")
        if name not in TENSORS:
            raise KeyError(name)
        return getattr(self, name)

    def keys(self) -> Iterator[str]:
        """The names of its tensors."""
        return iter(TENSORS)

    def __len__(self) -> int:
        return self._rows

    def _first(self) -> Any:
        return self._tensor("planes")

    @property
    def _rows(self) -> int:
        return int(self.metadata["rows"])

    def __repr__(self) -> str:
        place = ", ".join(f"{key}={self.metadata[key]}" for key in ("epoch", "step", "rows"))
        return f"SelfPlayBatch({self.framework}, {place}{', released' if self.planes is None else ''})"

    def wdl(self, source: str = "result") -> Any:
        """One of the values as the probabilities to win, draw and lose: (rows, 3).

        NaN stays NaN. What an older frame lacks has q and d of 0, which looks like an even game: 0.5, 0, 0.5.

        >>> from millstream.loaders import example_self_play
        >>> with example_self_play() as loader:
        ...     loader.next().wdl().sum(1).round(3).tolist()[:2]
        [1.0, 1.0]
        """
        if source not in VALUES:
            raise BatchError(f"there is no value {source!r}", hint=f"use one of {', '.join(VALUES)}")
        values = self._numpy("values")[:, VALUES.index(source)]
        q, d = values[:, 0], values[:, 1]
        return self._beside(np.stack([(1 - d + q) / 2, d, (1 - d - q) / 2], axis=1))

    @classmethod
    def merge(cls, batches: Iterable[SelfPlayBatch]) -> SelfPlayBatch:
        """Put the rows of several batches into one, in memory of its own.

        >>> from millstream.loaders import example_self_play
        >>> with example_self_play() as loader:
        ...     batch = loader.next()
        >>> merged = SelfPlayBatch.merge(batch.split(3))
        >>> merged.metadata["rows"], bool((merged.planes == batch.planes).all())
        (8, True)
        """
        parts = list(batches)
        if not parts:
            raise BatchError("there are no batches to merge", hint="merge at least one")
        kinds = {(part.framework, *(part._numpy(name).shape[1:] for name in TENSORS)) for part in parts}
        if len(kinds) != 1 or len({frozenset(part.metadata) for part in parts}) != 1:
            found = sorted(map(str, kinds))
            raise BatchError(
                f"batches to merge differ in framework or tensors: {found}", hint="merge those of one loader"
            )
        first = parts[0]
        merged = first._with(lambda name: _joined(name, parts), first.framework)
        columns = [key for key, each in first.metadata.items() if isinstance(each, np.ndarray)]
        merged.metadata |= {key: np.concatenate([each.metadata[key] for each in parts]) for key in columns}
        merged.metadata["rows"] = sum(part._rows for part in parts)
        return merged

    def _real_lengths(self) -> npt.NDArray[np.int32]:
        """What a row costs: every position as much as the others."""
        return np.ones(self._rows, np.int32)

    def rows_between(self, start: int, stop: int) -> SelfPlayBatch:
        """Give the rows [start, stop); tensors are views."""
        part = self._with(lambda name: self._tensor(name)[start:stop], self.framework)
        columns = {key: each[start:stop] for key, each in self.metadata.items() if isinstance(each, np.ndarray)}
        part.metadata.update(columns, rows=stop - start)
        return part

    def release(self) -> None:
        """Let go of the tensors; the buffer returns to the pool when no other tensor looks at it."""
        self.planes = self.policy = self.values = None

    def _with(self, field: Callable[[str], Any], framework: str) -> SelfPlayBatch:
        tensors = [field(name) for name in TENSORS]
        return SelfPlayBatch(*tensors, framework=framework, metadata=dict(self.metadata))


def _joined(name: str, parts: list[SelfPlayBatch]) -> Any:
    tensor = parts[0]._beside(np.concatenate([each._numpy(name) for each in parts]))
    return backend(parts[0].framework).to_device(tensor, None, parts[0]._tensor(name).dtype)


def _unpickled(planes: Any, policy: Any, values: Any, framework: str, metadata: dict[str, Any]) -> SelfPlayBatch:
    return SelfPlayBatch(planes, policy, values, framework=framework, metadata=metadata)
