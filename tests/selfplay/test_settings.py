"""Every setting of a self-play run does what it says, or is refused."""

from __future__ import annotations

import gzip
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from games.archives import varied_game
from millstream.batches import SelfPlayBatch
from millstream.errors import BudgetError, LoaderError, OrderError, RecipeError, StageError, StoreError, UnknownLength
from millstream.games.chunk_source import FRAME_BYTES
from millstream.loaders import SelfPlayDataLoader
from millstream.loaders.runs import RecordedSelfPlay
from millstream.selfplay import HanseSampling, PositionSampling, PositionWeights
from millstream.selfplay.row_log import STEP
from millstream.storage import records_of
from selfplay.growing_games import LENGTHS, Row, add, archives_and_a_game, loader, rows_of


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archives_and_a_game(tmp_path_factory.mktemp("all") / "games")


def all_rows(batches: Iterator[SelfPlayBatch]) -> list[Row]:
    return [row for batch in batches for row in rows_of(batch)]


def epoch(folder: Path, **keywords: Any) -> list[Row]:
    with loader(folder, **keywords) as run:
        return all_rows(run.get_iterator())


def test_without_shuffling_positions_come_as_they_lie_in_the_files(games: Path, tmp_path: Path) -> None:
    names, threads = ["single.gz", "training-0000.tar", "training-0001.tar", "training-0002.tar"], 3
    lengths = [6, *LENGTHS * 3]
    with loader(games, shuffle=False, threads=threads, cache_dir=tmp_path / "run") as run:
        rows = all_rows(run.get_iterator())
        files = [Path(origin.spans[0].file).name for step in range(run.step) for origin in run.explain(step)]
        again = rows_of(run.next())
    assert [row[:2] for row in rows] == [(chunk, ply) for chunk, length in enumerate(lengths) for ply in range(length)]
    assert list(dict.fromkeys(files)) == names
    assert [row[:2] for row in again] == [row[:2] for row in rows[:7]]
    with pytest.raises(LoaderError, match="pad_last=True"):
        loader(games, pad_last=True)


def test_a_run_without_shuffling_goes_on_at_its_state(games: Path, tmp_path: Path) -> None:
    expected = epoch(games, shuffle=False)
    with loader(games, shuffle=False, cache_dir=tmp_path / "run") as run:
        before = [row for _ in range(5) for row in rows_of(run.next())]
        state = run.state_dict()
    with loader(games, shuffle=False, cache_dir=tmp_path / "run", batch_size=4) as run:
        run.load_state_dict(state)
        assert before + all_rows(run.get_iterator()) == expected


# How many batches


def counted(run: SelfPlayDataLoader) -> tuple[int, int]:
    """What an epoch says that it has, and what it has."""
    return run.get_num_batches(), sum(1 for _ in run.get_iterator())


@pytest.mark.parametrize("num_chunks", [None, 1, 5, 8, 20])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_are_counted_anew_in_each_epoch(tmp_path: Path, num_chunks: int | None, drop_last: bool) -> None:
    for number in range(2):
        add(tmp_path, number)
    with loader(tmp_path, num_chunks=num_chunks, drop_last=drop_last, batch_size=4) as run:
        said, found = counted(run)
        assert said == found
        add(tmp_path, 2, (3, 5))
        run.next()
        said = run.get_num_batches()
        add(tmp_path, 3)  # too late for this epoch
        assert run.get_num_batches() == said == 1 + sum(1 for _ in run.get_iterator())
        said, found = counted(run)
        assert said == found


@pytest.mark.parametrize("keywords", [{"rescore": {}}, {"positions": 1}, {"hanse": 1.0}, {"rules": "values"}])
def test_batches_are_not_counted_where_nobody_can_know_them(games: Path, keywords: dict[str, Any]) -> None:
    with loader(games, **keywords) as run, pytest.raises(UnknownLength, match="shows when they are read"):
        run.get_num_batches()


