from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from torch import distributed

from forks import in_child
from loaders.samples import counting_file, counting_loader
from millstream import OrderError, PretrainDataLoader
from millstream.loaders.handover import differences
from selfplay.growing_games import loader as games_loader
from selfplay.growing_games import three_archives

T = TypeVar("T")

CHANGES = {
    "seed": "seed is 0 on rank 0, 7 on rank 1",
    "batch_size": "batch_size is 8 on rank 0, 3 on rank 1",
    "data": "data of 'data' is ",
    "step": "step is 3 on rank 0, 0 on rank 1",
    "rank": "ranks 0, 1 both read as rank 0",
}

Said = dict[str, list[list[str]]]


def by_two_ranks(meeting: Path, work: Callable[[int], T]) -> list[T]:
    """What each of two processes gives that torch has brought together."""

    def joined(rank: int) -> T:
        distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
        done = work(rank)
        distributed.barrier()
        distributed.destroy_process_group()
        return done

    return [result() for result in [in_child(partial(joined, rank)) for rank in range(2)]]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """Let two processes make loaders, the second one each time with a change: what each rank says, twice."""
    folder = tmp_path_factory.mktemp("ranks")
    same, other = counting_file(folder / "same.bin"), counting_file(folder / "other.bin", 1002)

    def said_by(rank: int, change: str) -> Iterator[str]:
        changed = {"seed": 7, "batch_size": 3, "rank": 0}
        settings: dict[str, Any] = {"chunk_size": 10, "dtype": "uint16", "framework": "numpy"}
        settings |= {"rank": rank, "world_size": 2}
        if rank == 1 and change in changed:
            settings[change] = changed[change]
        with PretrainDataLoader(other if rank == 1 and change == "data" else same, **settings) as loader:
            if change == "step" and rank == 0:
                loader.seek(3)
            for _ in range(2):
                try:
                    loader.next()
                    yield "agreed"
                except OrderError as error:
                    yield str(error)

    changes = ["nothing", *CHANGES]
    told = by_two_ranks(folder / "meeting", lambda rank: [list(said_by(rank, change)) for change in changes])
    return {change: [each[number] for each in told] for number, change in enumerate(changes)}


def test_ranks_that_agree_go_on(said: Said) -> None:
    assert said["nothing"] == [["agreed", "agreed"]] * 2


@pytest.mark.parametrize("change", CHANGES)
def test_every_rank_hears_what_differs_and_where_again_and_again(said: Said, change: str) -> None:
    for rank in said[change]:
        assert len(rank) == 2
        for complaint in rank:
            assert complaint.count(CHANGES[change]) == 1
            assert complaint.count(" on rank ") in (0, 2)  # the one thing that differs, and nothing else


def test_a_loader_of_one_process_asks_nobody(tmp_path: Path) -> None:
    with counting_loader(tmp_path) as loader, counting_loader(tmp_path) as same:
        assert differences([loader.plan_fingerprint(), {**same.plan_fingerprint(), "rank": 1}]) == []
        loader.next()
        assert differences([{**run.plan_fingerprint(), "rank": n} for n, run in enumerate((loader, same))]) == [
            "step is 1 on rank 0, 0 on rank 1"
        ]


def test_ranks_that_find_other_games_each_for_itself_hear_it_at_the_first_batch(tmp_path: Path) -> None:
    folder = three_archives(tmp_path / "games")
    three_archives(folder / "older")

    def look(rank: int) -> tuple[int, list[str]]:
        errors = []
        with games_loader(folder, rank=rank, world_size=2) as run:
            rows = sum(len(batch) for batch in run)
        with games_loader(folder / ("." if rank else "older"), rank=rank, world_size=2) as run:
            for _ in range(2):
                try:
                    run.next()
                except OrderError as error:
                    errors.append(str(error))
        return rows, errors

    for rows, errors in by_two_ranks(tmp_path / "meeting", look):
        assert rows
        assert sum("files is" in error and "on rank 1" in error for error in errors) == 2
