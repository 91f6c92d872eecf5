"""Where a self-play run stands, and how it goes on from there."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from millstream._core import Budget
from millstream.batches.engine import closed_error
from millstream.errors import LoaderError
from millstream.live.entrance import Entrance
from millstream.live.events import Event
from millstream.live.frame_shuffler import GONE
from millstream.live.led import AsLed
from millstream.live.losses import Loss, Losses
from millstream.live.mirror import Mirror
from millstream.live.row_log import StepRows
from millstream.live.tensor_maker import Tensors
from millstream.live.window import Entry, Window
from millstream.loaders import state as states
from millstream.loaders.phases import read_count
from millstream.loaders.self_play.entered import Entered
from millstream.loaders.self_play.entrance import Entrances
from millstream.loaders.self_play.files import RunFiles
from millstream.loaders.self_play.hints import going_on_hint
from millstream.loaders.self_play.inheritance import Inheritance
from millstream.loaders.self_play.journal import START, Part
from millstream.loaders.self_play.replay import Replay
from millstream.loaders.self_play.reread import Reread
from millstream.loaders.self_play.stages import RunStages
from millstream.loaders.self_play.task import Begin, SelfPlayGraph, SelfPlayTask
from millstream.loaders.self_play.waiting import nothing_to_train_on, what_is_there
from millstream.loaders.settings import LoaderSettings
from millstream.order.shuffle import source_key
from millstream.stages.lifetime import ForkLock, defer_sigint
from millstream.stats.ledger import Ledger, read_counts
from millstream.storage import Position

logger = logging.getLogger("millstream.loaders")
NOT_FULL = "last batch not full"
CATCH_UP = 256
"""Steps after which the mirror of the window catches up: what lies before is let go of."""


class SelfPlayRun:
    """A step of a run over games, and everything that is needed to go on from there."""

    kind = "self-play"

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
        self._stages = RunStages(settings, self._graph_from_here, self._what_for)
        self._entered = Entered(task.path, watch=task.watch)
        self._committed: dict[str, Any] | None = None
        self._losses = Ledger()
        self._gone, self._guard = set[str](), threading.Lock()
        self.turn = ForkLock(delays_fork=True, in_child=self._leave_behind)
        """Of whoever moves the run."""
        self._inheritance = Inheritance(led=led)
        self.step = 0
        self._begin_epoch(0)

    # Where it stands

    def _begin_epoch(self, epoch: int) -> None:
        self.epoch, self.epoch_rows, self._skip = epoch, 0, 0
        self.mirror = Mirror(self._window(epoch), self.task.shuffle_frames)
        self._entrance = self._entrances.first(epoch)
        self._entered.stand(epoch)
        self._inheritance.refuse()

    def _window(self, epoch: int) -> Window:
        seed, watch = self._epoch_seed(epoch), self.task.watch
        first_use, shuffle = 0 if watch else epoch, self.task.shuffle
        return Window(self.task.num_chunks, seed, endless=watch, first_use=first_use, shuffle=shuffle)

    def _epoch_seed(self, epoch: int) -> int:
        """Passes over what does not change are orders of their own; a run that watches has one order for ever."""
        seed = self.settings.seed
        return seed if self.task.watch or not epoch else source_key(seed, f"self-play epoch {epoch}")

    @property
    def found(self) -> str | None:
        """A hash of the files of the epoch; None: they are in the journal, or nobody has looked yet."""
        return self._entered.found

    # Steps

    def start(self) -> None:
        """Let the stages work ahead, from where the run stands."""
        self._stages.started()

    def next(self, batch_size: int) -> Tensors | None:
        """The batch of the coming step; None where an epoch ends."""
        ahead = self._stages.started()
        if self._skip:
            skipped = ahead.skip(self._skip)
            if sum(map(len, skipped)) < self._skip:
                raise self._entered.other_files()
            with self.turn:
                self.mirror.follow([piece.moves for piece in skipped])
                self._skip = 0
        tensors = ahead.next(batch_size)
        is_whole = tensors is not None and len(tensors.origins) == batch_size * self._ranks
        if self._replay is not None and self.task.watch and not is_whole:
            raise self._replay.ended()
        if tensors is not None and self.settings.drop_last and not is_whole:
            self._losses.add("", NOT_FULL, len(tensors.origins))
            return None
        return tensors

    def delivered(self, tensors: Tensors) -> None:
        """The batch of the coming step is the trainer's."""
        ahead = self._stages.ahead
        if ahead is None:  # somebody has closed it meanwhile
            raise closed_error()
        self.files.remember(self.step, StepRows(tensors.origins, tensors.batch_size, self.epoch))
        ahead.taken()  # if the rows could not be written down, the next one to ask gets this batch again
        self.mirror.follow(tensors.moves)
        if gone := sum(len(move.slots) for move in tensors.moves) - len(tensors.origins):
            self._losses.add("", GONE, gone, at=-1)  # they have left: no draw lies before
        self.step += 1
        self.epoch_rows += len(tensors.origins)
        if self.step % CATCH_UP == 0:
            self._catch_up()

    def end_epoch(self) -> None:
        """An epoch is over: the next one begins."""
        if not self.epoch_rows:
            short, step_rows = self._losses.unplaced[NOT_FULL], self.settings.batch_size * self._ranks
            raise nothing_to_train_on(self.task.path, self.losses, short, step_rows)
        self._halt()
        self._begin_epoch(self.epoch + 1)

    @property
    def _ranks(self) -> int:
        return self.settings.world_size

    @property
    def losses(self) -> dict[str, int]:
        """What was left out so far, by reason."""
        graph = self._stages.graph
        return dict(self._losses.unplaced if graph is None else self._losses.unplaced + graph.drops())

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of the window, of the reservoir and of kept positions."""
        return self._stages.memory

    def counters(self) -> dict[str, Any]:
        """What went through each stage."""
        return self._stages.counters()

    @property
    def graph(self) -> SelfPlayGraph | None:
        """The stages, if they are at work."""
        return self._stages.graph

    @property
    def budget(self) -> Budget:
        """What batches may take."""
        return self._stages.budget

    def prefetch(self, batches: int) -> None:
        """Make so many batches ahead."""
        self._stages.prefetch(batches)

    # The past

    def entries_at(self, epoch: int) -> list[Entry]:
        """Every source that entered in an epoch."""
        self._inherit()
        known = self.files.folder is not None
        return self.files.journal.entries(epoch) if known else self._entered.at(epoch)

    # Stages

    def _graph_from_here(self) -> SelfPlayGraph:
        """Stages that begin where the trainer stands."""
        self._inherit()
        with defer_sigint():  # half open, they would stay locked
            self.files.open(self.step)
        losses = Losses([*self._inheritance.lost, *(self._replay or self.files.journal).losses(self.epoch)])
        window = self._window(self.epoch)
        window.load(*self.mirror.window.state())
        entrance = self._entrance
        if self._replay is not None:
            entrance = self._replay.entrance(self.epoch, window.draws, watch=self.task.watch)
        place, entry = self.mirror.place, self.mirror.entry
        begin = Begin(
            window,
            entrance,
            last=None if place is None or entry is None else (place, entry),
            losses=losses,
            lost=self._note,
            dropped=lambda draw, reason: self._losses.add("", reason, at=draw),
            shared=self._ranks > 1,
            listeners=[self.mirror.note, self._enters, self._written],  # in this order: a fork may come between
        )
        task = replace(self.task, seed=self._epoch_seed(self.epoch))
        graph = SelfPlayGraph(task, begin, positions_seed=self.settings.seed)
        try:
            self._restore(graph, losses)
        except BaseException:
            graph.pipeline.close()
            raise
        self.mirror.window.acceptance = graph.chunk_set.window.acceptance
        return graph

    def _what_for(self) -> str:
        led = ""
        if isinstance(self._entrance, AsLed) and self._entrance.waits:
            where = f"in {self.files.folder}, the cache_dir that all ranks must share"
            led = f"rank 0 to say which games enter; it does so {where}; "
        return led + what_is_there(self.task, self.graph, self.losses)

    def _restore(self, graph: SelfPlayGraph, losses: Losses) -> None:
        """Read the frames of the reservoir again; those that cannot be are lost from now on."""
        if not self.mirror.counter:
            return
        reread = Reread(self.task, graph.changes, self.mirror.entries, lambda: self._stages.closed)
        frames, lost = reread.reservoir(self.mirror, losses)
        for loss in lost:
            self._note(loss)
            losses.add(loss)
        graph.shuffler.restore(frames, self.mirror.counter)

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
        """Let go of what only lies before the place where the trainer stands."""
        gone = self.mirror.catch_up()
        if self.mirror.place is not None:
            self.files.journal.catch_up(self.mirror.place.draw)
            self._losses.settle(self.mirror.place.draw)
        graph = self._stages.graph
        if graph is not None and graph.chunk_set.weights is not None:
            for entry in gone:
                graph.chunk_set.weights.forget(entry)
        self._entered.forget(None if self.files.rows is None else self.files.rows.oldest_chunk)

    def _leave_behind(self) -> None:
        """In a forked child: the other process has the stages, and writes the files; this one remembers in memory."""
        self._guard = threading.Lock()
        for each in (self.mirror, self._entered, self._losses):
            each.unlock()
        if self.mirror.place is not None:
            self._losses.settle(self.mirror.place.draw)
        self._losses.restart(self._losses.counts)
        journal = None if self.files.folder is None else self.files.journal
        self._inheritance.fall(journal, at_work=self._stages.leave_behind())
        self.files = self.files.left_behind()

    def _inherit(self) -> None:
        """In a forked child: begin where the other process stood."""
        inherited = self._inheritance.entrance(self.mirror, self._entered, self._entrances, self.epoch)
        self._entrance = inherited or self._entrance

    def _halt(self) -> None:
        self._losses.restart(self._losses.unplaced + self._stages.halt())

    def close(self) -> None:
        """Stop everything, for good."""
        self._losses.restart(self._losses.unplaced + self._stages.close())
        self.files.close()

    # State

    def restart(self) -> None:
        """Stand at the very beginning; a run that watches, at the last state that was committed or loaded."""
        if self._committed is not None and self.task.watch:
            self.resume(self._committed)
            return
        self._halt()
        self.files.stand(START)
        self._losses.restart()
        self.step = 0
        self._begin_epoch(0)

    def state(self) -> dict[str, Any]:
        """Describe where the run stands. With a folder, a file in it that the state names holds the window."""
        state = {
            **states.header(self.kind, self.step, self.settings.seed, self.task.facts),
            "epoch": self.epoch,
            "epoch_rows": self.epoch_rows,
        }
        if self.files.folder is None:
            self.files.refuse_parents()
            if self.task.watch:
                raise LoaderError(
                    "a window of games does not fit into a state, and nobody said where to keep it",
                    hint="pass cache_dir=, a folder beside the checkpoints",
                )
            return {**state, "losses": dict(self._losses.unplaced), "files": self._entered.files}
        self._catch_up()
        return {**state, "losses": self._losses.counts, **self.files.save(self.step, *self.mirror.state())}

    def check(self, state: Mapping[str, Any]) -> int:
        """Check that a state is one of a run like this; gives its step."""
        return states.check_header(state, self.kind, self.settings.seed, self.task.facts, going_on_hint)

    def resume(self, state: Mapping[str, Any]) -> None:
        """Stand where a state was saved, or change nothing."""
        step = self.check(state)
        epoch, rows = (read_count(state.get(key), key) for key in ("epoch", "epoch_rows"))
        losses = read_counts(state.get("losses"))
        kept = self._kept(state, epoch) if "sidecar" in state else None
        self._halt()
        self._losses.restart(losses)
        self.files.stand(START if kept is None else kept[0])
        self._begin_epoch(epoch)
        self.step, self.epoch_rows = step, rows
        if kept is None:
            self._skip = rows
            self._entered.stand(epoch, state.get("files"))
        else:
            _, self.mirror, self._entrance = kept
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
