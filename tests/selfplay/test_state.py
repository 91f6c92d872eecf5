"""A state is enough to go on, whatever happened since: to files, to the disk, to the state, to other runs."""

from __future__ import annotations

import errno
import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from games.archives import varied_game, write_tar
from millstream.errors import ClosedError, MillstreamError, StateError, StoreError
from millstream.games import ORIGIN, FrameBlock, Game
from millstream.loaders import SelfPlayDataLoader, resolve
from millstream.loaders.fillers import StageFiller
from millstream.loaders.runs import SelfPlayRun
from millstream.selfplay import START, DeliveredState, Event, Losses, RunFiles, SelfPlayTask, Window, admission
from millstream.selfplay.chunk_feed import ReservoirMoves
from millstream.selfplay.refill import ReservoirRefill
from millstream.storage import LogReader, Position, disk
from selfplay.growing_games import LENGTHS, Row, add, chunks_of, live, loader, rows_of, three_archives


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return three_archives(tmp_path / "games")


def steps(run: SelfPlayDataLoader, count: int) -> list[list[Row]]:
    return [rows_of(run.next()) for _ in range(count)]


def resumed(folder: Path, run: Path, state: dict[str, Any], count: int, **keywords: Any) -> list[list[Row]]:
    with live(folder, run, **keywords) as loader:
        loader.load_state_dict(state)
        return steps(loader, count)


def known(rows: list[list[Row]]) -> list[tuple[int, int, int]]:
    return [row[:3] for step in rows for row in step]


@pytest.mark.parametrize(
    "keywords", [{}, {"hanse": 1.0}, {"positions": 0.5}, {"position_cache": "1MB", "positions": 2}]
)
def test_a_state_goes_on_where_it_was_also_the_second_time_and_before_the_first_batch(
    folder: Path, tmp_path: Path, keywords: dict[str, Any]
) -> None:
    cache = tmp_path / "run"
    with live(folder, cache, **keywords) as run:
        begin = run.state_dict()
        rows = steps(run, 8)
        middle = run.state_dict()
        rows += steps(run, 8)
        run.load_state_dict(middle)
        run.load_state_dict(middle)
        assert steps(run, 8) == rows[8:]
    add(folder, 3)
    for _ in range(2):  # a run that ends before it said everything again loses nothing
        assert resumed(folder, cache, begin, 2, **keywords) == rows[:2]
    assert resumed(folder, cache, begin, 16, **keywords) == rows


def test_a_state_of_filtered_games_goes_on_in_another_process(folder: Path, tmp_path: Path) -> None:
    def wants(least: int) -> dict[str, Any]:
        def long_enough(game: Game) -> bool:
            return game.length >= least

        return {"predicates": [long_enough], "match": {"version": {6, 7}}}

    with live(folder, tmp_path / "run", **wants(2)) as run:
        steps(run, 3)
        state = json.loads(json.dumps(run.state_dict()))
        rest = steps(run, 3)
        plan = run.plan_fingerprint()
    assert resumed(folder, tmp_path / "run", state, 3, **wants(2)) == rest
    with live(folder, tmp_path / "run", **wants(2)) as run:
        assert {**run.plan_fingerprint(), "step": plan["step"]} == plan
    with live(folder, tmp_path / "run") as run, pytest.raises(StateError, match=r"predicates=\["):
        run.load_state_dict({**state, "rows": {**state["rows"], "match": None}})


def test_a_state_of_a_later_epoch_goes_on_with_and_without_a_folder(folder: Path, tmp_path: Path) -> None:
    for cache in (None, tmp_path / "run"):
        with loader(folder, cache_dir=cache) as run:
            for _ in run:
                pass
            steps(run, 3)
            state = run.state_dict()
            rest = [rows_of(batch) for batch in run]
        assert state["epoch"] == 1
        with loader(folder, cache_dir=cache) as run:
            run.load_state_dict(state)
            assert [rows_of(batch) for batch in run] == rest
            assert run.epoch == 2


@pytest.mark.parametrize("keywords", [{}, {"match": {"version": {6}}}, {"positions": 0.5}, {"shuffle": False}])
@pytest.mark.parametrize("kept", [True, False])
def test_a_state_of_a_pass_that_fits_into_the_reservoir_goes_on_wherever_it_was_saved(
    folder: Path, tmp_path: Path, keywords: dict[str, Any], *, kept: bool
) -> None:
    """Nothing leaves the reservoir before all games are in it: what is left in it is the rest of the pass."""
    add(folder, 3, (300,) * 4)  # more than is told at once
    how = {"cache_dir": tmp_path / "run" if kept else None, "shuffle_frames": 1 << 12, "batch_size": 150, **keywords}
    with loader(folder, **how) as run:
        states, rows = [run.state_dict()], list[list[Row]]()
        for batch in run:
            rows.append(rows_of(batch))
            states.append(run.state_dict())
    assert len(set(known(rows))) == len(known(rows)) > 500
    for step, state in enumerate(states[:-1]):
        with loader(folder, **how) as run:
            run.load_state_dict(state)
            assert [rows_of(batch) for batch in run] == rows[step:]


