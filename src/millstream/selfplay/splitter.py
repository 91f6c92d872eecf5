"""Splitter: sources of games -> training and validation data, or any other parts; the assignment never changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.errors import LoaderError
from millstream.games import ChunkSource
from millstream.selfplay.chunk_feed import Sourced
from millstream.stages import MapStage, Queue, Stage
from millstream.storage import hash_stretches, xxh64


def part_of_each(name: str, numbers: npt.ArrayLike, weights: Mapping[str, float]) -> npt.NDArray[np.intp]:
    """Which of the parts each chunk of a file belongs to, by the name of the file and the place of the chunk alone.

    A changed weight moves as few chunks as can be: the parts share a line between them, each chunk is a point on it.

    >>> part_of_each("a.tar", range(12), {"train": 3, "validation": 1}).tolist()
    [0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 0]
    """
    places = np.ascontiguousarray(numbers, np.uint64)
    seed = xxh64(np.frombuffer(name.encode(errors="surrogateescape"), np.uint8))
    points = np.full(len(places), seed, np.uint64)
    hash_stretches(places.view(np.uint8), 8 * np.arange(1, len(places) + 1), points)
    total = sum(weights.values())
    ends = [min(int(part / total * 2**64), 2**64 - 1) for part in accumulate(weights.values())][:-1]
    return np.searchsorted(np.array(ends, np.uint64), points, side="right")


class Splitter(MapStage[Sourced, Any]):
    """Deals the chunks of each source to its outputs: each output gets a source of its chunks, if there are any.

    Whatever else it is told goes to all outputs. A chunk goes to the same output on every machine, in every run.

    >>> queue = Queue()
    >>> splitter = Splitter(queue, weights={"train": 9, "validation": 1})
    >>> splitter.output("train"), splitter.output("validation")
    (the queue, the queue)

    Args:
        input: Sources, as from `ChunkSourceFeed`.
        weights: The outputs, and how much each gets.
        settings: As for every stage.
    """

    takes = gives = ChunkSource
    loses_nothing = True

    def __init__(
        self, input: Queue[Sourced] | Stage[Sourced], *, weights: Mapping[str, float], **settings: Any
    ) -> None:
        if not weights or not all(0 < weight < float("inf") for weight in weights.values()):
            raise LoaderError(f"weights={dict(weights)} split nothing", hint="name each output, with a weight above 0")
        self.outputs = tuple(weights)
        self._weights, self._dealt = dict(weights), dict.fromkeys(weights, 0)
        super().__init__(input, **settings)

    def process(self, item: Sourced) -> Iterable[tuple[str, Sourced]]:
        """The output for each part of a source, or all outputs for anything else."""
        if not isinstance(item, ChunkSource):
            return [(output, item) for output in self.outputs]
        parts = part_of_each(item.name, item.numbers, self._weights)
        chosen = {output: np.flatnonzero(parts == part) for part, output in enumerate(self.outputs)}
        return [(output, item.select(indices)) for output, indices in chosen.items() if len(indices)]

    def send(self, items: Iterable[tuple[str, Sourced]]) -> None:
        """Put each item into the output that it is meant for."""
        for output, item in items:
            if isinstance(item, ChunkSource):
                self._dealt[output] += len(item)
            self._put(output, (item,))

    def gauges(self) -> dict[str, float]:
        """How many games each output was given."""
        return {f"chunks_{output}": count for output, count in self._dealt.items()}
