"""Ranks that watch a folder see the same games at the same steps: the first one says what enters."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import ClosedError, LoaderError, StageError
from millstream.games import example_folder
from millstream.loaders import SelfPlayDataLoader
from millstream.selfplay import admission
from selfplay.growing_games import LENGTHS, Row, add, chunks_of, live, loader, rows_of, three_archives


def ranks_of(folder: Path, run: Path, ranks: int, **keywords: Any) -> list[SelfPlayDataLoader]:
    return [live(folder, run, rank=rank, world_size=ranks, **keywords) for rank in range(ranks)]


def trained(runs: Sequence[SelfPlayDataLoader], steps: int) -> list[Row]:
    """Steps of all ranks at the same time; gives the rows of all, in the order of the run."""
    with ThreadPoolExecutor(len(runs)) as pool:
        batches = list(pool.map(lambda run: [rows_of(run.next()) for _ in range(steps)], runs, timeout=30))
    return [row for step in zip(*batches, strict=True) for rows in step for row in rows]


def closed(runs: Sequence[SelfPlayDataLoader]) -> None:
    for run in runs:
        run.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return three_archives(tmp_path / "games")


def test_all_ranks_take_in_what_the_first_one_does_and_another_number_of_them_goes_on(
    folder: Path, tmp_path: Path
) -> None:
    runs = ranks_of(folder, tmp_path / "run", 3, batch_size=3)
    rows = trained(runs, 10)
    for number in (3, 4):
        add(folder, number)
        total = chunks_of(runs[0])
        while any(chunks_of(run) <= total for run in runs):
            rows += trained(runs, 5)
    states = [run.state_dict() for run in runs]
    behind = trained(runs, 20)
    assert states[0] == states[1] == states[2]
    closed(runs)

    pair = ranks_of(folder, tmp_path / "run", 2, batch_size=5)
    for run in pair:
        run.load_state_dict(states[0])
    again = trained(pair, 18)
    closed(pair)
    assert again == behind

    journal = tmp_path / "run" / "admissions.jsonl"
    with live(folder, tmp_path / "alone", replay=journal, batch_size=9) as alone:
        found = list[Row]()
        while len(found) < len(rows + behind):
            found += rows_of(alone.next())
    assert found == rows + behind


def test_ranks_that_go_on_without_a_file_lose_the_same(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "LOOK_EVERY", 8)
    runs = ranks_of(folder, tmp_path / "run", 2)
    rows = trained(runs, 6)
    states = [run.state_dict() for run in runs]
    add(folder, 3)
    while all(chunks_of(run) == 16 for run in runs):  # what enters now is in the journal behind the state
        trained(runs, 5)
    closed(runs)
    for number in (2, 3):
        (folder / f"training-{number:04d}.tar").rename(tmp_path / f"training-{number:04d}.tar")
    runs = ranks_of(folder, tmp_path / "run", 2)
    for run, state in zip(runs, states, strict=True):
        run.load_state_dict(state)
    add(folder, 4)
    rows += trained(runs, 15)
    states = [run.state_dict() for run in runs]
    closed(runs)
    assert states[0] == states[1]
    assert len({row[:3] for row in rows}) == len(rows)
    for number in (2, 3):
        (tmp_path / f"training-{number:04d}.tar").rename(folder / f"training-{number:04d}.tar")
    with live(folder, tmp_path / "alone", replay=tmp_path / "run" / "admissions.jsonl", batch_size=14) as alone:
        assert [row for _ in range(21) for row in rows_of(alone.next())] == rows


def test_a_rank_that_follows_shares_its_descriptors_among_all_files(folder: Path, tmp_path: Path) -> None:
    runs = ranks_of(folder, tmp_path / "run", 2, num_chunks=None)
    trained(runs, 1)
    for number in range(3, 80):
        add(folder, number, (2,))
    while chunks_of(runs[1]) < 24 + 77:
        trained(runs, 10)
    trained(runs, 30)
    graph = runs[1]._run.graph
    assert graph is not None
    shared = graph.feed.descriptors
    assert all(source._descriptors is shared for source in graph.chunk_set._sources.values())
    assert 40 < len(shared) <= 64
    closed(runs)


def test_a_rank_that_follows_may_come_first_and_follows_no_run_that_is_over(folder: Path, tmp_path: Path) -> None:
    old = ranks_of(folder, tmp_path / "run", 2)
    trained(old, 3)
    closed(old)
    shutil.rmtree(folder)
    folder.mkdir()
    add(folder, 7)
    runs = ranks_of(folder, tmp_path / "run", 2)
    found = list[list[Row]]()
    early = threading.Thread(target=lambda: found.append(rows_of(runs[1].next())))
    early.start()
    early.join(0.3)
    assert early.is_alive()
    mine = rows_of(runs[0].next())
    early.join(20)
    assert len(mine) == len(found[0]) == 7
    assert not {row[:2] for row in mine} & {row[:2] for row in found[0]}
    closed(runs)


def test_a_rank_that_lags_behind_has_all_steps_that_the_first_one_made_before_it_ended(
    folder: Path, tmp_path: Path
) -> None:
    first, second = ranks_of(folder, tmp_path / "run", 2)
    trained([second, first], 1)
    trained([first], 30)
    first.close()
    assert len(trained([second], 30)) == 30 * 7
    second.close()


def test_a_rank_that_waits_for_the_first_one_can_be_closed(folder: Path, tmp_path: Path) -> None:
    (run,) = ranks_of(folder, tmp_path / "run", 2)[1:]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run.next)
        threading.Event().wait(0.2)
        run.close()
        with pytest.raises(ClosedError):
            waiting.result(2)


def test_without_watching_too_the_first_rank_says_which_files_a_pass_has(folder: Path, tmp_path: Path) -> None:
    runs = [loader(folder, cache_dir=tmp_path / "run", rank=rank, world_size=2, batch_size=3) for rank in range(2)]
    first, second = rows_of(runs[0].next()), list[Row]()
    for epoch, archives in enumerate((3, 4)):  # one comes between the first look of one rank and that of the other
        if not epoch:
            add(folder, 3)
        for run, rows in zip(runs, (first, second), strict=True):
            for batch in run:
                rows += rows_of(batch)
        assert len({row[:2] for row in first + second}) == len(first + second) == archives * sum(LENGTHS)
        assert [run.epoch for run in runs] == [epoch + 1] * 2
        first, second = [], []
    states = [run.state_dict() for run in runs]
    closed(runs)
    assert states[0] == states[1]


def test_ranks_without_watching_that_lose_a_file_go_on_as_one(folder: Path, tmp_path: Path) -> None:
    how: dict[str, Any] = {"cache_dir": tmp_path / "run", "world_size": 2, "batch_size": 3}
    runs = [loader(folder, rank=rank, **how) for rank in range(2)]
    trained(runs, 2)
    states = [run.state_dict() for run in runs]
    closed(runs)
    (folder / "training-0001.tar").unlink()
    add(folder, 3)
    runs = [loader(folder, rank=rank, **how) for rank in range(2)]
    for run, state in zip(runs, states, strict=True):
        run.load_state_dict(state)
    with ThreadPoolExecutor(2) as pool:
        for epoch in (0, 1):
            rows = [row for found in pool.map(lambda run: [r for b in run for r in rows_of(b)], runs) for row in found]
            assert len({row[:2] for row in rows}) == len(rows)
            states = [run.state_dict() for run in runs]
            assert states[0] == states[1]
            assert len(rows) == 3 * sum(LENGTHS) or not epoch
    closed(runs)


def test_a_rank_that_lacks_a_file_which_the_first_one_has_read_says_so(folder: Path, tmp_path: Path) -> None:
    runs = ranks_of(folder, tmp_path / "run", 2)
    trained(runs, 2)
    states = [run.state_dict() for run in runs]
    closed(runs)
    first, second = ranks_of(folder, tmp_path / "run", 2)
    first.load_state_dict(states[0])
    trained([first], 6)
    (folder / "training-0002.tar").unlink()
    second.load_state_dict(states[1])
    with pytest.raises(LoaderError, match="other rows here than on rank 0"):
        trained([second], 6)
    closed([first, second])


@pytest.mark.parametrize("ahead", [0, 1])
def test_ranks_from_which_a_file_is_taken_never_go_apart(tmp_path: Path, ahead: int) -> None:
    folder = example_folder(120, 10, tmp_path / "games")
    runs = ranks_of(folder, tmp_path / "run", 2, num_chunks=None, prefetch=1)
    trained(runs, 5)
    trained([runs[ahead]], 1 + 4 * (ahead == 0))
    for number in range(0, 120, 4):
        (folder / f"training.{number}.gz").unlink()
    trained([runs[1 - ahead]], 1)
    with pytest.raises((LoaderError, StageError), match=r"went away|other rows here|rank 0 has ended"):
        trained(runs, 200)
    closed(runs)


def test_ranks_that_watch_need_a_folder_that_they_share(folder: Path) -> None:
    with pytest.raises(LoaderError, match="cache_dir"):
        SelfPlayDataLoader(folder, rank=0, world_size=2)


@pytest.mark.parametrize("other", [{"seed": 6}, {"num_chunks": 7}, {"batch_size": 8}, {"positions": 0.5}])
def test_ranks_with_other_settings_are_told_which_one(folder: Path, tmp_path: Path, other: dict[str, Any]) -> None:
    (name,) = other
    how = {"world_size": 2, "batch_size": 7, "seed": 5, "num_chunks": 16}
    with live(folder, tmp_path / "run", rank=0, **how) as first:
        first.next()
        with (
            live(folder, tmp_path / "run", rank=1, **{**how, **other}) as second,
            pytest.raises(StageError, match=rf"{name} is .* on rank 0, .* on this rank"),
        ):
            second.next()


def test_states_from_before_the_first_step_go_on_each_on_its_rank(folder: Path, tmp_path: Path) -> None:
    runs = ranks_of(folder, tmp_path / "run", 2)
    states = [run.state_dict() for run in runs]
    rows = trained(runs, 6)
    closed(runs)
    runs = ranks_of(folder, tmp_path / "run", 2)
    for run, state in zip(runs, states, strict=True):
        run.load_state_dict(state)
    assert trained(runs, 6) == rows
    closed(runs)


def test_every_rank_explains_old_steps_by_what_the_first_one_wrote(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.selfplay.row_log.REMEMBERED", 4)
    runs = ranks_of(folder, tmp_path / "run", 2)
    rows = trained(runs, 8)
    for rank, run in enumerate(runs):
        for step in (0, 7):
            first = 7 * (2 * step + rank)
            found = [(origin.spans[0].document, origin.spans[0].start, origin.use) for origin in run.explain(step)]
            assert found == [row[:3] for row in rows[first : first + 7]]
    assert runs[1].steps_of(rows[0][0]) == runs[0].steps_of(rows[0][0])
    closed(runs)