def test_batches_are_not_counted_once_a_game_could_not_be_read(tmp_path: Path) -> None:
    add(tmp_path, 0)
    broken = bytearray(add(tmp_path, 1).read_bytes())
    broken[1100:1110] = b"damage here"[:10]
    (tmp_path / "training-0001.tar").write_bytes(broken)
    with loader(tmp_path) as run:
        list(run.get_iterator())
        with pytest.raises(UnknownLength, match="some games cannot be read"):
            run.get_num_batches()
        list(run.get_iterator())
        with pytest.raises(UnknownLength, match="some games cannot be read"):
            run.get_num_batches()


# Memory


@pytest.mark.parametrize(("output", "row_bytes"), [("boards", 4652), ("float16", 18_088)])
@pytest.mark.parametrize("keeps", ["copies", "released batches"])
def test_a_batch_that_was_copied_or_released_holds_no_buffer(
    games: Path, output: str, row_bytes: int, keeps: str
) -> None:
    kept = []
    with loader(games, output=output) as run:
        for _ in range(12):
            batch = run.next()
            kept.append(batch.copy() if keeps == "copies" else batch)
            batch.release()
        assert run._filler.budget.used_bytes < 6 * 7 * row_bytes


def test_a_budget_that_does_not_hold_the_reservoir_and_kept_positions_is_refused_with_one_that_does(
    games: Path,
) -> None:
    for keywords in ({"shuffle_frames": 1 << 17}, {"position_cache": "20MB", "positions": 1}, {"batch_size": 1024}):
        with pytest.raises(BudgetError, match="of which are needed: the reservoir") as error:
            loader(games, memory_budget="4MB", **keywords)
        assert error.value.hint is not None
        enough = int(error.value.hint.split("memory_budget=")[1].split()[0])
        with loader(games, memory_budget=enough, **keywords) as run:
            run.next()


def test_a_small_budget_lets_fewer_games_wait_and_changes_no_row(games: Path) -> None:
    with loader(games, memory_budget="2MB") as small, loader(games, memory_budget="4GB") as large:
        assert (small.task.queue_games, large.task.queue_games) == (1, 16)
        assert all_rows(small.get_iterator()) == all_rows(large.get_iterator()) == epoch(games)


def test_the_least_budget_that_is_accepted_is_enough_to_train_with(games: Path) -> None:
    with pytest.raises(BudgetError) as error:
        loader(games, memory_budget=1)
    two = int(error.value.message.split("two batches, one in your hands ")[1].replace(",", ""))
    rest = [int(each.replace(",", "")) for each in re.findall(r"\) ([\d,]+\d)", error.value.message)]
    least = sum(rest) + two * 8 // 7 + 8
    with pytest.raises(BudgetError):
        loader(games, memory_budget=least - 64)
    with loader(games, memory_budget=least) as run:
        assert all_rows(run.get_iterator()) == epoch(games)


def dense_game(frames: int) -> bytes:
    """No entry of its policies is missing: so it takes twelve times as much in memory as others, and packs better."""
    raw = np.zeros((frames, FRAME_BYTES[6]), np.uint8)
    raw[:, :8].view("<u4")[:] = 6, 1
    return gzip.compress(raw.tobytes(), 1, mtime=0)


def test_games_that_outgrow_a_budget_are_an_error_and_without_one_they_are_not(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.gz").write_bytes(dense_game(100))
    told = "bytes in memory, where 1,048,576 are for a game"
    with loader(tmp_path, memory_budget="10MB") as run, pytest.raises(StageError, match=told):
        list(run)
    how: dict[str, Any] = {"shuffle_frames": 200, "positions": 50}
    with loader(tmp_path, memory_budget="3MB", **how) as run, pytest.raises(StageError, match="the reservoir take"):
        list(run)
    with loader(tmp_path) as run:
        rows = rows_of(run.next())
        assert run.get_profiling_results()["memory"].keys() >= {"window", "games", "reservoir", "positions"}
        assert len(rows + all_rows(run.get_iterator())) == 400


@pytest.mark.parametrize("keywords", [{"shuffle": False}, {"shuffle_frames": 32}])
def test_a_budget_has_room_for_positions_of_many_moves(tmp_path: Path, keywords: dict[str, Any]) -> None:
    raw = np.full((50, FRAME_BYTES[6]), 0, np.uint8)
    raw[:, :8].view("<u4")[:] = 6, 1
    raw[:, 8:7440].view("<f4")[:, 218:] = -1
    (tmp_path / "0.gz").write_bytes(gzip.compress(raw.tobytes(), 1, mtime=0))
    assert len(epoch(tmp_path, memory_budget="10MB", **keywords)) == 50


def test_a_game_that_no_memory_is_for_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "0.gz").write_bytes(varied_game(5, 0))
    (tmp_path / "1.gz").write_bytes(dense_game(3000))
    with (tmp_path / "2.bin").open("wb") as file:
        file.truncate(1 << 31)
    with loader(tmp_path) as run:
        assert len(all_rows(run.get_iterator())) == 5
        assert {reason: run.losses[reason] for reason in ("too large", "too long")} == {"too large": 1, "too long": 1}


