"""The laws of self-play runs: over what is there, and over a folder that grows."""

from __future__ import annotations

import gc
import shutil
import threading
import time
import urllib.error
import urllib.request
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from games.archives import varied_game
from millstream.batches import SelfPlayBatch
from millstream.errors import BudgetError, ClosedError, LoaderError, RecipeError, StateError, UnknownLength
from millstream.games import RescoreSettings, Reservoir, example_folder, expand, open_chunk_source
from millstream.games.tensors import FrameTensors
from millstream.loaders import SelfPlayDataLoader
from millstream.selfplay import PositionWeights
from millstream.selfplay.chunk_feed import Output, Shuffled, TensorMaker, Tensors, frame_shuffler
from millstream.stages import serve_metrics
from selfplay.growing_games import LENGTHS, Row, add, archives_and_a_game, chunks_of, live, loader, rows_of


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archives_and_a_game(tmp_path_factory.mktemp("all") / "games")


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def all_rows(batches: Iterator[SelfPlayBatch]) -> list[Row]:
    return [row for batch in batches for row in rows_of(batch)]


def epoch(folder: Path, **keywords: Any) -> list[Row]:
    with loader(folder, **keywords) as run:
        return all_rows(run.get_iterator())


def test_an_epoch_has_every_position_once_and_the_next_one_another_order(games: Path) -> None:
    with loader(games) as run:
        first, second = (all_rows(run.get_iterator()) for _ in range(2))
        batches = run.get_num_batches()
    total = 3 * sum(LENGTHS) + 6
    assert len(first) == len({row[:2] for row in first}) == total == len(second)
    assert {row[:2] for row in first} == {row[:2] for row in second}
    assert [row[:2] for row in first] != [row[:2] for row in second]
    assert {row[2] for row in first} == {0}
    assert {row[2] for row in second} == {1}
    assert batches == -(-total // 7)


@pytest.mark.parametrize("other", [{"threads": 4}, {"prefetch": 1}, {"batch_size": 3}, {"memory_budget": "2MB"}])
def test_threads_prefetching_and_batch_size_change_no_row(games: Path, other: dict[str, Any]) -> None:
    assert epoch(games, **other) == epoch(games)


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ranks=st.integers(2, 5), size=st.integers(1, 9))
def test_ranks_only_cut_the_same_rows_elsewhere(games: Path, ranks: int, size: int) -> None:
    runs = [loader(games, rank=rank, world_size=ranks, batch_size=size) for rank in range(ranks)]
    steps = zip(*(list(run.get_iterator()) for run in runs), strict=True)
    together = [row for step in steps for batch in step for row in rows_of(batch)]
    for run in runs:
        run.close()
    assert together == epoch(games)


