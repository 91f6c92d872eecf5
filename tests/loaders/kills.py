"""Kills the processes of live training, again and again, lets them finish, and counts what was lost or came twice."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from feeds.redis_server import RedisServer, free_port
from loaders.killed import FLUSH_EVERY, PHASES, Plan, make_rollouts, read, train
from millstream.admission import JournalReader
from millstream.loaders.runs import JOURNAL
from millstream.loaders.runs.checkpoint import SIDECARS

VICTIMS = ("trainer", "engine", "everybody")
LONGEST_S = 120.0
"""What takes longer than this hangs."""

_context = multiprocessing.get_context("forkserver")  # many processes, each begun in milliseconds, without our threads
_context.set_forkserver_preload(["loaders.killed", "millstream.loaders.rollout", "millstream.feeds.redis_feed"])


def plan_over(transport: str, folder: Path, server: RedisServer) -> Plan:
    """The same work over a spool, Redis or HTTP."""
    if transport == "redis":
        return Plan(server.url("kills"), folder)
    if transport == "http":
        feed, source = {"directory": os.fspath(folder / "spool"), "token": "secret"}, {"token": "secret"}
        return Plan(f"http://127.0.0.1:{free_port()}", folder, feed, source)
    return Plan(os.fspath(folder / "spool"), folder)


@dataclass
class Outcome:
    """What live training came to in spite of everything."""

    kills: Counter[str] = field(default_factory=Counter)
    """By victim."""
    phases: Counter[str] = field(default_factory=Counter)
    """What the trainer was doing when it was killed."""
    groups: int = 0
    lost: list[str] = field(default_factory=list)
    """Rollouts that were trained on less often than there are passes."""
    twice: list[str] = field(default_factory=list)
    """Rollouts that were trained on more often."""
    repeated: int = 0
    """Rollouts that engines put again, and that were recognised."""
    journaled: bool = False
    """Whether the journal says of each rollout batch what was trained on."""
    left: list[str] = field(default_factory=list)
    """Files of rollouts that nobody needs any more and that are still there."""

    @property
    def exact(self) -> bool:
        return not self.lost and not self.twice and self.journaled and not self.left


class Siege:
    """Live training, and somebody who kills."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan, self.outcome = plan, Outcome()
        self._chance = random.Random(seed)
        plan.folder.mkdir(parents=True, exist_ok=True)
        plan.phase.write_bytes(b"\0")
        self._trainer = self._started(train)
        self._engines = [self._started(make_rollouts, number) for number in range(plan.engines)]

    def run(self, kills: int) -> Outcome:
        """Kill so often, then let everybody finish."""
        try:
            for number in range(kills):
                self._wait(at_once=number == 0)
                self._kill(VICTIMS[number % len(VICTIMS)])
            self._finish()
        finally:
            for process in (self._trainer, *self._engines):
                process.kill()
                process.join()
        return judge(self.plan, self.outcome)

    def _started(self, work: Any, *arguments: Any) -> BaseProcess:
        process = _context.Process(target=work, args=(self.plan, *arguments), daemon=True)
        process.start()
        return process

    def _kill(self, victim: str) -> None:
        engine = self._chance.randrange(self.plan.engines)
        if victim != "trainer":
            self._end(self._engines[engine])
        if victim != "engine":
            self.outcome.phases[self._phase if self.plan.checkpoint.exists() else "first steps"] += 1
            self._end(self._trainer)
        self.outcome.kills[victim] += 1
        if victim == "everybody":
            time.sleep(self._chance.uniform(0, 0.02))
        if victim != "engine":
            self._trainer = self._started(train)
        if victim != "trainer":
            self._engines[engine] = self._started(make_rollouts, engine)

    def _wait(self, *, at_once: bool) -> None:
        """Wait for a moment of any phase: those that last long would hide the others."""
        phase = "training" if at_once else self._chance.choice(PHASES[:-1])
        deadline = time.monotonic() + self._chance.uniform(0.1, 0.5)
        while self._phase != phase and time.monotonic() < deadline:
            time.sleep(0.0002)
        time.sleep(self._chance.choice([0, 0.0005, 0.002, 0.02]))

    @property
    def _phase(self) -> str:
        return PHASES[self.plan.phase.read_bytes()[0]]

    def _end(self, process: BaseProcess) -> None:
        assert process.exitcode is None, f"it ended by itself, with {process.exitcode}"
        process.kill()
        process.join()

    def _finish(self) -> None:
        """Decide how many groups there are, more than any engine has begun, and wait for the end."""
        deadline = time.monotonic() + LONGEST_S
        while not all(self.plan.flushed(number).exists() for number in range(self.plan.engines)):
            assert time.monotonic() < deadline, "an engine does nothing"
            time.sleep(0.01)
        for process in self._engines:
            self._end(process)
        flushed = [read(self.plan.flushed(number), 0) for number in range(self.plan.engines)]
        self.outcome.groups = max(flushed) + 2 * FLUSH_EVERY
        self.plan.groups.write_text(str(self.outcome.groups))
        self._engines = [self._started(make_rollouts, number) for number in range(self.plan.engines)]
        for process in (*self._engines, self._trainer):
            process.join(max(0, deadline - time.monotonic()))
            assert process.exitcode == 0, f"{process.name}: {process.exitcode}"


def judge(plan: Plan, outcome: Outcome) -> Outcome:
    """Compare the last checkpoint with what was put in, and with the journal."""
    saved = read(plan.checkpoint, {})
    seen = Counter(name for _, name in saved["trained"])
    names = [f"{group}/{member}" for group in range(outcome.groups) for member in range(plan.group_size)]
    assert seen.keys() <= set(names)
    outcome.lost = [name for name in names if seen[name] < plan.passes]
    outcome.twice = [name for name in names if seen[name] > plan.passes]
    outcome.repeated = saved["losses"].get("repeated", 0)
    journaled = [
        [entry.step, name]
        for entry in JournalReader(plan.cache_dir / JOURNAL)
        for group in entry.groups
        for (name, _), _ in group.names
        for _ in range(plan.passes)
    ]
    outcome.journaled = sorted(saved["trained"]) == sorted(journaled)
    current = saved["state"]["sidecar"]["file"]
    kept = [*(plan.cache_dir / SIDECARS).iterdir(), *plan.folder.glob("spool/*/*.rollouts")]
    outcome.left = [path.name for path in kept if path.name != current]
    return outcome
