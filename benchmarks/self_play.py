"""Games of self-play -> batches: frames per CPU second of the whole loader, against unpacking the same games alone.

    python benchmarks/self_play.py [--seconds 10] [--rounds 3] [--output benchmarks/results/selfplay.md]

Needs what requirements-selfplay.txt lists. 400 random games of up to 150 moves in 4 archives, in the page cache; they
are made once, which takes a minute. One thread per stage, batches of 1024 as numpy. Each row is a fresh process, rounds
are interleaved, and the best counts: other work on the machine only adds. The start until the first batch, which
fills the shuffle buffer, is told apart; what is measured comes after it, when each game was used before: at its first
use all of a game is unpacked, later only what lies before its last wanted position. "Unpacking alone" is the package
`deflate` over the same games in memory in the same round: a ratio to it means as many games per CPU second.

"Moves legal" looks at whole games by all rules (`rules="legal"`); "rescored" takes results without blunders and brings
games to another input format.

Readers of one archive are threads that read all its games at the same time, as many each second as one alone does if
the figure is their number.

The memory is that of a window of 10^6 games in 10^3 archives, as the chunk set and its mirror hold it, while archives
enter and leave, and of 10^5 frames to shuffle, with the mirror's note of where each is from.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deflate
import numpy as np

import machine
import processes
from millstream.games import ORIGIN, ChunkSource, Descriptors, Reservoir, open_chunk_source
from millstream.games.codec import read_frames
from millstream.games.descriptors import FileIdentity
from millstream.games.index_cache import PLACE
from millstream.loaders import SelfPlayDataLoader
from millstream.selfplay import DeliveredState, Window
from millstream.selfplay.chunk_feed import ReservoirMoves

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
GAMES, PER_TAR, PLIES, SEED = 400, 100, 150, 7
BATCH = 1024
RESCORE = {"deblunder_threshold": 0.10, "deblunder_width": 0.06, "new_input_format": 4}
LOADERS: dict[str, dict[str, Any]] = {
    "all frames": {"shuffle_frames": 20_000},
    "all frames, not shuffled": {"shuffle": False},
    "1 in 32": {"shuffle_frames": 8192, "positions": 1 / 32},
    "hanse, one position of a game": {"shuffle_frames": 2048, "positions": 1, "hanse": 1.0},
    "the same with position_cache": {"shuffle_frames": 2048, "positions": 1, "hanse": 1.0, "position_cache": "100MB"},
    "all frames, moves legal": {"shuffle_frames": 20_000, "rules": "legal"},
    "all frames, moves legal, rescored": {"shuffle_frames": 20_000, "rules": "legal", "rescore": RESCORE},
    "1 in 32, moves legal": {"shuffle_frames": 8192, "positions": 1 / 32, "rules": "legal"},
    "1 in 32, moves legal, rescored": {
        "shuffle_frames": 8192,
        "positions": 1 / 32,
        "rules": "legal",
        "rescore": RESCORE,
    },
}
CHUNKS, TARS, FRAMES = 1_000_000, 1_000, 100_000


@dataclass(frozen=True)
class Sample:
    """What one process measured."""

    per_cpu_s: float
    """Frames, or unpacked games, per CPU second."""
    per_s: float
    start_s: float
    start_cpu_s: float
    private: int


def make_data(folder: Path) -> Path:
    """The archives, made where they are missing."""
    from games.chunks import games, write_tar, zipped

    folder.mkdir(parents=True, exist_ok=True)
    for first in range(0, GAMES, PER_TAR):
        path = folder / f"training-run1-synthetic-20260101-{first // PER_TAR:04d}.tar"
        if not path.exists():
            made = [(name, zipped(frames)) for name, frames in games(PER_TAR, seed=SEED, first=first, plies=PLIES)]
            write_tar(path.with_suffix(".part"), made)
            path.with_suffix(".part").rename(path)
    return folder


def packed_games(folder: Path) -> list[bytes]:
    """All games as they lie in the archives."""
    import tarfile

    packed = []
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            files = [tar.extractfile(member) for member in tar if member.name.endswith(".gz")]
            packed += [file.read() for file in files if file is not None]
    return packed


def unpack(folder: Path, seconds: float) -> Sample:
    """Games per CPU second of unpacking alone."""
    packed = packed_games(folder)
    sizes = [int.from_bytes(game[-4:], "little") for game in packed]
    began, cpu, done = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < seconds / 2:
        for game, size in zip(packed, sizes, strict=True):
            deflate.gzip_decompress(game, size)
        done += len(packed)
    cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - began
    return Sample(done / cpu_s, done / wall_s, 0, 0, 0)


def load(folder: Path, seconds: float, keywords: dict[str, Any]) -> Sample:
    """Frames per CPU second of a loader after its start."""
    before = processes.private_bytes()
    began, cpu = time.perf_counter(), time.process_time()
    how: dict[str, Any] = {"batch_size": BATCH, "seed": 1, "threads": 1, "framework": "numpy", **keywords}
    with SelfPlayDataLoader(folder, **how) as loader:
        loader.next()
        start_s, start_cpu_s = time.perf_counter() - began, time.process_time() - cpu
        for _ in range(4):
            loader.next()
        began, cpu, batches = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - began < seconds:
            loader.next()
            batches += 1
        cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - began
        private = processes.private_bytes() - before
    return Sample(batches * BATCH / cpu_s, batches * BATCH / wall_s, start_s, start_cpu_s, private)


def readers(folder: Path, seconds: float, threads: int) -> float:
    """Games per second that some threads read from one archive."""
    source = open_chunk_source(sorted(folder.glob("*.tar"))[0], Descriptors())

    def read_all(_: int) -> None:
        for index in range(len(source)):
            source.read(index, source.frames[index : index + 1] - 1)  # the last position: all of the game is unpacked

    began, passes = time.perf_counter(), 0
    with ThreadPoolExecutor(threads) as pool:
        while time.perf_counter() - began < seconds / 2:
            list(pool.map(read_all, range(threads)))
            passes += threads
    return passes * len(source) / (time.perf_counter() - began)


def index_memory(_folder: Path) -> tuple[int, int]:
    """Bytes that the index of a large window takes, as counted by itself and as the system sees it."""
    descriptors, identity, each = Descriptors(), FileIdentity(1, 2, 3), CHUNKS // TARS
    before = processes.private_bytes()
    windows = [Window(CHUNKS, seed=1) for _ in range(2)]
    mirror = DeliveredState(windows[1], 1)
    sources: dict[str, ChunkSource] = {}
    for tar in range(TARS + TARS // 4):
        name = f"training-run1-20260101-{tar:04d}.tar"
        sources[name] = ChunkSource(f"/data/{name}", np.ones(each, PLACE), identity, descriptors)
        for window in windows:
            left = window.enter(name, each)
            for _ in range(50):
                window.draw()
        for entry in left:
            del sources[entry.name]
    counted = sum(source.nbytes for source in sources.values()) + sum(window.nbytes for window in windows)
    assert len(mirror.window) == CHUNKS
    return counted, processes.private_bytes() - before


def reservoir_memory(folder: Path) -> tuple[int, int]:
    """The same of the frames to shuffle."""
    source = open_chunk_source(sorted(folder.glob("*.tar"))[0])
    games = [read_frames(source.raw(index)) for index in range(len(source))]
    before = processes.private_bytes()
    reservoir, mirror = Reservoir(FRAMES, seed=1), DeliveredState(Window(None, 1), FRAMES)
    nothing = np.zeros(0, ORIGIN)
    mirror.follow([ReservoirMoves(np.ones(FRAMES, ORIGIN), np.zeros(0, np.uint32), nothing, None)])
    while len(reservoir) < FRAMES:
        for game in games:
            reservoir.exchange(game)
    return reservoir.nbytes + mirror.origins.nbytes, processes.private_bytes() - before


def in_a_process(call: Callable[..., Any], *arguments: object) -> Any:
    """Call in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(call, arguments)


