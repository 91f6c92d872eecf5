"""Files that go away while they are needed: what is lost with them is said, and nothing else changes.

What is lost is in the journal, so it is lost again when the run is gone on with or replayed, whatever is there then.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import StageError
from millstream.games import Descriptors
from millstream.loaders import SelfPlayDataLoader
from millstream.selfplay import LostUse, RankRole, RunFiles, admission
from millstream.selfplay.chunk_feed import chunk_source_feed
from millstream.selfplay.events import Loss, LostSlots
from millstream.selfplay.journal import read_losses
from selfplay.growing_games import LENGTHS, Row, add, chunks_of, live, loader, rows_of, three_archives

GAMES = len(LENGTHS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return three_archives(tmp_path / "games")


def steps(run: SelfPlayDataLoader, count: int) -> list[Row]:
    return [row for _ in range(count) for row in rows_of(run.next())]


def archive(folder: Path, number: int) -> Path:
    return folder / f"training-{number:04d}.tar"


def known(rows: list[Row]) -> list[tuple[int, int, int]]:
    return [row[:3] for row in rows]


def replayed(folder: Path, run: Path, rows: int, **keywords: Any) -> list[Row]:
    found = list[Row]()
    how = {**keywords, "replay": run / "admissions.jsonl", "threads": 3}
    with live(folder, run.parent / "replay", **how) as again:
        while len(found) < rows:
            found += rows_of(again.next())
    return found[:rows]


def test_positions_of_the_reservoir_that_are_lost_leave_the_order_of_the_others_as_it_was(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(admission, "LOOK_EVERY", 8)
    keywords: dict[str, Any] = {"num_chunks": GAMES, "shuffle_frames": 40}
    with live(folder, tmp_path / "run", **keywords) as run:
        before = steps(run, 8)
        add(folder, 3)
        while run._run.mirror.window.lower < GAMES:  # the newest archive alone is in the window now
            before += steps(run, 1)
            run._run._catch_up()
        state = run.state_dict()
        waiting = [origin for origin in run._run.mirror.origins.tolist() if origin[0] < GAMES]
        expected = steps(run, 20)
    assert waiting
    archive(folder, 2).unlink()
    with live(folder, tmp_path / "run", **keywords) as run, caplog.at_level(logging.WARNING):
        run.load_state_dict(state)
        again = steps(run, 18)
        lost = run.losses["gone from the reservoir"]
    kept = [row for row in expected if row[0] >= GAMES]
    assert len(kept) < len(expected)
    assert again[: len(kept)] == kept[: len(again)]
    assert 0 < lost <= len(waiting)
    assert "training-0002.tar is gone" in caplog.text
    shutil.copy(add(tmp_path, 2), archive(folder, 2))
    assert replayed(folder, tmp_path / "run", len(before + again), **keywords) == before + again


@pytest.mark.parametrize("keywords", [{}, {"hanse": 0.5}, {"positions": 0.5}, {"threads": 2}, {"num_chunks": None}])
def test_whatever_is_gone_nothing_comes_twice_what_is_missing_is_said_and_the_journal_replays_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keywords: dict[str, Any]
) -> None:
    monkeypatch.setattr(admission, "LOOK_EVERY", 8)
    copies, cache, chance = tmp_path / "copies", tmp_path / "run", random.Random(repr(keywords))
    shutil.copytree(folder, copies)
    rows, state = list[Row](), None
    for number in range(3, 7):  # lives
        with live(folder, cache, poll_s=0.01, **keywords) as run:
            if state is not None:
                run.load_state_dict(state)
            rows += steps(run, chance.randrange(1, 12))
            total = chunks_of(run)
            shutil.copy(add(folder, number), copies)
            while chunks_of(run) == total:
                rows += steps(run, 1)
            state = run.state_dict()
            waiting = known_in(run)
            steps(run, chance.randrange(12))  # these are made again
        for gone in chance.sample(range(1, number), 2):  # with the newest one it would wait for games
            archive(folder, gone).unlink(missing_ok=True)
    for path in copies.iterdir():
        shutil.copy(path, folder)
    assert len(set(known(rows))) == len(rows)
    losses = read_losses(cache / "admissions.jsonl", 0)
    assert {type(loss) for loss in losses} == {LostUse, LostSlots}
    if "positions" not in keywords:
        assert not missing(rows, waiting, losses)
    assert replayed(folder, cache, len(rows), **keywords) == rows


def known_in(run: SelfPlayDataLoader) -> list[tuple[int, int, int]]:
    """What waits in the reservoir, and of the game that is being used."""
    run._run._catch_up()
    place, waiting = run._run.mirror.place, [tuple(origin) for origin in run._run.mirror.origins.tolist()]
    assert place is not None
    return waiting + [(place.chunk, ply, place.use) for ply in range(place.used, place.of)]


def missing(rows: list[Row], waiting: list[tuple[int, int, int]], losses: list[Loss]) -> list[tuple[int, int]]:
    """Uses of which positions did not come, though nobody said that they are lost."""
    said = {(loss.game, loss.use): loss.came for loss in losses if isinstance(loss, LostUse)}
    dropped = {game for loss in losses if isinstance(loss, LostSlots) for game in range(loss.first, loss.stop)}
    came = Counter((game, use) for game, _, use in [*known(rows), *waiting])
    found = {*came, *((game, use) for game, last in came for use in range(last))} - set(said)
    return [each for each in found if came[each] != LENGTHS[each[0] % GAMES] and each[0] not in dropped]


def test_what_was_lost_under_the_run_is_lost_when_it_is_gone_on_with_though_the_file_is_back(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_source_feed, "Descriptors", partial(Descriptors, most=1))  # files do not stay open
    with live(folder, tmp_path / "run", poll_s=60.0) as run:  # nobody tells that it is gone
        before = steps(run, 4)
        state = run.state_dict()
        shutil.move(archive(folder, 1), tmp_path / "away.tar")
        rows = steps(run, 60)
        assert run.losses["file gone"]
    lost = read_losses(tmp_path / "run" / "admissions.jsonl", 0)
    assert {loss.name for loss in lost} == {"training-0001.tar"}
    shutil.copy(tmp_path / "away.tar", archive(folder, 1))
    with live(folder, tmp_path / "run", threads=3) as run:
        run.load_state_dict(state)
        assert steps(run, 60) == rows
        assert run.losses["file gone"]
    assert replayed(folder, tmp_path / "run", len(before + rows)) == before + rows


def test_a_file_in_the_place_of_another_with_as_many_games_is_another_source(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "LOOK_EVERY", 8)
    with live(folder, tmp_path / "run", num_chunks=None) as run:
        rows = steps(run, 6)
        state = run.state_dict()
    add(folder, 1, seed=77)
    with live(folder, tmp_path / "run", num_chunks=None) as run:
        run.load_state_dict(state)
        while run.step < 300 and not any(row[0] // GAMES == 3 for row in rows):
            rows += steps(run, 1)
        files = run._run.entries_at(0)
    assert [entry.name for entry in files].count("training-0001.tar") == 2
    assert len(known(rows)) == len(set(known(rows)))
    assert {loss.name for loss in read_losses(tmp_path / "run" / "admissions.jsonl", 0)} == {"training-0001.tar"}


def test_a_copy_is_the_same_source(folder: Path, tmp_path: Path) -> None:
    with live(folder, tmp_path / "run") as run:
        steps(run, 4)
        state = run.state_dict()
        expected = steps(run, 10)
    shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    with live(tmp_path / "copy", tmp_path / "run") as run:
        run.load_state_dict(state)
        assert steps(run, 10) == expected
    assert not read_losses(tmp_path / "run" / "admissions.jsonl", 0)


def test_without_watching_each_game_of_a_file_that_is_gone_is_counted(folder: Path, tmp_path: Path) -> None:
    with loader(folder, cache_dir=tmp_path / "run") as run:
        before = [rows_of(next(iter(run))) for _ in range(2)]
        state = run.state_dict()
        rest = [row for batch in run for row in rows_of(batch)]
    archive(folder, 1).unlink()
    with loader(folder, cache_dir=tmp_path / "run") as run:
        run.load_state_dict(state)
        again = [row for batch in run for row in rows_of(batch)]
    assert {row[:2] for row in again} == {row[:2] for row in rest if row[0] // GAMES != 1}
    lost = [loss for loss in read_losses(tmp_path / "run" / "admissions.jsonl", 0) if isinstance(loss, LostUse)]
    came = {row[0] for batch in before for row in batch}
    assert {loss.game for loss in lost} >= set(range(GAMES, 2 * GAMES)) - came


def test_a_replay_does_without_no_file(folder: Path, tmp_path: Path) -> None:
    with live(folder, tmp_path / "run") as run:
        steps(run, 4)
    archive(folder, 1).unlink()
    with pytest.raises(StageError, match=r"training-0001\.tar is not there"):
        replayed(folder, tmp_path / "run", 10)


def lose_an_archive(folder: Path, cache: Path) -> None:
    """A run is gone on with after the second archive was removed."""
    with live(folder, cache) as run:
        steps(run, 4)
        state = run.state_dict()
    archive(folder, 1).unlink()
    with live(folder, cache) as run:
        run.load_state_dict(state)
        steps(run, 10)


def test_a_run_that_begins_has_not_lost_what_another_one_has(folder: Path, tmp_path: Path) -> None:
    lose_an_archive(folder, tmp_path / "run")
    assert read_losses(tmp_path / "run" / "admissions.jsonl", 0)
    assert not RunFiles(tmp_path / "run", part=RankRole(1, 2, led=True)).journal.losses(0)


def test_a_journal_names_what_was_lost(folder: Path, tmp_path: Path) -> None:
    lose_an_archive(folder, tmp_path / "run")
    said = [json.loads(line) for line in (tmp_path / "run" / "admissions.jsonl").read_text().splitlines()]
    assert {line["lost"] for line in said if "lost" in line} == {"training-0001.tar"}


def test_games_of_a_file_that_was_replaced_are_not_weighed_by_the_new_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "LOOK_EVERY", 8)
    with live(folder, tmp_path / "run", num_chunks=None, hanse=1.0) as run:
        steps(run, 3)
        state = run.state_dict()
        add(folder, 1, (30, 30), seed=77)
        deadline = time.monotonic() + 60
        while chunks_of(run) == 24 and time.monotonic() < deadline:
            steps(run, 1)
        steps(run, 10)
    with live(folder, tmp_path / "run", num_chunks=None, hanse=1.0) as run:
        run.load_state_dict(state)
        rows = steps(run, 1)
        while not any(row[0] // GAMES == 3 for row in rows) and time.monotonic() < deadline:
            rows += steps(run, 1)
    assert {row[0] // GAMES for row in rows} >= {0, 2, 3}
    assert len(known(rows)) == len(set(known(rows)))


def test_a_name_that_is_no_text_is_one_like_others(folder: Path, tmp_path: Path) -> None:
    archive(folder, 1).rename(folder / os.fsdecode(b"training-\xff.tar"))
    with live(folder, tmp_path / "run", num_chunks=None) as run:
        before, state = steps(run, 6), run.state_dict()
        rows = steps(run, 6)
    with live(folder, tmp_path / "run", num_chunks=None) as run:
        run.load_state_dict(json.loads(json.dumps(state)))
        assert steps(run, 6) == rows
        files = {Path(row.spans[0].file).name for row in run.explain(0)}
    assert files <= {"training-0000.tar", "training-0002.tar", "training-\udcff.tar"}
    assert replayed(folder, tmp_path / "run", len(before + rows), num_chunks=None) == before + rows


@pytest.mark.parametrize("num_chunks", [GAMES, None])
def test_a_run_goes_on_as_it_was_when_the_heaviest_game_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_chunks: int | None
) -> None:
    """It was looked at when it was there; whoever follows later can no longer look."""
    monkeypatch.setattr(admission, "LOOK_EVERY", 8)
    (tmp_path / "games").mkdir()
    heavy = add(tmp_path / "games", 0, (20, 20))
    how: dict[str, Any] = {"num_chunks": num_chunks, "hanse": 1.0, "positions": 1, "batch_size": 4, "shuffle_frames": 4}
    with live(tmp_path / "games", tmp_path / "run", **how) as run:
        steps(run, 3)
        add(tmp_path / "games", 1)
        heavy.unlink()
        deadline = time.monotonic() + 60
        assert run._run.graph is not None
        window = run._run.graph.chunk_set.window
        while window.lower < 2 and time.monotonic() < deadline:
            steps(run, 1)
        steps(run, 10)
        while any(origin[0] < 2 for origin in run._run.mirror.origins.tolist()):
            steps(run, 1)
        state = run.state_dict()
        assert run._run.mirror.window.heaviest == window.heaviest == 20
        rest = steps(run, 15)
    with live(tmp_path / "games", tmp_path / "run", **how) as run:
        run.load_state_dict(state)
        assert steps(run, 15) == rest


def test_a_game_that_was_weighed_and_is_gone_when_a_run_resumes_was_still_the_heaviest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first positions came, so it was drawn by its weight: a replay, which has its file, draws by that, too."""
    monkeypatch.setattr(admission, "LOOK_EVERY", 8)
    folder = tmp_path / "games"
    folder.mkdir()
    heavy, _ = add(folder, 0, (30,)), add(folder, 1)
    how: dict[str, Any] = {"hanse": 1.0, "batch_size": 1, "num_chunks": None}
    rows, place = list[Row](), None
    with live(folder, tmp_path / "run", **how) as run:
        while place is None or not place.used < place.of == 30:
            rows += steps(run, 1)
            run._run._catch_up()
            place = run._run.mirror.place
        state = run.state_dict()
    beside = heavy.rename(tmp_path / "beside.tar")
    with live(folder, tmp_path / "run", **how) as run:
        run.load_state_dict(state)
        rows += steps(run, 60)
    beside.rename(heavy)
    assert replayed(folder, tmp_path / "run", len(rows), **how) == rows
