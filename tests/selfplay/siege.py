"""Self-play training over a folder that somebody fills and empties, killed again and again, and what became of it.

A trainer writes a checkpoint every few steps and leaves a trail of what it trained on, one file for each of its lives.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.batches import SelfPlayBatch
from millstream.games import ORIGIN
from millstream.loaders import SelfPlayDataLoader
from millstream.selfplay import DeliveredState, LostUse, RunFiles, Window
from millstream.selfplay.events import Loss, LostSlots
from millstream.selfplay.journal import RunJournal, read_losses
from millstream.storage import disk
from selfplay.growing_games import LENGTHS, add, live

STOCK = 12
"""Archives that differ; those that come are links to them."""
FIRST = 8
"""Archives that are there when training begins: more than the window holds."""
HEAD = np.dtype([("step", "<u8"), ("digest", "V16"), ("rows", "<u8"), ("lost", "<u8")])
LONGEST_S = 60.0
"""What takes longer than this hangs."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["selfplay.siege"])


@dataclass(frozen=True)
class Plan:
    """Training as it is meant to go."""

    folder: Path
    num_chunks: int = 40
    batch_size: int = 16
    shuffle_frames: int = 64
    commit_every: int = 25
    """Steps."""
    pause_s: float = 0.03
    """Between two archives."""
    early: float = 0.0
    """How likely it is that an archive is deleted that has just entered the window."""
    threads: int = 2

    @property
    def games(self) -> Path:
        return self.folder / "games"

    @property
    def cache_dir(self) -> Path:
        return self.folder / "run"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.json"

    @property
    def needed(self) -> Path:
        """Says which archive is the oldest that the last checkpoint needs: those before it are deleted."""
        return self.folder / "needed"

    @property
    def over(self) -> Path:
        """When this is there, the trainer ends at its next checkpoint."""
        return self.folder / "over"

    def name(self, number: int) -> Path:
        return self.games / f"training-{number:06d}.tar"

    def stock(self, number: int) -> Path:
        return self.folder / "stock" / f"training-{number % STOCK:04d}.tar"

    def open(self, **keywords: Any) -> SelfPlayDataLoader:
        sizes = {"num_chunks": self.num_chunks, "shuffle_frames": self.shuffle_frames, "batch_size": self.batch_size}
        return live(self.games, self.cache_dir, **{**sizes, "threads": self.threads, **keywords})


def prepare(plan: Plan) -> None:
    """Fill the stock, and put the first archives into the folder."""
    plan.games.mkdir(parents=True)
    (plan.folder / "stock").mkdir()
    for number in range(STOCK):
        add(plan.folder / "stock", number)
    for number in range(FIRST):
        os.link(plan.stock(number), plan.name(number))


def keep_coming(plan: Plan) -> None:
    """A process: archives come, and old ones are deleted."""
    chance, number, oldest = random.Random(1), FIRST, 0
    while not plan.over.exists():
        os.link(plan.stock(number), plan.name(number))
        if chance.random() < plan.early:
            plan.name(number - 3).unlink(missing_ok=True)
        for old in range(oldest, needed := int(plan.needed.read_text() if plan.needed.exists() else 0)):
            plan.name(old).unlink(missing_ok=True)
        number, oldest = number + 1, needed
        time.sleep(plan.pause_s)


def train(plan: Plan, life: int) -> None:
    """A process: goes on at the last checkpoint, and says what it trained on."""
    noted = _count_losses()
    with plan.open() as run, (plan.folder / f"trail-{life:05d}.bin").open("ab", buffering=0) as trail:
        if plan.checkpoint.exists():
            run.load_state_dict(json.loads(plan.checkpoint.read_bytes()))
        else:
            disk.publish(plan.checkpoint, json.dumps(run.state_dict()).encode())
        while True:
            step = run.step
            trail.write(record(step, run.next(), len(noted)))
            if run.step % plan.commit_every == 0:
                over = plan.over.exists()
                state = run.state_dict()
                disk.publish(plan.checkpoint, json.dumps(state).encode())
                run.commit(state)
                oldest = run._run.mirror.entries[0].name
                disk.publish(plan.needed, str(number_of(oldest)).encode())
                (plan.folder / f"memory-{life:05d}.txt").open("a").write(f"{resident()}\n")
                if over:
                    return


def number_of(name: str) -> int:
    """The number of an archive."""
    return int(Path(name).stem.rpartition("-")[2])


