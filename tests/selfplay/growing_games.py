"""A folder of games that grows, and a run over it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from games.archives import varied_game, write_tar
from millstream.batches import SelfPlayBatch
from millstream.loaders import SelfPlayDataLoader

LENGTHS = (5, 1, 9, 3, 7, 2, 8, 4)
"""Frames of the games of an archive."""
WRITTEN_S = 120
"""How long ago archives were written: nobody waits to see whether one still grows."""
Row = tuple[int, int, int, bytes]


def add(folder: Path, number: int, lengths: tuple[int, ...] = LENGTHS, *, seed: int | None = None) -> Path:
    """An archive of games, which appears whole."""
    first = 100 * number if seed is None else seed
    games = [varied_game(length, first + index) for index, length in enumerate(lengths)]
    beside, path = folder / f".{number}", folder / f"training-{number:04d}.tar"
    write_tar(beside, [(f"games/{index}.gz", game) for index, game in enumerate(games)])
    written = time.time() - WRITTEN_S
    os.utime(beside, (written, written))
    beside.rename(path)
    return path


def three_archives(folder: Path) -> Path:
    """A new folder with the first archives."""
    folder.mkdir()
    for number in range(3):
        add(folder, number)
    return folder


def archives_and_a_game(folder: Path) -> Path:
    """The same, and a game that is a file of its own."""
    three_archives(folder)
    (folder / "single.gz").write_bytes(varied_game(6, 999))
    os.utime(folder / "single.gz", (0, 0))
    return folder


def loader(folder: Path, **keywords: Any) -> SelfPlayDataLoader:
    how = {"watch": False, "framework": "numpy", "shuffle_frames": 16, "batch_size": 7, "seed": 5}
    return SelfPlayDataLoader(folder, **{**how, **keywords})


def live(folder: Path, run: Path, **keywords: Any) -> SelfPlayDataLoader:
    """A run over a folder that is looked at often, and a window of two archives."""
    how = {"watch": True, "cache_dir": run, "poll_s": 0.05, "num_chunks": 16}
    return loader(folder, **{**how, **keywords})


def rows_of(batch: SelfPlayBatch) -> list[Row]:
    """Each row: its game, its ply, the use, and everything in its tensors."""
    facts = zip(*(batch.metadata[key].tolist() for key in ("chunk", "ply", "use")), strict=True)
    return [
        (*fact, b"".join(batch[name][row].tobytes() for name in ("planes", "policy", "values")))
        for row, fact in enumerate(facts)
    ]


def chunks_of(run: SelfPlayDataLoader) -> int:
    """How many games have entered so far."""
    assert run._run.graph is not None
    total: int = run._run.graph.chunk_set.window.total
    return total
