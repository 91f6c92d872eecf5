"""Where a self-play run stands, and how it goes on from there."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from millstream.errors import LoaderError
from millstream.live.entrance import Entrance
from millstream.live.events import Event
from millstream.live.frame_shuffler import GONE, Moves, Shuffled, joined
from millstream.live.led import EVER, AsLed
from millstream.live.losses import Loss, Losses
from millstream.live.mirror import Mirror
from millstream.live.row_log import StepRows
from millstream.live.tensor_maker import Tensors
from millstream.live.window import Entry, Window
from millstream.loaders.runs.run import Locks
from millstream.loaders.self_play.checks import checked_step
from millstream.loaders.self_play.entered import Entered
from millstream.loaders.self_play.entrance import Entrances
from millstream.loaders.self_play.explain import Games, steps_of
from millstream.loaders.self_play.files import RunFiles
from millstream.loaders.self_play.found import FoundFiles
from millstream.loaders.self_play.hints import going_on_hint
from millstream.loaders.self_play.inheritance import Inheritance
from millstream.loaders.self_play.journal import START, Part
from millstream.loaders.self_play.length import EpochLength
from millstream.loaders.self_play.past import Past, Stood
from millstream.loaders.self_play.replay import Replay
from millstream.loaders.self_play.reread import Reread
from millstream.loaders.self_play.task import Begin, SelfPlayGraph, SelfPlayTask
from millstream.loaders.self_play.waiting import nothing_to_train_on, what_is_there
from millstream.loaders.settings import LoaderSettings
from millstream.order.shuffle import source_key
from millstream.stages.lifetime import ForkLock, defer_sigint
from millstream.stats.ledger import Ledger, read_counts
from millstream.storage import Position
from millstream.storage import state as states
from millstream.storage.state import read_count

logger = logging.getLogger("millstream.loaders")
NOT_FULL = "last batch not full"
CATCH_UP = 256
"""Steps after which the window behind the trainer catches up: what lies before is let go of."""


class SelfPlayRun:
    """A step of a run over games, and everything that is needed to go on from there."""

    kind = "self-play"
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
        part = Part(settings.rank, settings.world_size, led, settings.batch_size)
        self.files = RunFiles(settings.cache_dir, facts, part)
        self._entrances = Entrances(self.files.journal, watch=task.watch, follows=led and settings.rank > 0)
        self._entered = Entered(task.path, watch=task.watch)
        self._committed: dict[str, Any] | None = None
        self._losses = Ledger()
        self._past = Past(self._losses)
        self._gone, self._guard = set[str](), threading.Lock()
        self.locks = Locks(ForkLock(delays_fork=True, in_child=self._leave_behind))
        self._inheritance = Inheritance(led=led)
        self._length, self._found = EpochLength(self), FoundFiles(settings.rank, settings.world_size)
        self.graph: SelfPlayGraph | None = None
        """The stages, while they are at work."""
        self.changed: Callable[[], None] = lambda: None
        """Ends the stages: they work for the place where the run stands, which is about to change."""
        self.forked: Callable[[], None] = lambda: None
        """Called in a forked child: what is at work is at work elsewhere."""
        self.closed = False
        self.step = 0
        self._begin_epoch(0)

    # Where it stands

    def _begin_epoch(self, epoch: int) -> None:
        self.epoch, self.epoch_rows = epoch, 0
        self.skip = 0
        """Rows of all ranks before the place where the run stands, which the stages give once more."""
        self._past.begin(Mirror(self._window(epoch), self.task.shuffle_frames))
        self._at_first = self._losses.counts
        self._entrance = self._entrances.first(epoch)
        self._entered.stand(epoch)
        self._inheritance.refuse()

    def _stood(self, moves: Sequence[Moves] = (), gone: int = 0) -> Stood:
        """Where the trainer stands, before a step that does this."""
        return Stood(
            self.step,
            self.epoch,
            self.epoch_rows,
            self._at_first,
            self._entered.files,
            self.files.journal.position,
            self._past.mirror,
            self._past.draw,
            moves,
            gone,
        )

    @property
    def mirror(self) -> Mirror:
        """The window and the slots of the reservoir, where the trainer stands."""
        return self._past.at(self._stood())

    def _window(self, epoch: int) -> Window:
        seed, watch = self._epoch_seed(epoch), self.task.watch
        first_use, shuffle = 0 if watch else epoch, self.task.shuffle
        return Window(self.task.num_chunks, seed, endless=watch, first_use=first_use, shuffle=shuffle)

    def _epoch_seed(self, epoch: int) -> int:
        """Passes over what does not change are orders of their own; a run that watches has one order for ever."""
        seed = self.settings.seed
        return seed if self.task.watch or not epoch else source_key(seed, f"self-play epoch {epoch}")

    def wait_until_known(self) -> None:
        """The epoch of the next step is always known."""

    def in_epoch(self, epoch: int) -> bool:
        """Whether the next step belongs to an epoch; a run that watches has one."""
        return self.epoch == epoch

    def check_epochs(self) -> None:
        """A pass ends; iteration over a run that watches has no end."""

    def steps_in_epoch(self) -> int:
        """Steps of the present epoch, by the headers of its files."""
        return self._length.batches()

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
            raise self._entered.other_files()
        with self.locks.moving, defer_sigint():
            mirror = self._past.mirror
            mirror.follow([piece.moves for piece in pieces])
            self._past.begin(mirror)
            self.skip = 0

    def check_files(self) -> None:
        """Compare the files of the epoch with those of the other ranks, where each looks for itself."""
        self._found.check(self.epoch, self._entered.found)

    def last(self, tensors: Tensors | None) -> Tensors | None:
        """What becomes of rows that do not fill a step: an epoch ends."""
        if self._replay is not None and self.task.watch:
            raise self._replay.ended()
        if tensors is not None and self.settings.drop_last:
            self._count(NOT_FULL, len(tensors.origins), None)
            return None
        return tensors

    def delivered(self, tensors: Tensors) -> None:
        """Move on by one step: its batch is the trainer's. If its rows cannot be written down, nothing changes."""
        self.files.remember(self.step, StepRows(tensors.origins, tensors.batch_size, self.epoch))
        moves = joined(tensors.moves)
        gone = sum([len(move.slots) for move in moves]) - len(tensors.origins)
        self._past.deliver(self._stood(moves, gone))
        self.files.journal.catch_up(self._past.draw)
        self.step += 1
        self.epoch_rows += len(tensors.origins)
        if self.step % CATCH_UP == 0:
            self._catch_up()

    def end_epoch(self) -> None:
        """An epoch is over: the next one begins."""
        if not self.epoch_rows:
            losses, step_rows = self.losses, self.settings.batch_size * self._ranks
            raise nothing_to_train_on(self.task.path, losses, losses.get(NOT_FULL, 0), step_rows)
        self._length.end_epoch()
        self.changed()
        self.files.journal.catch_up(EVER)
        self._begin_epoch(self.epoch + 1)

    @property
    def _ranks(self) -> int:
        return self.settings.world_size

    @property
    def losses(self) -> dict[str, int]:
        """What was left out so far, by reason; by the stages that are at work, also ahead of the trainer."""
        return dict(+self._losses.at(math.inf))

    # The past

    def rows(self, step: int) -> list[tuple[Games, np.void]]:
        """The game, ply and use of each row of this rank's batch at a step that was made."""
        with self.locks.moving:
            rows = self.files.rows_of(checked_step(step))
            return Games(self.entries_at(rows.epoch), self.task.path).rows(rows, self.settings.rank)

    def steps_of(self, document: Any, source: str | None) -> list[int]:
        """Name the steps of the present epoch that a game was in, on any rank."""
        with self.locks.moving:
            return steps_of(document, source, self)

    def entries_at(self, epoch: int) -> list[Entry]:
        """Every source that entered in an epoch."""
        self._inherit()
        known = self.files.folder is not None
        return self.files.journal.entries(epoch) if known else self._entered.at(epoch)

    # Stages

    def graph_from_here(self) -> SelfPlayGraph:
        """Stages that begin where the trainer stands."""
        self._inherit()
        with defer_sigint():  # half open, they would stay locked
            self.files.open(self.step)
        losses = Losses([*self._inheritance.lost, *(self._replay or self.files.journal).losses(self.epoch)])
        mirror, window = self._past.mirror, self._window(self.epoch)
        window.load(*mirror.window.state())
        entrance = self._entrance
        if self._replay is not None:
            entrance = self._replay.entrance(self.epoch, window.draws, watch=self.task.watch)
        place, entry = mirror.place, mirror.entry
        listeners = [mirror.note, self._enters, self._written]  # in this order: a fork may come between
        begin = Begin(
            window,
            entrance,
            last=None if place is None or entry is None else (place, entry),
            losses=losses,
            lost=self._note,
            counted=self._count,
            shared=self._ranks > 1,
            listeners=listeners,
        )
        task = replace(self.task, seed=self._epoch_seed(self.epoch))
        graph = SelfPlayGraph(task, begin, positions_seed=self.settings.seed)
        graph.pipeline.on_close(listeners.clear)  # a thread that ends late says nothing of the stages that come then
        graph.pipeline.on_close(graph.count_no_more)
        try:
            self._restore(graph, mirror, losses)
        except BaseException:
            graph.pipeline.close()
            raise
        mirror.window.acceptance = graph.chunk_set.window.acceptance
        return graph

    def what_for(self) -> str:
        """Say what is waited for."""
        led = ""
        if isinstance(self._entrance, AsLed) and self._entrance.waits:
            where = f"in {self.files.folder}, the cache_dir that all ranks must share"
            led = f"rank 0 to say which games enter; it does so {where}; "
        return led + what_is_there(self.task, self.graph, self.losses)

    def _restore(self, graph: SelfPlayGraph, mirror: Mirror, losses: Losses) -> None:
        """Read the frames of the reservoir again; those that cannot be are lost from now on."""
        if not mirror.counter:
            return
        reread = Reread(self.task, graph.changes, mirror.entries, lambda: self.closed)
        frames, lost = reread.reservoir(mirror, losses)
        for loss in lost:
            self._note(loss)
            losses.add(loss)
        graph.shuffler.restore(frames, mirror.counter)

    def _note(self, loss: Loss) -> None:
        """Say that something is lost with its file; of games, on a thread of the reader."""
        if self._replay is not None:
            raise self._replay.missing(loss.name)
        with self._guard:
            told = loss.name in self._gone
            self._gone.add(loss.name)
        if not told:
            logger.warning("%s is gone, and was still needed: what is lost with it is in the journal", loss.name)
        self.files.journal.note(loss, self.epoch)

    def _enters(self, events: Sequence[Event]) -> None:
        if self.files.folder is None:  # else the journal knows
            self._entered.note(events)

    def _written(self, events: Sequence[Event]) -> None:
        self.files.journal.write(events, self.epoch)

    def _catch_up(self) -> None:
        """Let go of what only lies before the steps that are kept."""
        mirror = self._past.mirror
        gone = mirror.catch_up()
        if mirror.place is not None:
            self._losses.settle(mirror.place.draw)
        graph = self.graph
        if graph is not None and graph.chunk_set.weights is not None:
            for entry in gone:
                graph.chunk_set.weights.forget(entry)
        self._entered.forget(None if self.files.rows is None else self.files.rows.oldest_chunk)

    def interrupted(self) -> None:
        """The stages end. If the run stays, others begin where it stands, and do again what these did ahead."""
        self._inheritance.fail(self.files.journal)

    def _count(self, reason: str, number: int, draw: int | None) -> None:
        """Count what was left out, at its draw; what has none, as files have not, at the end of the epoch."""
        self._losses.add("", reason, number, at=EVER if draw is None else draw)

    def ended(self) -> None:
        """The stages have ended, and with them an epoch, or the run."""
        if self.closed:
            self._settle_behind(files=True)
            return
        self._past.settle()
        self._losses.settle()

    def forget_ahead(self) -> None:
        """Count only what lies behind the trainer: what was left out ahead, and which files, is left out again."""
        self._settle_behind(files=False)

    def _settle_behind(self, *, files: bool) -> None:
        without_draw = self._losses.at(math.inf) - self._losses.at(EVER)
        gone = {GONE: self._past.settle()}  # the stages have counted those that lie ahead, too
        self._losses.settle(self._past.draw)
        self._losses.forget()
        for reason, number in {**(without_draw if files else {}), **gone}.items():
            if number:
                self._losses.add("", reason, number)

    def _leave_behind(self) -> None:
        """In a forked child: the other process has the stages, and writes the files; this one remembers in memory."""
        self._guard = threading.Lock()
        for each in (self._past, self._entered, self._losses):
            each.unlock()
        self.forget_ahead()
        journal = None if self.files.folder is None else self.files.journal
        self._inheritance.fall(journal, at_work=self.graph is not None)
        self.graph = None
        self.forked()
        self.files = self.files.left_behind()

    def _inherit(self) -> None:
        """In a forked child, and where stages have failed: begin where the others stood."""
        if self._inheritance.is_due:
            self._past.begin(self.mirror)
        inherited = self._inheritance.entrance(self._past.mirror, self._entered, self._entrances, self.epoch)
        self._entrance = inherited or self._entrance

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
        self._past.forget()
        self.files.stand(START)
        self._losses.restart()
        self.step = 0
        self._begin_epoch(0)

    def state(self, step: int) -> dict[str, Any]:
        """Describe where the run stands, or stood before one of the last steps. With a folder, a file in it that the
        state names holds the window."""
        stood = self._stood() if step == self.step else self._past[step]
        state = {
            **states.header(self.kind, step, self.settings.seed, self.task.facts),
            "epoch": stood.epoch,
            "epoch_rows": stood.epoch_rows,
        }
        if self.files.folder is None:
            self.files.refuse_parents()
            if self.task.watch:
                raise LoaderError(
                    "a window of games does not fit into a state, and nobody said where to keep it",
                    hint="pass cache_dir=, a folder beside the checkpoints",
                )
            return {**state, "losses": dict(stood.at_first), "files": stood.files}
        self._catch_up()
        self.files.open(self.step)  # what lies there may be another run's
        saved = self.files.save(step, stood.journal, *self._past.at(stood).state())
        return {**state, "losses": dict(self._past.losses_at(stood)), **saved}

    def check(self, state: Mapping[str, Any]) -> int:
        """Check that a state is one of a run like this; gives its step."""
        return states.check_header(state, self.kind, self.settings.seed, self.task.facts, going_on_hint)

    def resume(self, state: Mapping[str, Any]) -> None:
        """Stand where a state was saved, or change nothing."""
        step = self.check(state)
        epoch, rows = (read_count(state.get(key), key) for key in ("epoch", "epoch_rows"))
        losses = read_counts(state.get("losses"))
        kept = self._kept(state, epoch) if "sidecar" in state else None
        self.changed()
        self._past.forget()
        self._losses.restart(losses)
        self.files.stand(START if kept is None else kept[0])
        self._begin_epoch(epoch)
        self.step, self.epoch_rows = step, rows
        if kept is None:
            self.skip = rows
            self._entered.stand(epoch, state.get("files"))
        else:
            _, mirror, self._entrance = kept
            self._past.begin(mirror)
            self.files.loaded(state)
        self._committed = dict(state)

    def _kept(self, state: Mapping[str, Any], epoch: int) -> tuple[Position, Mirror, Entrance]:
        """Where the journal stood, the window and the reservoir, and what enters then."""
        mirror = Mirror(self._window(epoch), self.task.shuffle_frames)
        mirror.load(*self.files.load(state))
        position = Position.from_json(state.get("journal") or {})
        before, behind = self.files.journal.split_at(position, epoch)
        return position, mirror, self._entrances.again(epoch, before, behind)

    def commit(self, state: Mapping[str, Any]) -> None:
        """Let go of what lies before a state."""
        self.check(state)
        self.files.release(state)
        self._committed = dict(state)
