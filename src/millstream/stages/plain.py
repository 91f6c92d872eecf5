"""The two plainest stages: items that are there already, and a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from millstream.stages.map_stage import In, MapStage
from millstream.stages.queue import Queue
from millstream.stages.source_stage import SourceStage
from millstream.stages.stage import Out, Stage


class IterableStage(SourceStage[Out]):
    """Gives the items of an iterable.

    >>> stage = IterableStage("abc")
    >>> stage.start()
    >>> list(stage.output())
    ['a', 'b', 'c']
    """

    def __init__(self, items: Iterable[Out], **settings: Any) -> None:
        super().__init__(**settings)
        self._items = items

    def produce(self) -> Iterator[Out]:
        """One after the other."""
        return iter(self._items)


class FunctionStage(MapStage[In, Out]):
    """Gives what a function makes of each item: any number of items."""

    def __init__(
        self, source: Queue[In] | Stage[In], *, function: Callable[[In], Iterable[Out]], **settings: Any
    ) -> None:
        super().__init__(source, **settings)
        self._function = function

    def process(self, item: In) -> Iterable[Out]:
        """Call the function."""
        return self._function(item)
