"""SelfPlayBatch: planes, policy and values of some positions, in the tensors of one framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from millstream.errors import BatchError
from millstream.tensors import backend, framework_for

TENSORS = ("planes", "policy", "values")
VALUES = ("result", "best", "played", "orig", "root", "st")
"""Rows of `values`: the game's outcome, the search's best move, the played move, the network before the search, the
search as a whole, and the average of the next moves. Their columns are q, d and the plies that are left."""


class SelfPlayBatch:
    """Positions that are ready to train on.

    >>> batch = SelfPlayBatch(*(np.zeros((2, *shape), np.float32) for shape in ((112, 8, 8), (1858,), (6, 3))))
    >>> batch["planes"].shape, batch.metadata["rows"], batch.wdl("best").tolist()
    ((2, 112, 8, 8), 2, [[0.5, 0.0, 0.5], [0.5, 0.0, 0.5]])

    Args:
        planes: What the network sees: (rows, 112, 8, 8).
        policy: The share of visits of each move, -1 for illegal ones: (rows, 1858).
        values: Six estimates of the outcome (`VALUES`), each as q, d and plies left: (rows, 6, 3). NaN where the engine
            did not know it (`orig`) or there is none (the plies left of `st`); 0 where an older frame lacks it.
        framework: Of the tensors.
        metadata: `epoch`, `step`, `rows`, and of each row its `chunk` (the game's number), `ply` and `use`.
    """

    __slots__ = ("framework", "metadata", "planes", "policy", "values")
    unit: ClassVar[int] = 1
    """Rows that stay together."""

    def __init__(
        self, planes: Any, policy: Any, values: Any, *, framework: str = "numpy", metadata: dict[str, Any] | None = None
    ) -> None:
        rows = int(planes.shape[0])
        if policy.shape[0] != rows or values.shape[0] != rows:
            raise BatchError(
                f"planes have {rows} rows, policy {policy.shape[0]} and values {values.shape[0]}",
                hint="pass a row of each for every position",
            )
        self.planes, self.policy, self.values, self.framework = planes, policy, values, framework
        self.metadata = {"epoch": 0, "step": 0, "rows": rows, **(metadata or {})}

    def __getitem__(self, name: str) -> Any:
        if name not in TENSORS:
            raise KeyError(name)
        return getattr(self, name)

    def keys(self) -> Iterator[str]:
        """The names of its tensors."""
        return iter(TENSORS)

    def __len__(self) -> int:
        return int(self.metadata["rows"])

    def __repr__(self) -> str:
        place = ", ".join(f"{key}={self.metadata[key]}" for key in ("epoch", "step", "rows"))
        return f"SelfPlayBatch({self.framework}, {place}{', released' if self.planes is None else ''})"

    def wdl(self, source: str = "result") -> Any:
        """One of the values as the probabilities to win, draw and lose: (rows, 3).

        NaN stays NaN. What an older frame lacks has q and d of 0, which looks like an even game: 0.5, 0, 0.5.

        >>> from millstream.loaders.self_play.loader import example_loader
        >>> with example_loader() as loader:
        ...     loader.next().wdl().sum(1).round(3).tolist()[:2]
        [1.0, 1.0]
        """
        if source not in VALUES:
            raise BatchError(f"there is no value {source!r}", hint=f"use one of {', '.join(VALUES)}")
        values = self._numpy("values")[:, VALUES.index(source)]
        q, d = values[:, 0], values[:, 1]
        return backend(self.framework).from_numpy(np.stack([(1 - d + q) / 2, d, (1 - d - q) / 2], axis=1))

    def copy(self) -> SelfPlayBatch:
        """Copy everything into memory of its own, so that the loader may reuse its buffer."""
        make = backend(self.framework).from_numpy
        return self._with(lambda name: make(self._numpy(name).copy()), self.framework)

    def split(self, parts: int) -> list[SelfPlayBatch]:
        """Cut the rows into `parts` neighbouring batches that differ by at most one row; tensors are views."""
        if parts < 1:
            raise BatchError(f"a batch is split into at least 1 part, not {parts}", hint="pass parts=1 or more")
        bounds = [part * (len(self) // parts) + min(part, len(self) % parts) for part in range(parts + 1)]
        return [self.rows_between(start, stop) for start, stop in pairwise(bounds)]

    @classmethod
    def merge(cls, batches: Iterable[SelfPlayBatch]) -> SelfPlayBatch:
        """Put the rows of several batches into one, in memory of its own.

        >>> from millstream.loaders.self_play.loader import example_loader
        >>> with example_loader() as loader:
        ...     batch = loader.next()
        >>> merged = SelfPlayBatch.merge(batch.split(3))
        >>> len(merged), bool((merged.planes == batch.planes).all())
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
        first, make = parts[0], backend(parts[0].framework).from_numpy
        merged = first._with(lambda name: make(np.concatenate([each._numpy(name) for each in parts])), first.framework)
        columns = [key for key, each in first.metadata.items() if isinstance(each, np.ndarray)]
        merged.metadata |= {key: np.concatenate([each.metadata[key] for each in parts]) for key in columns}
        merged.metadata["rows"] = sum(map(len, parts))
        return merged

    def _real_lengths(self) -> npt.NDArray[np.int32]:
        """What a row costs: every position as much as the others."""
        return np.ones(len(self), np.int32)

    def rows_between(self, start: int, stop: int) -> SelfPlayBatch:
        """Give the rows [start, stop); tensors are views."""
        part = self._with(lambda name: self._tensor(name)[start:stop], self.framework)
        columns = {key: each[start:stop] for key, each in self.metadata.items() if isinstance(each, np.ndarray)}
        part.metadata.update(columns, rows=stop - start)
        return part

    def to(self, target: Any) -> SelfPlayBatch:
        """Convert to another framework ("numpy", "torch", "jax", "mlx"), or move to a device ("cuda:0").

        A device or a sharding may also be an object of its framework, as `torch.device` and jax's `NamedSharding` are.
        """
        framework = framework_for(target) or self.framework
        if framework != self.framework:
            make = backend(framework).from_numpy
            moved = self._with(lambda name: make(self._numpy(name)), framework)
            return moved if target == framework else moved.to(target)
        if target == framework:
            return self
        move = backend(framework).to_device
        return self._with(lambda name: move(self._tensor(name), target), framework)

    def release(self) -> None:
        """Let go of the tensors; the buffer returns to the pool when no other tensor looks at it."""
        self.planes = self.policy = self.values = None

    def _with(self, field: Callable[[str], Any], framework: str) -> SelfPlayBatch:
        tensors = [field(name) for name in TENSORS]
        return SelfPlayBatch(*tensors, framework=framework, metadata=dict(self.metadata))

    def _numpy(self, name: str) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = backend(self.framework).to_numpy(self._tensor(name))
        return array

    def _tensor(self, name: str) -> Any:
        tensor = getattr(self, name)
        if tensor is None:
            raise BatchError("this batch was released", hint="use it before release(), or keep a batch.copy() of it")
        return tensor
