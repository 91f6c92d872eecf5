from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from loaders.growing_games import three_archives
from loaders.samples import counting_file, counting_loader
from millstream.loaders.agreement import differences

CHANGES = {
    "seed": "seed is 0 on rank 0, 7 on rank 1",
    "batch_size": "batch_size is 8 on rank 0, 3 on rank 1",
    "data": "data of 'data' is ",
    "step": "step is 3 on rank 0, 0 on rank 1",
    "rank": "ranks 0, 1 both read as rank 0",
}

RANK = """
    import json, sys
    import torch.distributed as dist
    from millstream import OrderError, PretrainDataLoader

    rank, meeting, same, other, *changes = sys.argv[1:]
    rank = int(rank)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)

    def said(change):
        settings = dict(chunk_size=10, dtype="uint16", framework="numpy", rank=rank, world_size=2)
        if rank == 1 and change in ("seed", "batch_size", "rank"):
            settings[change] = {"seed": 7, "batch_size": 3, "rank": 0}[change]
        with PretrainDataLoader(other if rank == 1 and change == "data" else same, **settings) as loader:
            if change == "step" and rank == 0:
                loader.seek(3)
            for _ in range(2):
                try:
                    loader.next()
                    yield "agreed"
                except OrderError as error:
                    yield str(error)

    print(json.dumps({change: list(said(change)) for change in changes}))
    dist.barrier()
    dist.destroy_process_group()
"""

Said = dict[str, list[list[str]]]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """Let two processes make loaders, the second one each time with a change: what each rank says, twice."""
    folder = tmp_path_factory.mktemp("ranks")
    files = [counting_file(folder / "same.bin"), counting_file(folder / "other.bin", 1002)]
    command = [sys.executable, "-c", textwrap.dedent(RANK)]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), folder / "meeting", *files, "nothing", *CHANGES], stdout=-1, stderr=-1, text=True
        )
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=60) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    told = [json.loads(out) for out, _ in outputs]
    return {change: [each[change] for each in told] for change in told[0]}


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


LOOKS = """
    import sys
    from pathlib import Path
    import torch.distributed as dist
    from loaders.growing_games import loader
    from millstream import OrderError

    rank, meeting, folder = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    with loader(folder, rank=rank, world_size=2) as run:
        print(sum(len(batch) for batch in run))
    with loader(folder / ("." if rank else "older"), rank=rank, world_size=2) as run:
        for _ in range(2):
            try:
                run.next()
            except OrderError as error:
                print(error)
    dist.barrier()
    dist.destroy_process_group()
"""


def test_ranks_that_find_other_games_each_for_itself_hear_it_at_the_first_batch(tmp_path: Path) -> None:
    folder = three_archives(tmp_path / "games")
    three_archives(folder / "older")
    command = [sys.executable, "-c", textwrap.dedent(LOOKS)]
    tests = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    ranks = [
        subprocess.Popen(
            [*command, str(rank), tmp_path / "meeting", folder], stdout=-1, stderr=-1, text=True, env=tests
        )
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=60) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    for out, _ in outputs:
        rows, *errors = out.splitlines()
        assert int(rows)
        assert sum("files is" in error and "on rank 1" in error for error in errors) == 2