def rates(folder: Path, seconds: float, rounds: int) -> list[str]:
    """The rows of the loaders."""
    frames = sum(int(open_chunk_source(path).frames.sum()) for path in folder.glob("*.tar"))
    alone, found = [], {name: list[Sample]() for name in LOADERS}
    for _ in range(rounds):
        alone.append(in_a_process(unpack, folder, seconds))
        for name, keywords in LOADERS.items():
            found[name].append(in_a_process(load, folder, seconds, keywords))
    games_s = max(sample.per_cpu_s for sample in alone)
    rows = [
        "| what | frames per CPU s | per s | x unpacking alone | first batch, s (CPU s) | private MB |",
        "|---|---:|---:|---:|---:|---:|",
        f"| unpacking alone | {games_s * frames / GAMES:,.0f} | | 1 | | |",
    ]
    for name, samples in found.items():
        best = max(samples, key=lambda sample: sample.per_cpu_s)
        positions = LOADERS[name].get("positions", 1.0)  # a rate, or a count
        per_game = positions if isinstance(positions, int) else positions * frames / GAMES
        ratio = best.per_cpu_s / per_game / games_s
        wall, start = max(sample.per_s for sample in samples), f"{best.start_s:.2f} ({best.start_cpu_s:.2f})"
        rows.append(
            f"| {name} | {best.per_cpu_s:,.0f} | {wall:,.0f} | {ratio:.2f} | {start} | {best.private / 1e6:.0f} |"
        )
    return rows


def readers_line(folder: Path, seconds: float, rounds: int) -> str:
    """How much more two threads read than one."""
    alone, both = (max(in_a_process(readers, folder, seconds, threads) for _ in range(rounds)) for threads in (1, 2))
    return f"Readers of one archive: one reads {alone:,.0f} games a second, two {both / alone:.2f} times as many."


def memory_row(name: str, things: int, counted: int, seen: int) -> str:
    """A row of the memory."""
    return f"| {name} | {counted / 1e6:.1f} | {seen / 1e6:.1f} | {seen / things:.1f} |"


def main() -> None:
    """Print the tables, and keep them."""
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "millstream-bench")
    parser.add_argument("--output", type=Path, default=here / "results" / "selfplay.md")
    given = parser.parse_args()
    folder = make_data(given.scratch / "selfplay")
    index, reservoir = in_a_process(index_memory, folder), in_a_process(reservoir_memory, folder)
    lines = [
        "# Self-play",
        "",
        machine.one_line(machine.facts(["deflate", "numpy", "millstream"])),
        "",
        f"{GAMES} games in {GAMES // PER_TAR} archives, batches of {BATCH}, one thread per stage.",
        "",
        *rates(folder, given.seconds, given.rounds),
        "",
        readers_line(folder, given.seconds, given.rounds),
        "",
        "| memory | counted, MB | seen, MB | seen, bytes for each |",
        "|---|---:|---:|---:|",
        memory_row(f"{CHUNKS:,} games in {TARS:,} archives", CHUNKS, *index),
        memory_row(f"{FRAMES:,} frames to shuffle", FRAMES, *reservoir),
    ]
    print("\n".join(lines))
    given.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
