"""The life of a run's stages: they begin where the trainer stands, go ahead of it, and end when it goes elsewhere."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from millstream._core import Budget
from millstream.batches.engine import closed_error
from millstream.loaders.self_play.ahead import Ahead
from millstream.loaders.self_play.task import SelfPlayGraph
from millstream.loaders.settings import LoaderSettings
from millstream.stages.lifetime import defer_sigint


class RunStages:
    """Stages, and the batches that are made of what they give.

    Args:
        settings: Of the loader.
        make: Makes the stages, for the place where the trainer stands.
        what_for: Says what is waited for.
    """

    def __init__(
        self, settings: LoaderSettings, make: Callable[[], SelfPlayGraph], what_for: Callable[[], str]
    ) -> None:
        self._settings, self._make, self._what_for = settings, make, what_for
        self.budget = self._new_budget()
        self._depth = settings.prefetch or 2
        self._switch = threading.RLock()
        self.graph: SelfPlayGraph | None = None
        self.ahead: Ahead | None = None
        self._ended: dict[str, Any] = {"seconds": 0.0, "stages": {}, "queues": {}}
        self.closed = False

    def _new_budget(self) -> Budget:
        most = self._settings.memory_budget
        return Budget() if most is None else Budget(most)

    def leave_behind(self) -> bool:
        """In a forked child: what is at work is at work elsewhere. Gives whether something was."""
        at_work = self.graph is not None
        self.graph = self.ahead = None
        self._switch, self.budget = threading.RLock(), self._new_budget()
        return at_work

    def started(self) -> Ahead:
        """The batches, of stages that are begun if there are none."""
        with self._switch:
            if self.closed:
                raise closed_error()
            if self.ahead is None:
                graph = self._make()
                with defer_sigint():  # stages of a start that was given up would write into the journal
                    self.graph = graph
                    graph.pipeline.start()
                    self.ahead = self._ahead_of(graph)
            return self.ahead

    def _ahead_of(self, graph: SelfPlayGraph) -> Ahead:
        return Ahead(
            partial(graph.pipeline.get, warn=False),
            rank=self._settings.rank,
            world_size=self._settings.world_size,
            depth=self._depth,
            budget=self.budget,
            output=graph.output,
            what_for=self._what_for,
        )

    def prefetch(self, batches: int) -> None:
        """Make so many batches ahead."""
        self._depth = batches
        if (ahead := self.ahead) is not None:
            ahead.depth = batches

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of the window, of the reservoir and of kept positions."""
        graph = self.graph
        return {} if graph is None else graph.memory()

    def counters(self) -> dict[str, Any]:
        """What went through each stage since it began; of stages that have ended, until then."""
        graph = self.graph
        return self._ended if graph is None else graph.pipeline.counters()

    def halt(self) -> Counter[str]:
        """End them; gives what they have left out."""
        with self._switch:
            graph, ahead = self.graph, self.ahead
            self.graph = self.ahead = None
        dropped = Counter[str]() if graph is None else graph.drops()
        if graph is not None:
            graph.pipeline.close()
            self._ended = graph.pipeline.counters()
        if ahead is not None:
            ahead.close()
        return dropped

    def close(self) -> Counter[str]:
        """End them for good; gives what they have left out."""
        self.closed = True
        return self.halt()