# What would mean nothing


@pytest.mark.parametrize("positions", [0, -1, 1.0, 1.9, 4.0, float("nan"), float("inf"), True, "3"])
def test_positions_are_a_rate_below_1_or_a_whole_number(games: Path, positions: Any) -> None:
    with pytest.raises(LoaderError, match="neither a rate nor a count"):
        loader(games, positions=positions)


@pytest.mark.parametrize(
    "keywords",
    [
        {},
        {"positions": 0.5},
        {"positions": PositionSampling(count=2)},
        {"hanse": HanseSampling()},
        {"positions": 0.5, "hanse": HanseSampling()},
    ],
)
def test_weights_by_which_nothing_is_chosen_are_refused(games: Path, keywords: dict[str, Any]) -> None:
    with pytest.raises(LoaderError, match="weights= has no effect"):
        loader(games, weights={"q_weight": 6.0}, **keywords)


def test_weights_are_for_positions_and_for_games(games: Path) -> None:
    weights = PositionWeights(q_weight=6.0)
    with loader(games, weights=weights, positions=2, hanse=0.5) as run:
        assert run.task.positions == PositionSampling(count=2, weights=weights)
        assert run.task.hanse == HanseSampling(0.5, weights)
    with loader(games, weights=weights, positions=0.5, hanse=0.5) as run:
        assert run.task.positions == PositionSampling(rate=0.5)
    with pytest.raises(LoaderError, match="without a count"):
        PositionSampling(rate=0.5, weights=weights)


# Archives that are cut


@pytest.mark.parametrize("partial", ["drop", "keep"])
def test_of_an_archive_that_is_cut_its_whole_games_are_dropped_or_kept_and_it_is_counted(
    tmp_path: Path, partial: str
) -> None:
    add(tmp_path, 0)
    cut = add(tmp_path, 1)
    with tarfile.open(cut) as archive:
        os.truncate(cut, archive.getmembers()[5].offset_data + 10)
    os.utime(cut, (1, 1))
    with loader(tmp_path, partial=partial) as run:
        said, found = counted(run)
        rows = all_rows(run.get_iterator())
        assert run.losses == {"truncated": 2}  # in each epoch
    assert said == found
    assert len(rows) == sum(LENGTHS) + (sum(LENGTHS[:5]) if partial == "keep" else 0)


def test_there_are_two_ways_to_take_an_archive_that_is_cut(games: Path) -> None:
    with pytest.raises(LoaderError, match="partial='some'"):
        loader(games, partial="some")


