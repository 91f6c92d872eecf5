"""SelfPlayRun: steps over games. It knows where the trainer stands and moves it on.

The parts are in `selfplay/`: its stages (`graph.py`), its states (`state.py`), its last steps (`delivered_state.py`).
Ranks without a common `cache_dir` look for files by themselves; `SameFilesCheck` compares what they found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from millstream.errors import LoaderError
from millstream.loaders import Agreement, LoaderSettings
from millstream.loaders.runs.run import Locks
from millstream.loaders.runs.self_play_explain import EnteredGames, checked_step, steps_of
from millstream.selfplay import (
    EVER,
    KIND,
    START,
    AdmissionPolicies,
    DeliveredState,
    EpochLength,
    GraphMaker,
    RankRole,
    RecentSteps,
    Replay,
    RunFiles,
    SelfPlayGraph,
    SelfPlayTask,
    SourceHistory,
    States,
    StepRows,
    StepSnapshot,
    Takeover,
    WindowEntry,
    nothing_to_train_on,
)
from millstream.selfplay.chunk_feed import ReservoirMoves, Shuffled, Tensors, joined
from millstream.stages import ForkLock, HomeProcess, defer_sigint

NOT_FULL = "last batch not full"
CATCH_UP = 256
"""Steps after which the window behind the trainer catches up: what lies before is let go of."""


class SelfPlayRun:
    """A step of a run over games, and everything that is needed to go on from there."""

    kind = KIND
    steps_back: ClassVar[bool] = False
    is_known = True

    def __init__(self, task: SelfPlayTask, settings: LoaderSettings, *, replay: Path | None = None) -> None:
        self.task, self.settings = task, settings
        alone = settings.world_size == 1 or replay is not None
        led = not alone and settings.cache_dir is not None
        if task.watch and not alone and not led:
            raise LoaderError(
                "ranks that watch a folder each for itself would not see the same games",
                hint="pass cache_dir=, a folder that all ranks share: there the first one says what enters",
            )
        facts = {"seed": settings.seed, **task.facts}
        self._replay = None if replay is None else Replay(replay, facts, settings.cache_dir)
        part = RankRole(settings.rank, settings.world_size, led, settings.batch_size)
        self.files = RunFiles(settings.cache_dir, facts, part)
        self._entrances = AdmissionPolicies(self.files.journal, watch=task.watch, follows=led and settings.rank > 0)
        self._states = States(task, settings.seed, self._entrances)
        self._history = SourceHistory(task.path, watch=task.watch)
        self._committed: dict[str, Any] | None = None
        self.closed = False
        self._recent = RecentSteps()
        self._stages = GraphMaker(
            task,
            settings.seed,
            self._recent,
            self._history,
            self._replay,
            lambda: self.closed,
            shared=settings.world_size > 1,
        )
        self.locks = Locks(ForkLock(delays_fork=True, in_child=self._in_child))
        self._takeover = Takeover(led=led)
        self._length = EpochLength(task, settings.batch_size * settings.world_size, drop_last=settings.drop_last)
        self._found = SameFilesCheck(settings.rank, settings.world_size)
        self.graph: SelfPlayGraph | None = None
        """The stages, while they are at work."""
        self.changed: Callable[[], None] = lambda: None
        """Ends the stages: they work for the place where the run stands, which is about to change."""
        self.forked: Callable[[], None] = lambda: None
        """Called in a forked child: what is at work is at work elsewhere."""
        self.step = 0
        self._begin_epoch(0)

    # Where it stands

    def _begin_epoch(self, epoch: int) -> None:
        self.epoch, self.epoch_rows = epoch, 0
        self.skip = 0
        """Rows of all ranks before the place where the run stands, which the stages give once more."""
        self._recent.begin(DeliveredState(self.task.window(self.settings.seed, epoch), self.task.shuffle_frames))
        self._at_first = self._recent.settled_losses
        self._entrance = self._entrances.first(epoch)
        self._history.move_to(epoch)
        self._takeover.reset()

    def _snapshot(self, moves: Sequence[ReservoirMoves] = (), gone: int = 0) -> StepSnapshot:
        """Where the trainer stands, before a step that does this."""
        return StepSnapshot(
            self.step,
            self.epoch,
            self.epoch_rows,
            self._at_first,
            self._history.files,
            self.files.journal.position,
            self._recent.mirror,
            self._recent.draw,
            moves,
            gone,
        )

    @property
    def mirror(self) -> DeliveredState:
        """The window and the slots of the reservoir, where the trainer stands."""
        return self._recent.at(self._snapshot())

    def wait_until_known(self) -> None:
        """The epoch of the next step is always known."""

    def in_epoch(self, epoch: int) -> bool:
        """Whether the next step belongs to an epoch; a run that watches has one."""
        return self.epoch == epoch

    def check_epochs(self) -> None:
        """A pass ends; iteration over a run that watches has no end."""

    def steps_in_epoch(self) -> int:
        """Steps of the present epoch, by the headers of its files."""
        graph = self.graph if self.epoch_rows else None  # before its first batch an epoch may not have seen its files
        return self._length.batches(self.epoch, graph)

    def seek(self, step: int) -> None:
        """Stay at the present step: which positions come depends on all before."""
        if step != self.step:
            raise LoaderError(
                f"a self-play run cannot go from step {self.step} to step {step}",
                hint="load_state_dict() goes to a state, reset() to the beginning",
            )

    def fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common."""
        facts = {key: getattr(self.settings, key) for key in ("seed", "batch_size", "world_size")}
        return {"loader": self.kind, **facts, **self.task.facts, "step": self.step}

    # Steps

    def skipped(self, pieces: Sequence[Shuffled]) -> None:
        """The stages have given the rows before the place where the run stands."""
        if sum(map(len, pieces)) < self.skip:
            raise self._history.other_files()
        with self.locks.moving, defer_sigint():
            mirror = self._recent.mirror
            mirror.follow([piece.moves for piece in pieces])
            self._recent.begin(mirror)
            self.skip = 0

    def check_files(self) -> None:
        """Compare the files of the epoch with those of the other ranks, where each looks for itself."""
        self._found.check(self.epoch, self._history.found)

    def last(self, tensors: Tensors | None) -> Tensors | None:
        """What becomes of rows that do not fill a step: an epoch ends."""
        if self._replay is not None and self.task.watch:
            raise self._replay.ended()
        if tensors is not None and self.settings.drop_last:
            self._recent.count(NOT_FULL, len(tensors.origins))
            return None
        return tensors

    def delivered(self, tensors: Tensors) -> None:
        """Move on by one step: its batch is the trainer's. If its rows cannot be written down, nothing changes."""
        self.files.remember(self.step, StepRows(tensors.origins, tensors.batch_size, self.epoch))
        moves = joined(tensors.moves)
        gone = sum([len(move.slots) for move in moves]) - len(tensors.origins)
        self._recent.deliver(self._snapshot(moves, gone))
        self.files.journal.catch_up(self._recent.draw)
        self.step += 1
        self.epoch_rows += len(tensors.origins)
        if self.step % CATCH_UP == 0:
            self._catch_up()

    def end_epoch(self) -> None:
        """An epoch is over: the next one begins."""
        if not self.epoch_rows:
            losses, step_rows = self.losses, self.settings.batch_size * self.settings.world_size
            raise nothing_to_train_on(self.task.path, losses, losses.get(NOT_FULL, 0), step_rows)
        self._length.end_epoch(self.graph)
        self.changed()
        self.files.journal.catch_up(EVER)
        self._begin_epoch(self.epoch + 1)

    @property
    def losses(self) -> dict[str, int]:
        """What was left out so far, by reason; by the stages that are at work, also ahead of the trainer."""
        return self._recent.losses

    # The past

    def rows(self, step: int) -> list[tuple[EnteredGames, np.void]]:
        """The game, ply and use of each row of this rank's batch at a step that was made."""
        with self.locks.moving:
            rows = self.files.rows_of(checked_step(step))
            return EnteredGames(self.entries_at(rows.epoch), self.task.path).rows(rows, self.settings.rank)

    def steps_of(self, document: Any, source: str | None) -> list[int]:
        """Name the steps of the present epoch that a game was in, on any rank."""
        with self.locks.moving:
            return steps_of(document, source, self)

    def entries_at(self, epoch: int) -> list[WindowEntry]:
        """Every source that entered in an epoch."""
        self._take_over()
        known = self.files.folder is not None
        return self.files.journal.entries(epoch) if known else self._history.at(epoch)

    # Stages

    def graph_from_here(self) -> SelfPlayGraph:
        """Stages that begin where the trainer stands."""
        self._take_over()
        with defer_sigint():  # half open, they would stay locked
            self.files.open(self.step)
        return self._stages.begin(self.files, self.epoch, self._entrance, self._takeover.lost)

    def what_for(self) -> str:
        """Say what is waited for."""
        return self._stages.what_for(self.files, self._entrance, self.graph)

    def _catch_up(self) -> None:
        """Let go of what only lies before the steps that are kept."""
        gone, graph = self._recent.catch_up(), self.graph
        if graph is not None and graph.chunk_set.weights is not None:
            for entry in gone:
                graph.chunk_set.weights.forget(entry)
        self._history.forget(None if self.files.rows is None else self.files.rows.oldest_chunk)

    def interrupted(self) -> None:
        """The stages end. If the run stays, others begin where it stands, and do again what these did ahead."""
        self._takeover.after_failure(self.files.journal)

    def ended(self) -> None:
        """The stages have ended, and with them an epoch, or the run."""
        if self.closed:
            self._recent.forget_ahead(keep_files=True)
        else:
            self._recent.end_stages()

    def forget_ahead(self) -> None:
        """Count only what lies behind the trainer: the stages begin there once more."""
        self._recent.forget_ahead()

    def _in_child(self) -> None:
        """In a forked child: the other process has the stages, and writes the files; this one remembers in memory."""
        for each in (self._recent, self._history, self._stages):
            each.unlock()
        self.forget_ahead()
        journal = None if self.files.folder is None else self.files.journal
        self._takeover.after_fork(journal, at_work=self.graph is not None)
        self.graph = None
        self.forked()
        self.files = self.files.for_child()

    def _take_over(self) -> None:
        """In a forked child, and where stages have failed: begin where the others stood."""
        if self._takeover.is_due:
            self._recent.begin(self.mirror)
        taken = self._takeover.entrance(self._recent.mirror, self._history, self._entrances, self.epoch)
        self._entrance = taken or self._entrance

    def close(self) -> None:
        """Stop everything, for good."""
        self.closed = True
        self.changed()
        self.files.close()

    # State

    def restart(self) -> None:
        """Stand at the very beginning; a run that watches, at the last state that was committed or loaded."""
        if self._committed is not None and self.task.watch:
            self.resume(self._committed)
            return
        self.changed()
        self._recent.forget()
        self.files.move_to(START)
        self.step = 0
        self._begin_epoch(0)

    def state(self, step: int) -> dict[str, Any]:
        """Describe where the run stands, or stood before one of the last steps. With a folder, a file in it that the
        state names holds the window."""
        snapshot = self._snapshot() if step == self.step else self._recent[step]
        if self.files.folder is not None:
            self._catch_up()
            self.files.open(self.step)  # what lies there may be another run's
        return self._states.write(snapshot, self._recent, self.files)

    def resume(self, state: Mapping[str, Any]) -> None:
        """Stand where a state was saved, or change nothing."""
        saved = self._states.read(state, self.files)
        kept = saved.kept
        self.changed()
        self._recent.forget(saved.losses)
        self.files.move_to(START if kept is None else kept.journal)
        self._begin_epoch(saved.epoch)
        self.step, self.epoch_rows = saved.step, saved.epoch_rows
        if kept is None:
            self.skip = saved.epoch_rows
            self._history.move_to(saved.epoch, saved.files)
        else:
            self._entrance = kept.entrance
            self._recent.begin(kept.mirror)
            self.files.loaded(state)
        self._committed = dict(state)

    def commit(self, state: Mapping[str, Any]) -> None:
        """Let go of what lies before a state."""
        self._states.check(state)
        self.files.release(state)
        self._committed = dict(state)


class SameFilesCheck:
    """Compares what each rank has found, at the first batch of every epoch, if it is one of torch.distributed."""

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank, self._world_size = rank, world_size
        self._epoch, self._agreement, self._process = -1, Agreement(rank, world_size), HomeProcess()

    def check(self, epoch: int, found: str | None) -> None:
        """Compare, unless that was done in this epoch, or the first rank has said what there is: `found` is None."""
        if found is None or self._process.left:  # a forked child is none of the ranks
            return
        if epoch != self._epoch:
            self._epoch, self._agreement = epoch, Agreement(self._rank, self._world_size)
        self._agreement.check(lambda: {"epoch": epoch, "files": found})
