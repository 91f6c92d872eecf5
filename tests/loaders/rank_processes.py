"""Ranks of a self-play run as processes of their own, launched as torchrun does it; each leaves a trail of its rows."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from millstream.batches import SelfPlayBatch
from millstream.errors import MillstreamError
from millstream.storage import disk, lock
from selfplay.growing_games import live, rows_of

LONGEST_S = 30.0
"""What takes longer than this hangs."""
Rows = list[list[Any]]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["loaders.rank_processes"])


@dataclass
class Ranks:
    """A run of several ranks.

    Args:
        folder: The games.
        run: What the ranks share.
        trails: Where they write down what they did.
        number: How many there are.
        batch_size: Rows of a step, of each rank.
        save_at: The step at which all save a state.
    """

    folder: Path
    run: Path
    trails: Path
    number: int
    batch_size: int
    save_at: int = 10
    processes: dict[int, BaseProcess] = field(default_factory=dict)

    def start(self, *ranks: int) -> None:
        self.trails.mkdir(exist_ok=True)
        for rank in ranks:
            where = self.folder, self.run, self.trails
            arguments = *where, self.batch_size, self.save_at, {"RANK": str(rank), "WORLD_SIZE": str(self.number)}
            self.processes[rank] = _context.Process(target=_train, args=arguments, daemon=True)
            self.processes[rank].start()

    def made(self, rank: int) -> int:
        """How many steps a rank has made."""
        return self._trail(rank).count("\n")

    def _trail(self, rank: int) -> str:
        trail = self.trails / f"{rank}.jsonl"
        return trail.read_text() if trail.exists() else ""

    def rows(self) -> Rows:
        """The rows of all ranks together, as far as all have come, in the order of the run."""
        trails = [self._trail(rank).split("\n")[:-1] for rank in range(self.number)]
        return [row for step in zip(*trails, strict=False) for line in step for row in json.loads(line)]

    def state(self, rank: int) -> dict[str, Any]:
        """What a rank saved."""
        return dict(json.loads((self.trails / f"{rank}.state").read_text()))

    def error(self, rank: int) -> str:
        """What a rank ended with."""
        return (self.trails / f"{rank}.error").read_text()

    def wait_for(self, what: Callable[[], bool]) -> None:
        """Wait until something is so, while all ranks work."""
        deadline = time.monotonic() + LONGEST_S
        while not what():
            ended = [rank for rank, process in self.processes.items() if process.exitcode is not None]
            assert not ended, f"ended: {ended}"
            assert time.monotonic() < deadline, {rank: self.made(rank) for rank in self.processes}
            time.sleep(0.01)

    def wait_for_steps(self, more: int) -> None:
        """Wait until every rank has made so many more."""
        wanted = max(map(self.made, self.processes)) + more
        self.wait_for(lambda: all(self.made(rank) >= wanted for rank in self.processes))

    def kill(self, *ranks: int) -> None:
        for rank in ranks:
            self.processes[rank].kill()
            self.processes.pop(rank).join()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill(*self.processes)


def facts_of(batch: SelfPlayBatch) -> Rows:
    """Each row: its game, its ply, the use, and a hash of its tensors."""
    return [[*facts, hashlib.blake2b(data, digest_size=8).hexdigest()] for *facts, data in rows_of(batch)]


def _train(folder: Path, run: Path, trails: Path, batch_size: int, save_at: int, launched: dict[str, str]) -> None:
    """One rank: trains until it is killed, or cannot."""
    os.environ.update(launched)
    lock.GONE_S = 0.6
    mine = trails / launched["RANK"]
    try:
        with live(folder, run, batch_size=batch_size) as loader, mine.with_suffix(".jsonl").open("w") as trail:
            while True:
                trail.write(json.dumps(facts_of(loader.next())) + "\n")
                trail.flush()
                if loader.step == save_at:
                    disk.publish(mine.with_suffix(".state"), json.dumps(loader.state_dict()).encode())
                time.sleep(0.01)  # a trainer has more to do
    except MillstreamError as error:
        mine.with_suffix(".error").write_text(str(error))