_MEANINGLESS: list[tuple[dict[str, Any], str]] = [
    ({"path": 3}, "path=3 is no folder"),
    ({"path": None}, "path=None is no folder"),
    ({"path": ""}, "path='' is no folder"),
    ({"path": b"games"}, "is no folder"),
    ({"path": ["a", "b"]}, "a list of 2"),
    ({"path": "none/*.gz"}, "is a pattern"),
    ({"path": __file__}, "is a file, and no folder"),
    ({"path": "none/training.0.gz"}, "is a file, and no folder"),
    ({"watch": "no"}, "watch='no'"),
    ({"poll_s": "x"}, "poll_s='x'"),
    ({"poll_s": 0}, "poll_s=0"),
    ({"poll_s": float("nan")}, "poll_s=nan"),
    ({"hanse": "a"}, "hanse='a'"),
    ({"hanse": float("inf")}, "hanse=inf"),
    ({"hanse": -1}, "hanse=-1"),
    ({"hanse": True}, "hanse=True"),
    ({"match": [1]}, "match=.1. names no fields"),
    ({"match": {"visits": "a"}}, "visits shall be 'a'"),
    ({"match": {"visits": (5, 1)}}, "which no frame is"),
    ({"match": {"visit": 1}}, "no field 'visit'"),
    ({"predicates": len}, "no list of functions"),
    ({"predicates": ["x"]}, "no list of functions"),
    ({"predicates": "x"}, "no list of functions"),
    ({"rules": "move"}, "no rules 'move'"),
    ({"shuffle_frames": 10**15}, "is too many"),
    ({"position_cache": []}, "position_cache"),
    ({"cache_dir": ""}, "cache_dir='' is no path"),
    ({"world_size": True}, "world_size=True"),
    ({"rescore": {"syzygy_paths": 5}}, "syzygy_paths is 5"),
    ({"replay": "nowhere/admissions.jsonl"}, "there is no such journal"),
    ({"replay": "."}, "there is no such journal"),
    ({"replay": 3}, "there is no such journal"),
]


@pytest.mark.parametrize(("keywords", "said"), _MEANINGLESS, ids=[str(each) for each, _ in _MEANINGLESS])
def test_what_means_nothing_is_refused_when_a_loader_is_made(games: Path, keywords: dict[str, Any], said: str) -> None:
    with pytest.raises((LoaderError, OrderError, RecipeError), match=said) as refused:
        SelfPlayDataLoader(**{"path": games, **keywords})
    assert refused.value.hint


@pytest.mark.parametrize("step", ["a", -1, 1.5, None, True])
def test_only_a_step_can_be_explained(games: Path, step: Any) -> None:
    with loader(games) as run, pytest.raises(OrderError, match="there is no step"):
        run.explain(step)


@pytest.mark.parametrize("game", ["x", -1, 1.5, None, True])
def test_only_a_game_has_steps(games: Path, tmp_path: Path, game: Any) -> None:
    with loader(games, cache_dir=tmp_path) as run:
        run.next()
        for source in (None, "single.gz"):
            with pytest.raises(LoaderError, match="is no game") as refused:
                run.steps_of(game, source)
            assert refused.value.hint
    with pytest.raises(LoaderError, match="is no game"):
        RecordedSelfPlay(tmp_path).steps_of(game)


def test_an_index_of_rows_that_does_not_fit_the_journal_is_told_as_damage(games: Path, tmp_path: Path) -> None:
    with loader(games, cache_dir=tmp_path) as run:
        origins = run.next().metadata
        said = np.fromfile(tmp_path / "rows.idx", STEP)[0]
        elsewhere = records_of(
            STEP, (int(said["end"]), int(said["hash"]), len(origins["ply"]), 5)
        )  # no epoch that there was
        elsewhere.tofile(tmp_path / "rows.idx")
        with pytest.raises(StoreError, match="is of no source that entered") as told:
            run.explain(0)
        assert told.value.hint
    with pytest.raises(StoreError, match="is of no source that entered"):
        RecordedSelfPlay(tmp_path).explain(0)


def test_a_batch_that_the_memory_has_no_room_for_is_told_with_its_bytes(games: Path) -> None:
    row = 4 * (112 * 64 + 1858 + 18)
    with loader(games, batch_size=10**12) as run:
        with pytest.raises(BudgetError, match=f"batch_size=1000000000000 takes {row * 10**12:,} bytes") as told:
            run.next()
        assert "smaller batch_size" in str(told.value.hint)


def test_a_reservoir_that_the_memory_has_no_room_for_is_told_with_its_bytes(
    games: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_left(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "empty", nothing_left)
    with pytest.raises(BudgetError, match="shuffle_frames=1000: so many positions take 1,388,000 bytes") as told:
        loader(games, shuffle_frames=1000)
    assert "smaller shuffle_frames" in str(told.value.hint)


def test_a_local_shuffle_means_nothing_here_and_is_refused(games: Path) -> None:
    with pytest.raises(LoaderError, match='shuffle="local"') as error:
        loader(games, shuffle="local")
    assert "num_chunks= and shuffle_frames=" in str(error.value.hint)
