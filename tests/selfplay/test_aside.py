"""What a run has written stays whole, whoever begins in its folder; a state of it is enough to have it back."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import LoaderError, StoreError
from millstream.loaders import SelfPlayDataLoader
from millstream.storage import disk
from selfplay.growing_games import Row, live, loader, rows_of, three_archives


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return three_archives(tmp_path / "games")


def steps(run: SelfPlayDataLoader, count: int) -> list[list[Row]]:
    return [rows_of(run.next()) for _ in range(count)]


def committed(run: SelfPlayDataLoader) -> dict[str, Any]:
    state = run.state_dict()
    run.commit(state)
    return state


def content(folder: Path) -> dict[str, bytes]:
    whole = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "indices")
    return {str(path.relative_to(folder)): path.read_bytes() for path in whole}


@pytest.mark.parametrize("watch", [True, False])
def test_a_run_that_was_begun_in_the_folder_of_another_one_takes_nothing_from_it(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, watch: bool
) -> None:
    cache = tmp_path / "run"
    with live(folder, cache, watch=watch) as first:
        steps(first, 6)
        explained = first.explain(2)
        state = committed(first)
        rest = steps(first, 6)
    with live(folder, cache, watch=watch) as second, caplog.at_level(logging.WARNING):
        begun = steps(second, 3)
        other = committed(second)
        more = steps(second, 3)
        assert "put aside as admissions.jsonl.1" in caplog.text
    for _ in range(2):
        with live(folder, cache, watch=watch) as run:
            run.load_state_dict(state)
            assert steps(run, 6) == rest
            assert run.explain(2) == explained
            run.commit(state)
        with live(folder, cache, watch=watch) as run:
            run.load_state_dict(other)
            assert steps(run, 3) == more
            run.commit(other)
            assert [origin.use for origin in run.explain(1)] == [row[2] for row in begun[1]]


def test_a_state_of_the_very_beginning_knows_its_run(folder: Path, tmp_path: Path) -> None:
    with live(folder, tmp_path / "run") as run:
        begin = run.state_dict()
        rows = steps(run, 6)
    (folder / "training-0002.tar").rename(folder / "training-0003.tar")
    with live(folder, tmp_path / "run") as other:
        steps(other, 6)
        later = other.state_dict()
        rest = steps(other, 4)
    with live(folder, tmp_path / "run") as run:
        run.load_state_dict(later)
        assert steps(run, 4) == rest
    (folder / "training-0003.tar").rename(folder / "training-0002.tar")
    with live(folder, tmp_path / "run") as run:
        run.load_state_dict(begin)
        assert steps(run, 6) == rows


def test_what_a_state_without_a_folder_begins_cuts_no_other_run(folder: Path, tmp_path: Path) -> None:
    with loader(folder) as run:
        steps(run, 2)
        state = run.state_dict()
    with loader(folder, cache_dir=tmp_path / "run", shuffle_frames=8) as run:
        steps(run, 3)
    before = content(tmp_path / "run")
    with loader(folder, cache_dir=tmp_path / "run") as run:
        run.load_state_dict(state)
        steps(run, 1)
        after = content(tmp_path / "run")
    assert {f"{name}.1": data for name, data in before.items()}.items() <= after.items()


def test_the_journal_of_the_folder_that_is_written_into_is_not_replayed(folder: Path, tmp_path: Path) -> None:
    with live(folder, tmp_path / "run") as run:
        steps(run, 3)
    before = content(tmp_path / "run")
    with pytest.raises(LoaderError, match="where a new run would be written"):
        live(folder, tmp_path / "run", replay=tmp_path / "games" / ".." / "run" / "admissions.jsonl")
    assert content(tmp_path / "run") == before


@pytest.mark.parametrize("failing", range(8))
def test_wherever_the_power_goes_no_run_loses_its_files_to_another_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    cache, rename, renamed = tmp_path / "run", disk.rename, 0
    with live(folder, cache) as run:
        steps(run, 3)
        state, explained = run.state_dict(), run.explain(1)
        rest = steps(run, 3)

    def fails(old: Path, new: Path) -> None:
        nonlocal renamed
        renamed += 1
        if renamed > failing:
            raise OSError(5, "the power went")
        rename(old, new)

    for loads in (False, True):
        renamed = 0
        with live(folder, cache) as run, monkeypatch.context() as patched:
            if loads:
                run.load_state_dict(state)
            patched.setattr(disk, "rename", fails)
            with suppress(StoreError):
                steps(run, 3)
    with live(folder, cache) as run:
        run.load_state_dict(state)
        assert steps(run, 3) == rest
        assert run.explain(1) == explained
