"""Where a self-play run stands, and the stages that go ahead of it."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream._core import Budget
from millstream.batches.engine import closed_error
from millstream.errors import FingerprintError, LoaderError, RecordError, StateError
from millstream.games import FrameBlock
from millstream.games.chunk_source import ChunkSource, open_chunk_source
from millstream.games.descriptors import Descriptors
from millstream.live.chunk_set import Draw
from millstream.live.chunk_source_feed import ChunkSourceFeed
from millstream.live.discovery import Discovery
from millstream.live.entrance import AsItWas, AsTheyCome, AsWritten, Entrance
from millstream.live.events import FORMAT, Event, entered
from millstream.live.mirror import Mirror
from millstream.live.row_log import RowLog, StepRows
from millstream.live.tensor_maker import Tensors
from millstream.live.window import Entry, Window
from millstream.loaders import state as states
from millstream.loaders.phases import read_count
from millstream.loaders.self_play_ahead import Ahead
from millstream.loaders.self_play_task import Begin, SelfPlayGraph, SelfPlayTask
from millstream.loaders.settings import LoaderSettings
from millstream.order.shuffle import source_key
from millstream.stages import Pipeline
from millstream.store import sidecars
from millstream.store.chained_log import ChainedLog, LogReader, Position

JOURNAL = "admissions.jsonl"
SIDECAR = "window"
CATCH_UP = 256
"""Steps after which the mirror of the window catches up: what lies before is let go of."""


class SelfPlayRun:
    """A step of a run over games, and everything that is needed to go on from there."""

    kind = "self-play"

    def __init__(self, task: SelfPlayTask, settings: LoaderSettings, *, replay: Path | None = None) -> None:
        self.task, self.settings, self._replay = task, settings, replay
        self.folder = settings.cache_dir
        memory = settings.memory_budget
        self.budget = Budget() if memory is None else Budget(memory)
        self.graph: SelfPlayGraph | None = None
        self._ahead: Ahead | None = None
        self._guard, self._switch = threading.Lock(), threading.RLock()
        self.closed = False
        self._log: ChainedLog | None = None
        self.rows: RowLog | None = None
        self._committed: dict[str, Any] | None = None
        self._losses: dict[str, int] = {}
        self._depth = settings.prefetch or 2
        self._begin_run()

    # Where it stands

    def _begin_run(self) -> None:
        self.step = 0
        self._position, self._positions = Position.start(FORMAT), deque[tuple[int, Position]]()
        self._begin_epoch(0)

    def _begin_epoch(self, epoch: int) -> None:
        self.epoch, self.epoch_rows, self._skip = epoch, 0, 0
        self.mirror = Mirror(self._window(), self.task.shuffle_frames)
        self._entrance: Entrance = AsTheyCome()
        self._files: str | None = None
        self._expected_files: str | None = None
        self.entered: list[Entry] = []

    def _window(self) -> Window:
        seed, watch = self._epoch_seed, self.task.watch
        return Window(self.task.num_chunks, seed, endless=watch, first_use=0 if watch else self.epoch)

    @property
    def _epoch_seed(self) -> int:
        """Passes over what does not change are orders of their own; a run that watches has one order for ever."""
        seed = self.settings.seed
        return seed if self.task.watch or not self.epoch else source_key(seed, f"self-play epoch {self.epoch}")

    # Steps

    def next(self, batch_size: int) -> Tensors | None:
        """The batch of the coming step; None where an epoch ends."""
        ahead = self._started()
        if self._skip:
            skipped = ahead.skip(self._skip)
            if sum(map(len, skipped)) < self._skip:
                raise self._other_files()
            self.mirror.follow([piece.moves for piece in skipped])
            self._skip = 0
        tensors = ahead.next(batch_size)
        if tensors is not None and self.settings.drop_last and len(tensors.origins) < batch_size * self._ranks:
            self._losses["last batch not full"] = self._losses.get("last batch not full", 0) + len(tensors.origins)
            return None
        return tensors

    def delivered(self, tensors: Tensors) -> None:
        """The batch of the coming step is the trainer's."""
        ahead, rows = self._ahead, self.rows
        if ahead is None or rows is None:  # somebody has closed it meanwhile
            raise closed_error()
        ahead.taken()
        rows.append(StepRows(tensors.origins, tensors.batch_size, self.epoch))
        self.mirror.follow(tensors.moves)
        self.step += 1
        self.epoch_rows += len(tensors.origins)
        if self.step % CATCH_UP == 0:
            self._catch_up()

    def end_epoch(self) -> None:
        """An epoch is over: the next one begins."""
        if not self.epoch_rows:
            raise LoaderError(
                f"{self.task.path}: there is no position to train on", hint="look at loader.losses, or watch=True"
            )
        self._halt()
        self._begin_epoch(self.epoch + 1)

    @property
    def _ranks(self) -> int:
        return self.settings.world_size

    @property
    def losses(self) -> dict[str, int]:
        """What was left out so far, by reason."""
        found = dict(self._losses)
        for reason, count in ({} if self.graph is None else _drops(self.graph)).items():
            found[reason] = found.get(reason, 0) + count
        return found

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of the window and of the reservoir."""
        if self.graph is None:
            return {}
        window, reservoir = self.graph.chunk_set.gauges(), self.graph.shuffler.gauges()
        return {"window": int(window["index_bytes"]), "reservoir": int(reservoir["bytes"])}

    def prefetch(self, batches: int) -> None:
        """Make so many batches ahead."""
        self._depth = batches
        if self._ahead is not None:
            self._ahead.depth = batches

    # The past

    def rows_of(self, step: int) -> StepRows:
        """The rows of a step that was made."""
        if self.rows is None:
            raise LoaderError(f"step {step} was not made yet", hint="steps can be explained when they were made")
        return self.rows[step]

    def epoch_steps(self) -> list[int]:
        """The steps of the present epoch that were made, as far as they are remembered."""
        steps: list[int] = []
        for step in range(self.step - 1, -1, -1):
            try:
                if self.rows_of(step).epoch != self.epoch:
                    break
            except LoaderError:  # forgotten
                break
            steps.insert(0, step)
        return steps

    def entries_at(self, epoch: int) -> list[Entry]:
        """Every source that entered in an epoch."""
        if self._log is not None and self.folder is not None:
            return entered(LogReader(self.folder / JOURNAL, Position.start(FORMAT)), epoch)
        if epoch != self.epoch:
            raise LoaderError(
                f"the files of epoch {epoch} are forgotten", hint="pass cache_dir=, a folder beside the checkpoints"
            )
        with self._guard:
            return list(self.entered)

    def count_frames(self) -> int:
        """How many positions the files have, by their headers."""
        found = Discovery(self.task.path, watch=False)
        sources = ChunkSourceFeed(found, cache_dir=self.task.index_cache)
        with Pipeline({"discovery": found, "chunk_source_feed": sources}) as pipeline:
            opened = sorted((each for each in pipeline if isinstance(each, ChunkSource)), key=lambda each: each.name)
        counts = [np.zeros(0, np.int64), *(source.frames.astype(np.int64) for source in opened)]
        newest = np.concatenate(counts)
        return int(newest[-self.task.num_chunks :].sum() if self.task.num_chunks else newest.sum())

    # Stages

    def _started(self) -> Ahead:
        with self._switch:
            if self.closed:
                raise closed_error()
            if self._ahead is None:
                self._start()
            assert self._ahead is not None
            return self._ahead

    def _start(self) -> None:
        self._open_files()
        window = self._window()
        facts, arrays = self.mirror.window.state()
        window.load(facts, arrays)
        entrance = self._entrance
        if self._replay is not None:
            events = [Event.from_json(said) for said in LogReader(self._replay, Position.start(FORMAT))]
            entrance = AsWritten(event for event in events if event.draw >= window.draws)
        restore = self._restored()
        task = replace(self.task, seed=self._epoch_seed)
        begin = Begin(window, entrance, self.mirror.place, restore, [self._noted, self.mirror.note, self._written])
        self.graph = graph = SelfPlayGraph(task, begin, positions_seed=self.settings.seed)
        self.mirror.window.acceptance = graph.chunk_set.window.acceptance
        graph.pipeline.start()
        self._ahead = Ahead(
            graph.pipeline.get,
            rank=self.settings.rank,
            world_size=self._ranks,
            depth=self._depth,
            budget=self.budget,
            output=self.task.output,
        )

    def _restored(self) -> tuple[FrameBlock, int] | None:
        """The frames of the reservoir, read again."""
        origins = self.mirror.origins
        if not len(origins) and not self.mirror.counter:
            return None
        frames, lost = Reread(self.task, self.mirror.entries, self.settings.seed).frames(origins)
        if lost:
            self._losses["gone from the reservoir"] = self._losses.get("gone from the reservoir", 0) + lost
        return frames, self.mirror.counter

    def _noted(self, events: Sequence[Event]) -> None:
        """On the thread of the chunk set: remember what entered, and see whether it is what a state was saved for."""
        with self._guard:
            first = self._files is None
            for event in events:
                if event.kind == "enter":
                    begin = self.entered[-1].stop if self.entered else self.mirror.window.total
                    self.entered.append(Entry(event.name, begin, event.chunks))
        if first:
            said = json.dumps([(event.name, event.chunks) for event in events if event.kind == "enter"])
            self._files = hashlib.blake2b(said.encode(), digest_size=16).hexdigest()
            if self._expected_files not in (None, self._files):
                raise self._other_files()

    def _other_files(self) -> FingerprintError:
        return FingerprintError(
            f"{self.task.path}: the games are not those that the state was saved for",
            hint="pass the same folder as then, or cache_dir= when states shall outlive changes",
        )

    def _written(self, events: Sequence[Event]) -> None:
        with self._guard:
            if self._log is not None:
                lines = [{**event.to_json(), "epoch": self.epoch} for event in events]
                self._positions.append((events[-1].draw, self._log.write(*lines)))

    def _open_files(self) -> None:
        if self.rows is None:
            writes = self.folder is not None and self.settings.rank == 0
            self.rows = RowLog(self.folder if writes else None, self.step)
            if writes:
                assert self.folder is not None
                position = self._position if self.step else None
                self._log = ChainedLog(self.folder / JOURNAL, FORMAT, position, anew=not self.step)

    def _catch_up(self) -> None:
        gone = self.mirror.catch_up()
        place = self.mirror.place
        with self._guard:
            while place is not None and self._positions and self._positions[0][0] < place.draw:
                self._position = self._positions.popleft()[1]
        if self.graph is not None and self.graph.chunk_set.weights is not None:
            for entry in gone:
                self.graph.chunk_set.weights.forget(entry)

    def _halt(self) -> None:
        with self._switch:
            graph, ahead = self.graph, self._ahead
            self.graph = self._ahead = None
        if graph is not None:
            for reason, count in _drops(graph).items():
                self._losses[reason] = self._losses.get(reason, 0) + count
            graph.pipeline.close()
        if ahead is not None:
            ahead.close()

    def _let_go(self) -> None:
        """Stop the stages, and let go of the files."""
        self._halt()
        if self._log is not None:
            self._log.close()
            self._log = None
        if self.rows is not None:
            self.rows.close()
            self.rows = None

    def close(self) -> None:
        """Stop everything, for good."""
        self.closed = True
        self._let_go()

    # State

    def restart(self) -> None:
        """Stand at the very beginning; a run that watches, at the last state that was committed or loaded."""
        if self._committed is not None and self.task.watch:
            self.resume(self._committed)
            return
        self._let_go()
        self._begin_run()

    def state(self) -> dict[str, Any]:
        """Describe where the run stands. With a folder, a file in it that the state names holds the window."""
        state = {
            **states.header(self.kind, self.step, self.settings.seed, self.task.facts),
            "epoch": self.epoch,
            "epoch_rows": self.epoch_rows,
        }
        if self.folder is None:
            if self.task.watch:
                raise LoaderError(
                    "a window of games does not fit into a state, and nobody said where to keep it",
                    hint="pass cache_dir=, a folder beside the checkpoints",
                )
            return {**state, "files": self._files or self._expected_files}
        self._catch_up()
        if self.rows is not None:
            self.rows.sync()
        facts, arrays = self.mirror.state()
        floor = self._entrance.floor if isinstance(self._entrance, AsTheyCome | AsItWas) else ""
        named = sidecars.save(self.folder / "sidecars", SIDECAR, [_packed({**facts, "floor": floor}, arrays)])
        return {**state, "sidecar": named, "journal": self._position.to_json()}

    def check(self, state: Mapping[str, Any]) -> int:
        """Check that a state is one of a run like this; gives its step."""
        return states.check_header(state, self.kind, self.settings.seed, self.task.facts)

    def resume(self, state: Mapping[str, Any]) -> None:
        """Stand where a state was saved, or change nothing."""
        step = self.check(state)
        epoch, rows = (read_count(state.get(key), key) for key in ("epoch", "epoch_rows"))
        loaded = None
        if "sidecar" in state:
            if self.folder is None:
                raise LoaderError("the state names files beside it", hint="pass the cache_dir= it was saved with")
            loaded = _unpacked(sidecars.load(self.folder / "sidecars", SIDECAR, state["sidecar"]))
            position = Position.from_json(state.get("journal") or {})
        self._let_go()
        self._begin_epoch(epoch)
        self.step, self.epoch_rows = step, rows
        if loaded is None:
            self._skip, self._expected_files = rows, state.get("files")
            self._position = Position.start(FORMAT)
        else:
            self._position = position
            self.mirror.load(*loaded)
            before, behind = self._journaled(position)
            seen = {event.name for event in before if event.kind == "enter"}
            self._entrance = AsItWas(behind, AsTheyCome(seen, str(loaded[0].get("floor", ""))))
            self.entered = self.mirror.entries
        self._positions.clear()
        self._committed = dict(state)

    def _journaled(self, position: Position) -> tuple[list[Event], list[Event]]:
        """What had happened in this epoch when a state was saved, and what happened then."""
        assert self.folder is not None
        before, behind = list[Event](), list[Event]()
        reader = LogReader(self.folder / JOURNAL, Position.start(FORMAT))
        for said in reader:
            if said.get("epoch") == self.epoch:
                (before if reader.position.offset <= position.offset else behind).append(Event.from_json(said))
        return before, behind

    def commit(self, state: Mapping[str, Any]) -> None:
        """Let go of what lies before a state."""
        self.check(state)
        if self.folder is not None and isinstance(state.get("sidecar"), Mapping):
            sidecars.release(self.folder / "sidecars", SIDECAR, [state["sidecar"]])
        self._committed = dict(state)


class Reread:
    """Reads frames again that lay in a reservoir."""

    def __init__(self, task: SelfPlayTask, entries: Sequence[Entry], seed: int) -> None:
        self._task, self._entries, self._seed = task, list(entries), seed
        self._descriptors = Descriptors()
        self._sources: dict[str, ChunkSource | None] = {}

    def frames(self, origins: npt.NDArray[np.void]) -> tuple[FrameBlock, int]:
        """The frames of these origins, in this order, and how many cannot be read any more."""
        if not len(origins):
            return FrameBlock.empty(), 0
        uses, numbers = np.unique(origins[["chunk", "use"]], return_inverse=True)
        for chunk in np.unique(origins["chunk"]).tolist():
            self._source(self._entry(chunk))
        begin = Begin(Window(None, 0), AsTheyCome())
        self._graph = SelfPlayGraph(self._task, begin, positions_seed=self._seed)
        with ThreadPoolExecutor(self._task.threads) as pool:
            games = list(pool.map(lambda use: self._game(int(use["chunk"]), int(use["use"])), uses))
        blocks, order, lost = list[FrameBlock](), np.full(len(origins), -1, np.int64), 0
        before = 0
        for number, game in enumerate(games):
            rows = np.flatnonzero(numbers == number)
            found = {} if game is None else {int(ply): row for row, ply in enumerate(game.origins["ply"])}
            kept = [row for row in rows.tolist() if int(origins["ply"][row]) in found]
            lost += len(rows) - len(kept)
            if game is not None and kept:
                blocks.append(game.select([found[int(origins["ply"][row])] for row in kept]))
                order[kept] = before + np.arange(len(kept))
                before += len(kept)
        return FrameBlock.concat(blocks).select(order[order >= 0]), lost

    def _entry(self, chunk: int) -> Entry | None:
        return next((entry for entry in self._entries if entry.first <= chunk < entry.stop), None)

    def _source(self, entry: Entry | None) -> ChunkSource | None:
        if entry is None:
            return None
        if entry.name not in self._sources:
            try:
                source = open_chunk_source(Path(self._task.path, entry.name), self._descriptors)
                self._sources[entry.name] = source if len(source) == entry.count else None
            except RecordError:
                self._sources[entry.name] = None
        return self._sources[entry.name]

    def _game(self, chunk: int, use: int) -> FrameBlock | None:
        entry = self._entry(chunk)
        source = self._source(entry)
        if entry is None or source is None:
            return None
        games = self._graph.reread(Draw(0, chunk, use, entry.name, chunk - entry.first, source))
        return games[0].frames if games else None


def _drops(graph: SelfPlayGraph) -> dict[str, int]:
    found: dict[str, int] = {}
    for stage in graph.pipeline.counters()["stages"].values():
        for reason, count in stage["drops"].items():
            found[reason] = found.get(reason, 0) + count
    return found


def _packed(facts: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    file = io.BytesIO()
    said = np.frombuffer(json.dumps(facts, sort_keys=True).encode(), np.uint8)
    np.savez(file, allow_pickle=False, facts=said, **dict(arrays))
    return file.getvalue()


def _unpacked(data: bytes) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        facts = json.loads(arrays.pop("facts").tobytes())
        return dict(facts), arrays
    except (ValueError, KeyError, OSError) as error:
        raise StateError(f"the sidecar of the state cannot be read: {error}", hint="take another state") from None