def _count_losses() -> list[Loss]:
    """Everything that this process says to be lost."""
    noted, note = list[Loss](), RunJournal.note

    def heard(journal: RunJournal, loss: Loss, epoch: int) -> None:
        noted.append(loss)
        note(journal, loss, epoch)

    setattr(RunJournal, "note", heard)  # noqa: B010 - in this process only
    return noted


def record(step: int, batch: SelfPlayBatch, lost: int = 0) -> bytes:
    """What is written of a step: a hash of all that was in the batch, where its rows are from, and how much was said
    to be lost before."""
    origins = np.zeros(len(batch), ORIGIN)
    digest = hashlib.blake2b(digest_size=16)
    for name in ("planes", "policy", "values"):
        digest.update(batch[name].tobytes())
    for key in ("chunk", "ply", "use"):
        origins[key] = batch.metadata[key]
    return np.array([(step, digest.digest(), len(origins), lost)], HEAD).tobytes() + origins.tobytes()


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass
class Outcome:
    """What the training came to."""

    kills: int = 0
    steps: int = 0
    made_again: int = 0
    """Steps that were made more than once."""
    changed: list[int] = field(default_factory=list)
    """Steps that were not made again as they were, though nothing was said to be lost."""
    shifted: int = 0
    """Steps that are others since something was lost, which was said."""
    missing: list[int] = field(default_factory=list)
    """Steps that are in no trail."""
    twice: int = 0
    """Positions that came twice in one use of their game."""
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Uses of games of which positions never came, and neither wait in the reservoir nor were said to be lost."""
    passed_over: list[int] = field(default_factory=list)
    """Games whose uses have a gap."""
    said_lost: int = 0
    """Uses of games, and what waited of files, that was said to be lost."""
    left: list[str] = field(default_factory=list)
    """Files that nobody needs."""
    memory: list[list[int]] = field(default_factory=list)
    """Bytes of each life, at each checkpoint."""

    @property
    def exact(self) -> bool:
        return not (self.changed or self.missing or self.twice or self.lost or self.passed_over or self.left)


class Siege:
    """Training, and somebody who kills."""

    def __init__(self, plan: Plan, seed: int = 0) -> None:
        self.plan, self.outcome, self._chance = plan, Outcome(), random.Random(seed)
        prepare(plan)
        self._life = 0
        self._keeper = _started(keep_coming, plan)
        self._trainer = _started(train, plan, 0)

    def run(self, longest_s: float, go_on: Callable[[Outcome], bool]) -> Outcome:
        """Kill after at most so long, as often as is asked for, then let the trainer finish."""
        try:
            while go_on(self.outcome):
                self._wait_for_steps()
                time.sleep(self._chance.uniform(0, longest_s))
                assert self._trainer.exitcode is None, f"it ended by itself, with {self._trainer.exitcode}"
                self._trainer.kill()
                self._trainer.join()
                self.outcome.kills += 1
                self._life += 1
                self._trainer = _started(train, self.plan, self._life)
            self._wait_for_steps()
            self.plan.over.touch()
            for process in (self._trainer, self._keeper):
                process.join(LONGEST_S)
                assert process.exitcode == 0, f"{process.name}: {process.exitcode}"
        finally:
            for process in (self._trainer, self._keeper):
                process.kill()
                process.join()
        return self.outcome

    def _wait_for_steps(self) -> None:
        """Now and then a life is shorter than its first step."""
        trail, deadline = self.plan.folder / f"trail-{self._life:05d}.bin", time.monotonic() + LONGEST_S
        patient = self._life == 0 or self._chance.random() < 0.8
        while patient and not (trail.exists() and trail.stat().st_size) and self._trainer.exitcode is None:
            assert time.monotonic() < deadline, "the trainer does nothing"
            time.sleep(0.005)


def _started(work: Callable[..., None], *arguments: Any) -> BaseProcess:
    process = _context.Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


@dataclass(frozen=True)
class Made:
    """A step of a life."""

    digest: bytes
    origins: npt.NDArray[np.void]
    lost: int
    """What this life had said to be lost by then."""

    def equals(self, other: Made) -> bool:
        return self.digest == other.digest and np.array_equal(self.origins, other.origins)


Trail = dict[int, Made]


def read_trail(path: Path) -> Trail:
    """The steps of a life, but for one that was being written."""
    return read_steps(path.read_bytes())


def read_steps(data: bytes) -> Trail:
    """The steps that were recorded."""
    offset, steps = 0, Trail()
    while offset + HEAD.itemsize <= len(data):
        head = np.frombuffer(data, HEAD, 1, offset)[0]
        offset += HEAD.itemsize
        size = int(head["rows"]) * ORIGIN.itemsize
        if offset + size <= len(data):
            origins = np.frombuffer(data[offset : offset + size], ORIGIN)
            steps[int(head["step"])] = Made(bytes(head["digest"]), origins, int(head["lost"]))
        offset += size
    return steps


def judge(plan: Plan, outcome: Outcome) -> Trail:
    """Compare the lives with each other and with the last checkpoint; gives the steps as they stand."""
    state, history = json.loads(plan.checkpoint.read_bytes()), Trail()
    for path in sorted(plan.folder.glob("trail-*.bin")):
        for step, made in read_trail(path).items():
            if step in history:
                outcome.made_again += 1
                if not history[step].equals(made):
                    outcome.shifted += made.lost > 0
                    outcome.changed += [] if made.lost else [step]
            history[step] = made
    outcome.steps = state["step"]
    outcome.missing = [step for step in range(outcome.steps) if step not in history]
    _judge_games(plan, state, [history[step].origins for step in range(outcome.steps) if step in history], outcome)
    expected = {"admissions.jsonl", "rows.bin", "rows.idx", f"sidecars/{state['sidecar']['file']}"}
    found = {path.relative_to(plan.cache_dir).as_posix() for path in plan.cache_dir.rglob("*") if path.is_file()}
    outcome.left = sorted(name for name in found ^ expected if not name.startswith("indices/"))
    for path in sorted(plan.folder.glob("memory-*.txt")):
        outcome.memory.append([int(line) for line in path.read_text().split()])
    return history


def _judge_games(plan: Plan, state: dict[str, Any], delivered: list[npt.NDArray[np.void]], outcome: Outcome) -> None:
    """Each use of a game gives each of its positions once; those of the last ones may still be in the reservoir."""
    mirror = DeliveredState(Window(plan.num_chunks, 0), plan.shuffle_frames)
    mirror.load(*RunFiles(plan.cache_dir).load(state))
    rows = np.concatenate([*delivered, mirror.origins])
    uses, counts = np.unique(rows[["chunk", "use"]], return_counts=True)
    outcome.twice = len(rows) - len(np.unique(rows))
    losses = read_losses(plan.cache_dir / "admissions.jsonl", 0)
    outcome.said_lost = len(losses)
    said = {(loss.game, loss.use): loss.came for loss in losses if isinstance(loss, LostUse)}
    waited = {game for loss in losses if isinstance(loss, LostSlots) for game in range(loss.first, loss.stop)}
    place, used = mirror.place, defaultdict[int, set[int]](set)
    for chunk, use in said:
        used[chunk].add(use)
    for (chunk, use), count in zip(uses.tolist(), counts.tolist(), strict=True):
        used[chunk].add(use)
        expected = said.get((chunk, use), LENGTHS[chunk % len(LENGTHS)])
        if place is not None and (place.chunk, place.use) == (chunk, use):
            expected = place.used
        if count > expected or (count < expected and chunk not in waited):
            outcome.lost.append((chunk, use))
    gaps = [chunk for chunk, found in used.items() if sorted(found) != list(range(len(found)))]
    outcome.passed_over = [chunk for chunk in gaps if chunk not in waited]


def replayed(plan: Plan, steps: int) -> Trail:
    """The first steps once more, from the journal alone, over all the files that ever were."""
    journal = plan.cache_dir / "admissions.jsonl"
    last = max(json.loads(line)["enter"] for line in journal.read_text().splitlines() if '"enter"' in line)
    for number in range(number_of(last) + 1):
        if not plan.name(number).exists():
            os.link(plan.stock(number), plan.name(number))
    found = Trail()
    with plan.open(cache_dir=plan.folder / "again", replay=journal, threads=3) as run:
        for step in range(steps):
            found |= read_steps(record(step, run.next()))
    return found


def differences(first: Trail, second: Trail) -> list[int]:
    """Steps of both that are not the same."""
    both = sorted(first.keys() & second.keys())
    return [step for step in both if not first[step].equals(second[step])]