def test_a_state_from_between_two_epochs_knows_its_files(folder: Path) -> None:
    with loader(folder) as run:
        for _ in run:
            pass
        state = run.state_dict()
        rest = [rows_of(batch) for batch in run]
    with loader(folder) as run:
        run.load_state_dict(state)
        assert [rows_of(batch) for batch in run] == rest
    add(folder, 1, seed=777)
    with loader(folder) as run, pytest.raises(MillstreamError, match="not those that the state was saved for"):
        run.load_state_dict(state)
        run.next()


@pytest.mark.parametrize("name", ["rows.bin", "rows.idx"])
def test_rows_that_are_not_there_are_named_and_the_run_goes_on(
    folder: Path, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with live(folder, tmp_path / "run") as run:
        steps(run, 4)
        state = run.state_dict()
        rest = steps(run, 2)
    (tmp_path / "run" / name).unlink()
    with live(folder, tmp_path / "run") as run:
        run.load_state_dict(state)
        assert steps(run, 2) == rest
        assert f"{name}: the rows of 4 of the first 4 steps are damaged or missing" in caplog.text
        assert len(run.explain(5)) == 7


def test_stages_that_end_meanwhile_take_no_memory() -> None:
    class Ending(SelfPlayRun):
        @property
        def graph(self) -> Any:
            """As another thread halts them behind the first look."""
            graph, self.looked = (None if hasattr(self, "looked") else SimpleNamespace(memory=lambda: {"window": 1})), 1
            return graph

        @graph.setter
        def graph(self, _: Any) -> None: ...

    stages = StageFiller(Ending(SelfPlayTask("games", watch=False), resolve({"batch_size": 1})))
    assert (stages.memory, stages.memory) == ({"batches": 0, "window": 1}, {"batches": 0})


def test_files_that_are_gone_or_others_cost_their_own_positions_only(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "run"
    with live(folder, cache) as run:
        rows = steps(run, 12)
        state = run.state_dict()
        held = run._run.mirror.origins["chunk"].tolist()
    (folder / "training-0001.tar").unlink()  # games 0 to 7
    add(folder, 2, (6, 6), seed=9)  # games 8 to 15 are others now
    with live(folder, cache) as run:
        run.load_state_dict(state)
        again = steps(run, 12)  # the last of them would have left the reservoir in the twelfth
        assert run.losses["gone from the reservoir"] == len(held)
        assert min(chunk for chunk, _, _ in known(again)) >= 16
        second = run.state_dict()
        again += steps(run, 5)
        assert {origin.spans[0].file for origin in run.explain(run.step - 1)} == {str(folder / "training-0002.tar")}
    assert resumed(folder, cache, second, 5) == again[12:]
    assert len(set(known(rows + again))) == len(known(rows + again))


def test_one_file_less_leaves_the_other_positions_of_the_reservoir(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "run"
    with live(folder, cache) as run:
        rows = steps(run, 12)
        state = run.state_dict()
        origins = run._run.mirror.origins.copy()
    (folder / "training-0001.tar").unlink()
    with live(folder, cache) as run:
        run.load_state_dict(state)
        again = steps(run, 20)
    kept = [tuple(origin)[0:2] for origin in origins.tolist() if origin[0] >= len(LENGTHS)]
    assert kept
    assert set(kept) <= {row[:2] for row in known(again)}
    assert len(set(known(rows + again))) == len(known(rows + again))


def test_a_second_run_in_the_same_folder_is_refused_and_harms_nothing(folder: Path, tmp_path: Path) -> None:
    with live(folder, tmp_path / "run") as run:
        steps(run, 4)
        explained = run.explain(2)
        with live(folder, tmp_path / "run") as other, pytest.raises(StoreError, match="another writer"):
            other.next()
        assert run.explain(2) == explained
        steps(run, 1)


def test_committing_an_older_state_keeps_the_newer_ones(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "run"
    with live(folder, cache) as run:
        states = []
        for _ in range(3):
            steps(run, 2)
            states.append(run.state_dict())
        expected = steps(run, 3)
        run.commit(states[1])
        with pytest.raises(StateError, match="sidecar"):
            run.load_state_dict(states[0])
        assert steps(run, 1)  # nothing was changed
        run.load_state_dict(states[2])
        assert steps(run, 3) == expected
        run.commit(states[2])
    assert [path.name for path in (cache / "sidecars").iterdir()] == [states[2]["sidecar"]["file"]]


def test_committing_an_older_state_keeps_the_one_that_was_loaded(folder: Path, tmp_path: Path) -> None:
    with live(folder, tmp_path / "run") as run:
        states = []
        for _ in range(3):
            steps(run, 2)
            states.append(run.state_dict())
        expected = steps(run, 3)
    with live(folder, tmp_path / "run") as run:
        run.load_state_dict(states[2])
        run.commit(states[1])
        run.load_state_dict(states[2])
        assert steps(run, 3) == expected


@pytest.mark.parametrize("part", ["rows", "admissions"])
def test_a_full_disk_is_named_and_the_run_goes_on_from_its_state(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    cache, write = tmp_path / "run", disk.write
    monkeypatch.setattr(admission, "LOOK_EVERY", 8)
    with live(folder, cache) as run:
        steps(run, 4)
        state = run.state_dict()
        expected = steps(run, 6)

        def full(fd: int, data: Any, offset: int) -> None:
            if part in str(Path(f"/proc/self/fd/{fd}").readlink()):
                raise OSError(errno.ENOSPC, "No space left on device")
            write(fd, data, offset)

        monkeypatch.setattr(disk, "write", full)
        for _ in range(2):
            with pytest.raises(MillstreamError, match="No space left"):
                steps(run, 200)
        monkeypatch.setattr(disk, "write", write)
        run.load_state_dict(state)
        assert steps(run, 6) == expected


def test_a_journal_that_was_torn_or_is_another_ones_is_noticed(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "run"
    with live(folder, cache) as run:
        steps(run, 4)
        state = run.state_dict()
        expected = steps(run, 4)
    journal = cache / "admissions.jsonl"
    with journal.open("ab") as file:
        file.write(b'{"draw": 99, "en')
    assert resumed(folder, cache, state, 4) == expected
    journal.write_bytes(journal.read_bytes()[:50])
    with live(folder, cache) as run, pytest.raises(StateError, match="not the journal of the state"):
        run.load_state_dict(state)


def test_close_does_not_wait_for_a_reservoir_that_is_read_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with live(folder, tmp_path / "run", shuffle_frames=60) as run:
        steps(run, 4)
        state = run.state_dict()
    read = ReservoirRefill._changed

    def slowly(reread: ReservoirRefill, *place: Any) -> FrameBlock | None:
        time.sleep(0.2)
        return read(reread, *place)

    monkeypatch.setattr(ReservoirRefill, "_changed", slowly)
    run = live(folder, tmp_path / "run", shuffle_frames=60)
    run.load_state_dict(state)
    closing = threading.Timer(0.1, run.close)
    closing.start()
    began = time.monotonic()
    with pytest.raises(ClosedError):
        run.next()
    closing.join()
    assert time.monotonic() - began < 1
    assert not caplog.records  # what was not read is not lost


def test_a_position_of_a_game_that_never_entered_is_said_and_not_left_blank(folder: Path) -> None:
    task, mirror = SelfPlayTask(str(folder)), DeliveredState(Window(None, 1), 4)
    origins = np.array([(7, 0, 0), (99, 2, 0)], ORIGIN)
    mirror.follow([ReservoirMoves(origins, np.zeros(0, np.uint32), origins[:0], None)])
    with loader(folder) as run:
        steps(run, 1)
        entries = run._run.entries_at(0)
    with pytest.raises(StateError, match="games 99 wait in the reservoir, and no source that entered") as refused:
        ReservoirRefill(task, [], entries).reservoir(mirror, Losses())
    assert refused.value.hint


@pytest.mark.parametrize("keeps", [True, False])
def test_a_run_over_data_that_grows_holds_no_more_than_its_window(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    monkeypatch.setattr(admission, "LOOK_EVERY", 12)
    monkeypatch.setattr("millstream.loaders.runs.self_play.CATCH_UP", 8)
    monkeypatch.setattr("millstream.selfplay.row_log.REMEMBERED", 16)
    with live(folder, tmp_path / "run", hanse=0.5, poll_s=0.01, **({} if keeps else {"cache_dir": None})) as run:
        steps(run, 1)
        for number in range(3, 28):
            total = chunks_of(run)
            add(folder, number)
            while chunks_of(run) == total:
                steps(run, 1)
            (folder / f"training-{number - 3:04d}.tar").unlink()
        steps(run, 100)  # until what the stages were ahead of the trainer is delivered
        inside, graph = run._run, run._run.graph
        assert graph is not None
        assert graph.chunk_set.weights is not None
        held = {
            "entered": len(inside._history.at(0)),
            "sources": len(graph.chunk_set._sources) + len(graph.chunk_set._arrived),
            "weights": len(graph.chunk_set.weights._known),
            "events": len(inside.mirror._events),
            "entries": len(inside.mirror.entries),
            "positions": len(inside.files.journal._ahead),
        }
    assert max(held.values()) < 20, held


def test_reset_of_a_run_that_watches_goes_back_to_the_state_that_was_committed(folder: Path, tmp_path: Path) -> None:
    with live(folder, tmp_path / "run") as run:
        steps(run, 3)
        run.commit(run.state_dict())
        add(folder, 3)
        behind = steps(run, 4)
        run.reset()
        assert run.step == 3
        assert steps(run, 4) == behind
    with live(folder, tmp_path / "other") as run:
        again = steps(run, 3)
        run.reset()  # nothing was committed
        assert (run.step, steps(run, 3)) == (0, again)


def files_of(run: SelfPlayDataLoader, first: int) -> set[str]:
    """The files that the rows of all steps from one on are of."""
    return {origin.source for step in range(first, run.step) for origin in run.explain(step)}


def test_what_was_too_old_at_first_does_not_enter_when_a_state_is_gone_on_with_from_before_that(
    folder: Path, tmp_path: Path
) -> None:
    newest = {"training-0001.tar", "training-0002.tar"}
    with loader(folder, cache_dir=tmp_path / "run", num_chunks=16) as run:
        assert list(run)
        first, state = run.step, run.state_dict()  # where an epoch ends
        rows = [rows_of(batch) for batch in run]
        assert files_of(run, first) == newest
    with loader(folder, cache_dir=tmp_path / "run", num_chunks=16) as run:
        run.load_state_dict(state)
        assert [rows_of(batch) for batch in run] == rows
        assert files_of(run, first) == newest


@pytest.mark.parametrize("down", [True, False])
def test_a_file_that_comes_late_with_an_old_name_enters_whether_or_not_the_run_is_down_then(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, down: bool
) -> None:
    monkeypatch.setattr(admission, "LOOK_EVERY", 8)
    late = add(tmp_path, 9)

    def go_on(run: SelfPlayDataLoader) -> list[str]:
        late.rename(folder / "training-0000-late.tar")
        steps(run, 1)
        deadline = time.monotonic() + 60  # a busy machine is slow to tell of a file, and a run of what its stages admit
        while len(run._run.entries_at(0)) < 3 and time.monotonic() < deadline:
            steps(run, 1)
        return [entry.name for entry in run._run.entries_at(0)]

    with live(folder, tmp_path / "run") as run:  # the first archive is left out
        steps(run, 2)
        state = run.state_dict()
        entered = [] if down else go_on(run)
    if down:
        with live(folder, tmp_path / "run") as run:
            run.load_state_dict(state)
            entered = go_on(run)
    assert entered == ["training-0001.tar", "training-0002.tar", "training-0000-late.tar"]


def test_explaining_reads_no_line_of_the_journal_twice(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, passed = list[bytes](), LogReader._pass

    def noted(reader: LogReader, line: bytes) -> bytes:
        read.append(line)
        return passed(reader, line)

    monkeypatch.setattr(LogReader, "_pass", noted)
    with loader(folder, cache_dir=tmp_path / "run") as run:
        run.next()
        first = run.explain(0)
        assert read
        read.clear()
        assert run.explain(0) == first
        assert not read


def test_a_state_behind_many_promises_knows_the_last_one_and_all_that_entered(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "LOOK_EVERY", 2)
    with live(folder, tmp_path / "run") as run:
        steps(run, 40)
        position = Position.from_json(run.state_dict()["journal"])
        steps(run, 40)
    journal = tmp_path / "run" / "admissions.jsonl"
    told = [Event.from_json(said) for said in LogReader(journal, START) if "draw" in said]
    before, behind = RunFiles(tmp_path / "run").journal.split_at(position, 0)
    first = told[: len(told) - len(behind)]
    promises = [event for event in first if event.kind == "until"]
    assert len(promises) > 10
    assert behind == told[len(first) :]
    assert before == [event for event in first if event.kind != "until"] + promises[-1:]


def test_what_is_left_out_is_counted_the_same_in_one_run_and_in_several(folder: Path, tmp_path: Path) -> None:
    damaged = bytearray(varied_game(5, 9))
    damaged[100] ^= 255
    write_tar(folder / "training-0001.tar", [("0.gz", varied_game(5, 1)), ("1.gz", bytes(damaged))])
    with live(folder, tmp_path / "once", poll_s=1) as run:
        steps(run, 30)
        once = run.state_dict()["losses"]
    state = None
    for _ in range(3):
        with live(folder, tmp_path / "parts", poll_s=1) as run:
            if state is not None:
                run.load_state_dict(state)
            steps(run, 10)
            state = run.state_dict()
    assert state is not None
    assert state["losses"] == once
    assert once["damaged gzip"] > 1
