from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from loaders.samples import counting_file, counting_loader
from millstream.loaders.agreement import differences

RANK = """
    import sys
    import torch.distributed as dist
    from millstream import OrderError, PretrainDataLoader

    rank, meeting, change, *paths = sys.argv[1:]
    rank = int(rank)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    settings = dict(chunk_size=10, dtype="uint16", framework="numpy", rank=rank, world_size=2)
    if rank == 1 and change not in ("nothing", "data", "step"):
        settings[change] = {"seed": 7, "batch_size": 3, "chunk_size": 5, "rank": 0, "labels": "same"}[change]
    with PretrainDataLoader(paths[rank], **settings) as loader:
        if change == "step" and rank == 0:
            loader.seek(3)
        for _ in range(2):
            try:
                loader.next()
                print("agreed")
            except OrderError as error:
                print(error)
    dist.barrier()
    dist.destroy_process_group()
"""


def both_ranks(folder: Path, change: str) -> list[str]:
    """Let two processes make a loader, the second one with a change; give what each of them says."""
    same = counting_file(folder / "same.bin")
    other = counting_file(folder / "other.bin", 1002) if change == "data" else same
    command = [sys.executable, "-c", textwrap.dedent(RANK)]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), folder / "meeting", change, same, other], stdout=-1, stderr=-1, text=True
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=60) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    return [out for out, _ in said]


def test_ranks_that_agree_go_on(tmp_path: Path) -> None:
    assert both_ranks(tmp_path, "nothing") == ["agreed\nagreed\n"] * 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("seed", "seed is 0 on rank 0, 7 on rank 1"),
        ("batch_size", "batch_size is 8 on rank 0, 3 on rank 1"),
        ("data", "data of 'data' is "),
        ("step", "step is 3 on rank 0, 0 on rank 1"),
        ("rank", "ranks 0, 1 both read as rank 0"),
    ],
)
def test_every_rank_hears_what_differs_and_where_again_and_again(tmp_path: Path, change: str, complaint: str) -> None:
    for said in both_ranks(tmp_path, change):
        assert said.count(complaint) == 2
        assert "agreed" not in said
        assert said.count(" on rank ") in (0, 4)  # the one thing that differs, and nothing else


def test_a_loader_of_one_process_asks_nobody(tmp_path: Path) -> None:
    with counting_loader(tmp_path) as loader, counting_loader(tmp_path) as same:
        assert differences([loader.plan_fingerprint(), {**same.plan_fingerprint(), "rank": 1}]) == []
        loader.next()
        assert differences([{**run.plan_fingerprint(), "rank": n} for n, run in enumerate((loader, same))]) == [
            "step is 1 on rank 0, 0 on rank 1"
        ]
