"""The processes of live training, to be killed at any moment: engines that make rollouts, and a trainer.

Each goes on where it knows that it was. An engine puts again what it is not sure of; the trainer stands at the last
checkpoint that it wrote, committed or not. A phase file says what the trainer is doing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream import RolloutDataLoader, TrainingBatch
from millstream.feeds import Gather, open_feed, open_source
from millstream.storage import disk

PHASES = ("opening", "training", "state", "checkpoint", "commit", "done")
FLUSH_EVERY = 3
"""Groups."""


@dataclass(frozen=True)
class Plan:
    """Live training as it is meant to go: engines share the work on each group."""

    where: str
    """What both ends open."""
    folder: Path
    """For everything that outlives a process."""
    feed: dict[str, Any] = field(default_factory=dict)
    """Settings of the trainer's end."""
    source: dict[str, Any] = field(default_factory=dict)
    """Settings of an engine's end."""
    engines: int = 2
    group_size: int = 4
    groups_per_batch: int = 3
    batch_size: int = 5
    passes: int = 2
    checkpoint_every: int = 4
    """Steps."""
    pause_s: float = 0.004
    """Between two groups of an engine."""

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.json"

    @property
    def phase(self) -> Path:
        return self.folder / "phase"

    @property
    def groups(self) -> Path:
        """Says how many groups there are, once that is decided."""
        return self.folder / "groups.json"

    def flushed(self, engine: int) -> Path:
        """Says how many groups are surely flushed."""
        return self.folder / f"flushed-{engine}.json"

    @property
    def cache_dir(self) -> Path:
        return self.folder / "cache"


def rollout_of(group: int, member: int) -> dict[str, Any]:
    """A rollout whose content follows from its name."""
    length = 1 + (group + member) % 5
    return {
        "rollout_id": f"{group}/{member}",
        "group_id": group,
        "token_ids": [group % 1000, *range(1, length + 1)],
        "loss_mask": [False] + [True] * length,
        "reward": float(member % 2),
        "finish": "stop",
    }


def write(path: Path, value: Any) -> None:
    """Write beside and rename, as trainers do."""
    disk.publish(path, json.dumps(value).encode())


def read(path: Path, otherwise: Any) -> Any:
    return json.loads(path.read_text()) if path.exists() else otherwise


def make_rollouts(plan: Plan, engine: int) -> None:
    """Put this engine's members of all groups, in order, until somebody says how many groups there are."""
    gather = Gather(most_bytes=1500, most_rollouts=5, seconds=0.02)
    source = open_source(plan.where, producer=f"engine-{engine}", gather=gather, **plan.source)
    group = read(plan.flushed(engine), 0)
    while group < read(plan.groups, group + 1):
        for member in range(engine, plan.group_size, plan.engines):
            source.put(rollout_of(group, member))
        group += 1
        if group % FLUSH_EVERY == 0:
            source.flush()
            write(plan.flushed(engine), group)
        time.sleep(plan.pause_s)
    source.close()


def opened(plan: Plan) -> Any:
    """The trainer's loader."""
    live = {"groups_per_batch": plan.groups_per_batch, "group_size": plan.group_size, "passes": plan.passes}
    return RolloutDataLoader(
        open_feed(plan.where, **plan.feed),
        live={**live, "timeout_s": 60},
        batch_size=plan.batch_size,
        framework="numpy",
        cache_dir=plan.cache_dir,
    )


def train(plan: Plan) -> None:
    """Train until the feed ends. A checkpoint lists what was trained on: (rollout batch, rollout)."""
    with _phases(plan) as enter:
        enter("opening")
        with opened(plan) as loader:
            saved = read(plan.checkpoint, {"trained": []})
            trained = saved["trained"]
            if "state" in saved:
                loader.load_state_dict(saved["state"])

            def save() -> dict[str, Any]:
                enter("state")
                state: dict[str, Any] = loader.state_dict()
                enter("checkpoint")
                write(plan.checkpoint, {"state": state, "trained": trained, "losses": loader.losses})
                return state

            def commit(state: dict[str, Any] | None) -> None:
                if state is not None:
                    enter("commit")
                    loader.commit(state)

            state = None
            enter("training")
            for batch in loader:
                trained += trained_on(batch)
                commit(state)  # a step later: checkpoints are written in the background
                state = save() if (batch.metadata["step"] + 1) % plan.checkpoint_every == 0 else None
                enter("training")
            commit(save())
        enter("done")


def trained_on(batch: TrainingBatch) -> list[list[Any]]:
    """What a checkpoint says of a step."""
    return [[batch.metadata["rollout_batch"], name] for name in batch.metadata["rollout_id"]]


@contextmanager
def _phases(plan: Plan) -> Iterator[Callable[[str], int]]:
    fd = os.open(plan.phase, os.O_RDWR | os.O_CREAT)
    try:
        yield lambda name: os.pwrite(fd, bytes([PHASES.index(name)]), 0)
    finally:
        os.close(fd)
