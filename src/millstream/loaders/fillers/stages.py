"""StageFiller: steps of a self-play run. Its stages begin where the trainer stands, work ahead of it, and end when it
goes elsewhere; stages that fail end, too, and the next step begins others in the same place.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

from millstream.batches import Counters, closed_error
from millstream.loaders.runs import SelfPlayRun
from millstream.selfplay import SelfPlayGraph, TensorPrefetch
from millstream.selfplay.chunk_feed import Tensors
from millstream.stages import Budget, defer_sigint

_NOTHING: dict[str, Any] = {"seconds": 0.0, "window_s": 0.0, "stages": {}, "queues": {}}
"""What stages do that are not at work."""


class StageFiller:
    """Keeps stages at work, and tensors made of what they give."""

    def __init__(self, run: SelfPlayRun) -> None:
        self._run, self._settings, self._locks = run, run.settings, run.locks
        self._step_rows = run.settings.batch_size * run.settings.world_size
        self.budget = self._new_budget()
        self._depth = run.settings.prefetch or 2
        self._switch = threading.RLock()
        self._ahead: TensorPrefetch | None = None
        self._ended: dict[str, Any] = {"seconds": 0.0, "stages": {}, "queues": {}}
        run.changed, run.forked = self.stop, self._leave_behind

    def _new_budget(self) -> Budget:
        most = self._settings.memory_budget
        return Budget() if most is None else Budget(most)

    def _leave_behind(self) -> None:
        """In a forked child: another process has the threads."""
        self._ahead = None
        self._switch, self.budget = threading.RLock(), self._new_budget()

    # Steps

    def take(self, batch_size: int) -> Tensors | None:
        """Wait for the tensors of the next step; None where an epoch ends. This runs for every batch: keep it lean."""
        run, rows = self._run, self._step_rows
        if batch_size != self._settings.batch_size:
            rows = batch_size * self._settings.world_size
        ahead = self._ahead or self._start()
        if run.skip:
            run.skipped(ahead.skip(run.skip))
        tensors = ahead.next(batch_size)
        if tensors is None or len(tensors.origins) != rows:
            tensors = run.last(tensors)
        run.check_files()
        return tensors

    def _start(self) -> TensorPrefetch:
        """Begin stages, if there are none; a `close` meanwhile either finds them or is noticed here."""
        with self._locks.moving, self._switch:
            run = self._run
            if run.closed:
                raise closed_error()
            if self._ahead is None:
                graph = run.graph_from_here()
                with defer_sigint():  # stages of a start that was given up would write into the journal
                    run.graph = graph
                    graph.pipeline.start()
                    self._ahead = self._ahead_of(graph)
            return self._ahead

    def _ahead_of(self, graph: SelfPlayGraph) -> TensorPrefetch:
        return TensorPrefetch(
            partial(graph.pipeline.get, warn=False),
            rank=self._settings.rank,
            world_size=self._settings.world_size,
            depth=self._depth,
            budget=self.budget,
            output=graph.output,
            what_for=self._run.what_for,
        )

    def taken(self, filled: Tensors) -> None:
        """Move on by one step, whole: Ctrl-C waits for that."""
        ahead = self._ahead
        if ahead is None:  # closed meanwhile
            raise closed_error()
        with defer_sigint():
            self._run.delivered(filled)
            ahead.taken()

    def give_back(self, error: BaseException, filled: Tensors | None, step: int) -> None:
        """The tensors stay the next ones; stages that have failed end, and so do those that still gave old rows."""
        graph = self._run.graph
        if graph is None or self._run.closed:
            return
        if graph.pipeline.error is not None or self._ahead is None or self._run.skip:
            with defer_sigint():
                self._halt()
                self._run.forget_ahead()

    def prefetch(self, batches: int) -> None:
        """Make so many batches ahead."""
        with self._locks.moving:
            self._depth = batches
            if (ahead := self._ahead) is not None:
                ahead.depth = batches

    def stop(self) -> None:
        """End the stages: the run goes elsewhere."""
        if self._halt():
            self._run.ended()

    def _halt(self) -> bool:
        """End the stages; gives whether there were any."""
        with self._switch:
            graph, ahead = self._run.graph, self._ahead
            if graph is not None:
                self._run.interrupted()
            self._run.graph = self._ahead = None
        if graph is not None:
            graph.pipeline.close()
            self._ended = graph.pipeline.counters()
        if ahead is not None:
            ahead.close()
        return graph is not None

    def close(self) -> None:
        """End the stages for good; a consumer that waits gets ClosedError."""
        self._run.closed = True
        self.stop()

    # Numbers

    @property
    def counters(self) -> Counters:
        """Nothing: each stage counts for itself."""
        return Counters()

    def stage_counters(self) -> dict[str, Any]:
        """What went through each stage since it began; of stages that have ended, until then."""
        graph = self._run.graph
        return self._ended if graph is None else graph.pipeline.counters()

    def statistics(self) -> dict[str, Any]:
        """How fast each stage goes."""
        graph = self._run.graph
        return _NOTHING if graph is None else graph.pipeline.statistics()

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of batches, of the window, of the reservoir and of kept positions."""
        graph = self._run.graph
        return {"batches": self.budget.used_bytes, **({} if graph is None else graph.memory())}

    @property
    def ready(self) -> None:
        """How many batches are ready is not counted."""
        return

    @property
    def figures(self) -> dict[str, Any]:
        """Nothing more: stages have figures of their own."""
        return {}
