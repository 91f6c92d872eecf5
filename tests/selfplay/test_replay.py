"""A replay is the run that the journal is of, or an error that says what differs; it ends where the journal does."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import LoaderError, MillstreamError, StageError, StoreError
from millstream.loaders import SelfPlayDataLoader
from selfplay.growing_games import Row, add, chunks_of, live, loader, rows_of, three_archives


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return three_archives(tmp_path / "games")


def steps(run: SelfPlayDataLoader, count: int) -> list[list[Row]]:
    return [rows_of(run.next()) for _ in range(count)]


def replayed(folder: Path, journal: Path, **keywords: Any) -> SelfPlayDataLoader:
    return loader(folder, **{"replay": journal, "watch": True, "num_chunks": 16, **keywords})


def until_it_ends(run: SelfPlayDataLoader) -> list[list[Row]]:
    found = list[list[Row]]()
    with pytest.raises(LoaderError, match=r"admissions\.jsonl: the journal ends here"):
        for _ in range(10_000):
            found.append(rows_of(run.next()))
    with pytest.raises(LoaderError, match="the journal ends here"):
        run.next()
    return found


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_replay_has_all_steps_of_its_run_and_ends_with_the_journal(
    folder: Path, tmp_path: Path, ranks: int, threads: int
) -> None:
    with live(folder, tmp_path / "run") as run:
        rows = steps(run, 9)
        add(folder, 3)
        while chunks_of(run) == 16:
            rows += steps(run, 1)
        rows += steps(run, 9)
    flat = [row for step in rows for row in step]
    journal = tmp_path / "run" / "admissions.jsonl"
    found = list[list[list[Row]]]()
    for rank in range(ranks):
        with replayed(folder, journal, rank=rank, world_size=ranks, threads=threads) as again:
            found.append(until_it_ends(again))
    whole = [row for step in zip(*found, strict=True) for part in step for row in part]
    assert whole[: len(flat)] == flat[: len(whole)]
    assert len(whole) > len(flat) - 7 * ranks


def test_a_replay_that_is_gone_on_with_ends_where_it_would_have(folder: Path, tmp_path: Path) -> None:
    with live(folder, tmp_path / "run") as run:
        steps(run, 9)
    journal = tmp_path / "run" / "admissions.jsonl"
    with replayed(folder, journal, cache_dir=tmp_path / "again") as run:
        steps(run, 4)
        state = run.state_dict()
        rest = until_it_ends(run)
    with replayed(folder, journal, cache_dir=tmp_path / "again") as run:
        run.load_state_dict(state)
        assert until_it_ends(run) == rest


def test_a_replay_ends_where_the_last_file_went(folder: Path, tmp_path: Path) -> None:
    with live(folder, tmp_path / "run") as run:
        steps(run, 3)
        kept = tmp_path / "kept"
        shutil.copytree(folder, kept)
        for path in folder.iterdir():
            path.unlink()
        rows = until_starved(run)
    with replayed(kept, tmp_path / "run" / "admissions.jsonl") as again:
        assert len(until_it_ends(again)) >= 3 + rows


def until_starved(run: SelfPlayDataLoader) -> int:
    made = 0
    graph = run._run.graph
    assert graph is not None
    while len(graph.chunk_set.window):
        run.next()
        made += 1
    return made


def test_epochs_are_replayed_as_far_as_they_were_made(folder: Path, tmp_path: Path) -> None:
    with loader(folder, cache_dir=tmp_path / "run") as run:
        rows = [[rows_of(batch) for batch in run] for _ in range(2)]
    with loader(folder, replay=tmp_path / "run" / "admissions.jsonl") as again:
        assert [[rows_of(batch) for batch in again] for _ in range(2)] == rows
        with pytest.raises(LoaderError, match="the journal ends here"):
            again.next()


@pytest.mark.parametrize("other", [{"seed": 6}, {"num_chunks": 7}, {"watch": False}, {"shuffle_frames": 8}])
def test_other_settings_are_named(folder: Path, tmp_path: Path, other: dict[str, Any]) -> None:
    with live(folder, tmp_path / "run") as run:
        steps(run, 2)
    ((name, value),) = other.items()
    with pytest.raises(LoaderError, match=rf"the run had {name}=.*, this loader has {name}={value}"):
        replayed(folder, tmp_path / "run" / "admissions.jsonl", **other)


def test_another_file_of_the_same_name_is_named(folder: Path, tmp_path: Path) -> None:
    with live(folder, tmp_path / "run") as run:
        steps(run, 2)
    add(folder, 1, seed=777)
    with (
        replayed(folder, tmp_path / "run" / "admissions.jsonl") as again,
        pytest.raises(StageError, match=r"training-0001\.tar is another file"),
    ):
        again.next()


def test_what_is_no_journal_is_refused_at_once(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("enter a.tar\n")
    with pytest.raises(StoreError, match="not the journal of a self-play run"):
        replayed(folder, tmp_path / "empty")
    for path in (Path("/dev/null"), tmp_path / "text", folder):
        with pytest.raises(MillstreamError, match=str(path)):
            replayed(folder, path)
