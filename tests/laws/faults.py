"""A trainer in a process of its own, to be killed at any moment: what it trained on, and where it resumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from laws import Work, chat_kinds, live_kinds, mixed_kinds, stream_kinds, token_kinds
from laws.case import Case, Kind, Team, digest
from laws.raw_files import small_steps
from millstream.storage import disk
from scripts import load_millstream

load_millstream()  # so that trainers, which are forked, have it
KINDS: list[Kind] = [
    *token_kinds.KINDS,
    *stream_kinds.KINDS,
    *chat_kinds.KINDS,
    *mixed_kinds.KINDS,
    *live_kinds.KINDS,
]
WORK = Work(threads=2, prefetch=3, world_size=1)
STEPS = 12


def case_of(name: str) -> Case:
    """The case that a kind is tried on."""
    data = next(kind for kind in KINDS if kind.name == name).example()
    return Case(data, WORK, min(data.step_rows), 0)


def train(name: str, folder: Path) -> None:
    """Train some steps, with a checkpoint after each; writes down a digest of each step before it is saved."""
    checkpoint, trail = folder / "checkpoint.json", folder / "trail.jsonl"
    saved: Any = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"state": None, "rows": 0}
    with small_steps(), Team(case_of(name), folder / "run") as run, trail.open("a") as written:
        (loader,) = run.loaders
        if saved["state"] is not None:
            run.load(saved["state"], saved["rows"])
        while loader.step < STEPS:
            step = loader.step
            written.write(json.dumps([step, digest(run.step())]) + "\n")
            written.flush()
            state = run.state()
            disk.publish(checkpoint, json.dumps({"state": state, "rows": run.start}).encode())
            run.commit(state)
    (folder / "done").touch()


def stream_on(folder: Path, number: int) -> None:
    """Go twice through the files of a stream whose cache others share, and write down what came."""
    with small_steps(), Team(case_of("stream"), folder / "cache") as run:
        told = digest([row for _ in range(2) for row in run.epoch()])
        parts = run.loaders[0].get_profiling_results()["parts"]["data"]
    (folder / f"done {number}").write_text(f"{told} {parts['made']} {parts['found']}")


def trail_of(folder: Path) -> list[tuple[int, str]]:
    """What was trained on: each step and its digest; a line that was cut by a kill does not count."""
    path = folder / "trail.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    found = []
    for line in lines:
        try:
            step, told = json.loads(line)
        except ValueError:
            continue
        found.append((step, told))
    return found