def test_a_batch_of_any_size_may_be_asked_for_at_any_time(games: Path) -> None:
    expected, sizes = epoch(games), [1, 7, 20, 2, 7, 7]
    with loader(games) as run:
        found = [rows_of(run.get_batch(size)) for size in sizes]
    assert [len(rows) for rows in found] == sizes
    assert [row for rows in found for row in rows] == expected[: sum(sizes)]


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stop=st.integers(0, 18), size=st.integers(1, 12), ranks=st.integers(1, 2), keeps=st.booleans())
def test_a_run_goes_on_anywhere_with_other_ranks_and_sizes(
    games: Path, tmp_path: Path, stop: int, size: int, ranks: int, keeps: bool
) -> None:
    expected = epoch(games)
    folder = tmp_path / "run" if keeps else None
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    with loader(games, cache_dir=folder) as run:
        before = [row for _ in range(stop) for row in rows_of(run.get_batch())][: len(expected)]
        state = run.state_dict()
    if state["epoch"]:
        return
    rest = []
    runs = [loader(games, cache_dir=folder, rank=rank, world_size=ranks, batch_size=size) for rank in range(ranks)]
    for each in runs:
        each.load_state_dict(state)
    for step in zip(*(list(each.get_iterator()) for each in runs), strict=True):
        rest += [row for batch in step for row in rows_of(batch)]
    for each in runs:
        each.close()
    assert before + rest == expected


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("output", ["float32", "float16", "boards"])
def test_tensors_are_where_they_were_made(
    games: Path, framework: str, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No framework gets a copy."""
    made: list[int] = []

    def noted(maker: TensorMaker, pieces: list[Shuffled]) -> Tensors:
        tensors = make(maker, pieces)
        made.extend(address(array) for array in (tensors.planes, tensors.policy, tensors.values))
        return tensors

    make = TensorMaker.make
    monkeypatch.setattr(TensorMaker, "make", noted)
    with loader(games, framework=framework, output=output, batch_size=16) as run:
        batch = run.next()
        where: dict[str, Callable[[Any], int]]
        where = {"numpy": address, "torch": lambda it: it.data_ptr(), "jax": lambda it: it.unsafe_buffer_pointer()}
        assert [where[framework](batch[name]) for name in ("planes", "policy", "values")] == made[:3]


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_small_tensors_say_what_large_ones_say(games: Path, framework: str) -> None:
    with loader(games) as run, loader(games, output="float16", framework=framework) as half:
        for wide, narrow in zip(run, half, strict=True):
            for name in ("planes", "policy", "values"):
                assert np.array_equal(np.asarray(narrow[name]), wide[name].astype(np.float16), equal_nan=True)
    with loader(games) as run, loader(games, output="boards", framework=framework) as boards:
        for wide, narrow in zip(run, boards, strict=True):
            found = narrow.to("numpy")
            planes = np.ascontiguousarray(found.planes).view(np.uint64).reshape(len(wide), 112)
            assert np.array_equal(expand(planes, narrow.metadata["rule50"]), wide.planes)
            assert np.array_equal(found.policy, wide.policy.astype(np.float16))
            assert np.array_equal(found.values, wide.values.astype(np.float16), equal_nan=True)


def test_who_holds_every_buffer_is_told_and_goes_on_when_one_is_free(
    games: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.selfplay.prefetch.HELD_S", 0.1)
    rest = (16 + 3 * 7) * 1388 + 16 * 1301  # the reservoir, and positions that batches are made of
    with loader(games, memory_budget=(3 * 7 * 36_200 + 1000) * 8 // 7 + rest) as run:
        held = [run.next() for _ in range(3)]
        rows = [row for batch in held for row in rows_of(batch)]
        with pytest.raises(BudgetError, match="in your hands"):
            run.next()
        del held
        rows += rows_of(run.next())
    assert rows == epoch(games)[: len(rows)]


def test_a_transform_that_fails_loses_no_row(games: Path) -> None:
    failures = iter([True, False, True, False, False])

    def fails(batch: SelfPlayBatch) -> SelfPlayBatch:
        if next(failures, False):
            raise ValueError("not now")
        return batch

    found: list[Row] = []
    with loader(games, transforms=[fails]) as run:
        while len(found) < 21:
            try:
                found += rows_of(run.next())
            except ValueError:
                found += rows_of(run.get_batch(2))
    assert found == epoch(games)[: len(found)]


def test_every_row_is_explained_and_is_what_lies_there(games: Path, tmp_path: Path) -> None:
    with loader(games, cache_dir=tmp_path / "run", seed=9) as run:
        batches = list(run.get_iterator())
        batches.append(run.next())
        for step, batch in enumerate(batches):
            for row, origin in zip(rows_of(batch), run.explain(step), strict=True):
                (span,) = origin.spans
                frames = open_chunk_source(span.file).read(origin.sample)
                tensors = FrameTensors.of(frames.select([span.start]))
                assert row == (
                    span.document,
                    span.start,
                    origin.use,
                    tensors.planes.tobytes() + tensors.policy.tobytes() + tensors.values.tobytes(),
                )
        game = batches[2].metadata["chunk"][0]
        assert batches[-1].metadata["epoch"] == 1
        run.reset()
        again = list(run.get_iterator())
        steps = [step for step, batch in enumerate(again) if game in batch.metadata["chunk"]]
    assert [rows_of(batch) for batch in again] == [rows_of(batch) for batch in batches[:-1]]
    assert 2 in steps


def test_sampled_positions_differ_from_epoch_to_epoch(games: Path) -> None:
    with loader(games, positions=0.25) as run:
        epochs = [all_rows(run.get_iterator()) for _ in range(4)]
    together = [row[:2] for rows in epochs for row in rows]
    assert sorted(together) == sorted(row[:2] for row in epoch(games))


def test_what_cannot_be_read_is_counted_and_left_out(games: Path, tmp_path: Path) -> None:
    folder = tmp_path / "games"
    shutil.copytree(games, folder)
    (folder / "cut.gz").write_bytes(varied_game(5, 1)[:-20])
    (folder / "empty.gz").write_bytes(b"")
    (folder / "notes.txt").write_text("hello")
    broken = bytearray((folder / "training-0001.tar").read_bytes())
    broken[1100:1110] = b"damage here"[:10]
    (folder / "training-0001.tar").write_bytes(broken)
    with loader(folder) as run:
        found = all_rows(run.get_iterator())
        losses = run.losses
    assert len(found) == len(epoch(games)) - LENGTHS[0]
    assert sum(losses.values()) == 4, losses


# A folder that grows


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def grown(folder: Path, run: SelfPlayDataLoader, steps: int = 140) -> list[Row]:
    """Train while archives come."""
    rows, number = [], 3
    for step in range(steps):
        rows += rows_of(run.next())
        if step % 15 == 7 and step < 60:
            add(folder, number)
            number += 1
            total = chunks_of(run)
            while chunks_of(run) <= total:
                rows += rows_of(run.next())
    return rows


@pytest.fixture
def growing(games: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "growing"
    shutil.copytree(games, folder)
    return folder


def test_new_games_enter_old_ones_leave_and_a_pass_repeats_none(growing: Path, tmp_path: Path) -> None:
    with live(growing, tmp_path / "run") as run:
        grown(growing, run)
        origins = [origin for step in range(run.step) for origin in run.explain(step)]
        with pytest.raises(UnknownLength, match="watched"):
            run.get_num_batches()
    files = {Path(origin.spans[0].file).name for origin in origins}
    assert {"training-0003.tar", "training-0006.tar"} <= files
    assert "training-0000.tar" not in files  # it was older than the window from the start
    assert len({(origin.spans[0].document, origin.spans[0].start, origin.use) for origin in origins}) == len(origins)


def test_a_journal_replays_a_run_bit_for_bit_with_any_number_of_threads(growing: Path, tmp_path: Path) -> None:
    with live(growing, tmp_path / "run") as run:
        rows = grown(growing, run)
    journal = tmp_path / "run" / "admissions.jsonl"
    with live(growing, tmp_path / "again", replay=journal, threads=3) as again:
        found = list[Row]()
        while len(found) < len(rows):
            found += rows_of(again.next())
    assert found == rows


def test_a_run_that_watches_goes_on_at_its_state_and_takes_in_what_came_meanwhile(
    growing: Path, tmp_path: Path
) -> None:
    with live(growing, tmp_path / "run") as run:
        grown(growing, run, 60)
        state = run.state_dict()
        run.commit(state)
        expected = [rows_of(run.next()) for _ in range(9)]
        total = chunks_of(run)
    with live(growing, tmp_path / "run", threads=2) as run:
        run.load_state_dict(state)
        assert [rows_of(run.next()) for _ in range(9)] == expected
    add(growing, 20)
    with live(growing, tmp_path / "run", threads=2) as run:
        run.load_state_dict(state)
        while run.step == state["step"] or chunks_of(run) < total + len(LENGTHS):
            run.next()
        assert chunks_of(run) == total + len(LENGTHS)


def test_a_state_needs_a_folder_while_files_come(growing: Path) -> None:
    with loader(growing, watch=True) as run:
        run.next()
        with pytest.raises(LoaderError, match="cache_dir"):
            run.state_dict()


def test_other_games_are_not_taken_for_those_of_a_state(games: Path, tmp_path: Path) -> None:
    with loader(games) as run:
        run.next()
        state = run.state_dict()
    other = tmp_path / "other"
    other.mkdir()
    add(other, 1)
    with loader(other) as run:
        run.load_state_dict(state)
        with pytest.raises(LoaderError, match="not those that the state was saved for"):
            run.next()
    with loader(games, shuffle_frames=8) as run, pytest.raises(StateError, match="shuffle_frames=16"):
        run.load_state_dict(state)


@pytest.mark.parametrize("waits", [False, True])
def test_close_ends_everything_within_a_second(tmp_path: Path, growing: Path, waits: bool) -> None:
    before = threading.active_count()
    empty = tmp_path / "empty"
    empty.mkdir()
    run = live(empty if waits else growing, tmp_path / "run")
    ended = threading.Event()

    def train() -> None:
        with pytest.raises(ClosedError):
            while True:
                run.next()
        ended.set()

    trainer = threading.Thread(target=train)
    trainer.start()
    time.sleep(0.3)
    began = time.monotonic()
    run.close()
    assert ended.wait(5)
    assert time.monotonic() - began < 1
    trainer.join()
    wait_for(lambda: threading.active_count() <= before)


def test_no_epoch_and_no_state_leaves_files_open_or_a_reservoir_behind(
    games: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the collector never comes by."""
    made: list[weakref.ref[Reservoir]] = []

    def noted(*how: Any) -> Reservoir:
        reservoir = Reservoir(*how)
        made.append(weakref.ref(reservoir))
        return reservoir

    monkeypatch.setattr(frame_shuffler, "Reservoir", noted)

    def left() -> tuple[int, int]:
        targets = [file.readlink() for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
        return sum(target.is_relative_to(games) for target in targets), sum(each() is not None for each in made)

    gc.disable()
    try:
        with loader(games, batch_size=16) as run:
            state = run.state_dict()
            for _ in range(3):
                all_rows(iter(run))
                assert left() == (0, 0)
            run.next()
            run.load_state_dict(state)
            run.next()
            assert left()[1] == 1
            run.reset()
        assert left() == (0, 0)
        assert len(made) == 5
    finally:
        gc.enable()


def test_numbers_of_its_stages_are_served_until_it_is_closed(games: Path) -> None:
    with loader(games) as run:
        url = serve_metrics(run).url
        with urllib.request.urlopen(url) as early:
            assert early.read() == b"# HELP millstream_seconds_total Seconds since the start.\n" + (
                b"# TYPE millstream_seconds_total counter\nmillstream_seconds_total 0.0\n"
            )
        run.next()
        with urllib.request.urlopen(url) as answer:
            assert b'millstream_stage_items_out_total{stage="chunk_reader"}' in answer.read()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url)


def test_settings_may_be_named_one_by_one(games: Path) -> None:
    named = {"weights": {"q_weight": 6.0}, "rescore": {"st_q_theta": 0.5}, "positions": 1}
    whole = {"weights": PositionWeights(q_weight=6.0), "rescore": RescoreSettings(st_q_theta=0.5), "positions": 1}
    with loader(games, **named) as one, loader(games, **whole) as other:
        assert one.task == other.task
    with pytest.raises(RecipeError, match="there is no setting 'theta'"):
        loader(games, rescore={"theta": 0.5})


def test_an_empty_folder_says_so(tmp_path: Path) -> None:
    with loader(tmp_path) as run, pytest.raises(LoaderError, match="no position to train on"):
        run.next()


def test_a_keyword_that_does_not_fit_is_named_with_what_was_meant(tmp_path: Path) -> None:
    folder = example_folder(1, folder=tmp_path)
    with pytest.raises(LoaderError, match="position_cache='1XB' is not a size"):
        SelfPlayDataLoader(folder, position_cache="1XB")
    with pytest.raises(TypeError, match=r"'batchsize'; did you mean 'batch_size'\? there are num_chunks, .*batch_size"):
        SelfPlayDataLoader(folder, batchsize=3)  # type: ignore[call-arg]
    with SelfPlayDataLoader(folder, position_cache=0, watch=False) as loader:
        assert loader.task.position_cache == 0


def test_a_state_of_other_positions_is_refused_with_what_to_pass(tmp_path: Path) -> None:
    folder = example_folder(1, folder=tmp_path)
    with SelfPlayDataLoader(folder, positions=2, watch=False) as loader:
        state = loader.state_dict()
    with (
        SelfPlayDataLoader(folder, positions=1 / 4, watch=False) as loader,
        pytest.raises(StateError, match=r"hint: pass positions=2 to resume") as error,
    ):
        loader.load_state_dict(state)
    assert "PositionSampling" not in str(error.value.hint)


def test_the_last_epoch_is_explained_without_a_folder_too(games: Path) -> None:
    with loader(games) as run:
        steps = len(list(run))
        files = {Path(origin.spans[0].file).name for step in range(steps) for origin in run.explain(step)}
        assert files == {path.name for path in games.iterdir()}
        list(run), list(run)
        with pytest.raises(LoaderError, match="epoch 0 are forgotten"):
            run.explain(0)
