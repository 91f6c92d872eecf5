"""What is known of a self-play run while it goes on: losses, stages, times and memory."""

from __future__ import annotations

from typing import Any

from millstream.batches.engine import Counters
from millstream.loaders.self_play.run import SelfPlayRun
from millstream.stats import Profile

_NOTHING: dict[str, Any] = {"seconds": 0.0, "window_s": 0.0, "stages": {}, "queues": {}}
"""What stages do that are not at work."""
_TIMES = ("busy_s", "input_wait_s", "output_wait_s")


class SelfPlayNumbers:
    """The numbers of a loader, which has a run and a profile."""

    _run: SelfPlayRun
    _profile: Profile

    @property
    def losses(self) -> dict[str, int]:
        """What was left out so far, by reason."""
        return self._run.losses

    def statistics(self) -> dict[str, Any]:
        """What each stage does: busy share, rates, drops, the window; see the guide on pipelines."""
        graph = self._run.graph
        return _NOTHING if graph is None else graph.pipeline.statistics()

    def counters(self) -> dict[str, Any]:
        """What went through each stage since it began, also when it has ended.

        `serve_metrics` of `millstream.stages` shows it to others.
        """
        return self._run.counters()

    def enable_profiling(self) -> None:
        """Start measuring from here."""
        self._profile.start(Counters())

    def get_profiling_results(self) -> dict[str, Any]:
        """Say how fast batches were delivered, which stage waited for which, and who holds which memory."""
        results = self._profile.results(Counters())
        stages = self._run.counters()["stages"]
        results["waits"] |= {name: {key: each[key] for key in _TIMES} for name, each in stages.items()}
        results["memory"] = {"batches": self._run.budget.used_bytes, **self._run.memory}
        results["losses"] = self.losses
        return results
