"""What packing the tokens of a store gives and costs: sizes, writing, and rows per second against the plain store.

    python benchmarks/compressed.py STORE [--scratch DIR] [--seconds S]

STORE is a plain store, such as `millstream prepare` makes; its tokens are written again, packed in several ways. Every
ratio is taken inside one round, and the median over the rounds is shown. All files are warm.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np

import machine
from millstream import PretrainDataLoader, TokenStore, TokenStoreWriter
from millstream.store import compressed_blocks

RESULTS = Path(__file__).parent / "results"
ROWS, LENGTH = 64, 2048
MOST_TOKENS = 1 << 26
ROUNDS = 5


@dataclass(frozen=True)
class Way:
    """One way to write the tokens."""

    block_tokens: int
    level: int

    @property
    def name(self) -> str:
        """Name it in the table."""
        return f"{self.block_tokens} tokens, level {self.level}" if self.level else "plain"


WAYS = [Way(compressed_blocks.BLOCK_TOKENS, 0)] + [
    Way(1 << size, level) for size in (12, 14, 16) for level in (1, 3, 9)
]


@dataclass(frozen=True)
class Cost:
    """Seconds of the clock and of the processor per token."""

    wall_ns: float
    cpu_ns: float


Rounds = list[dict[Way, list[Cost]]]
"""In each round what each way cost: to write, to read in global order, to read in file order."""


def write(tokens: np.ndarray, way: Way, path: Path) -> Cost:
    """Write one document, and say what it cost."""
    compressed_blocks.BLOCK_TOKENS = way.block_tokens
    wall, cpu = time.perf_counter(), time.process_time()
    with TokenStoreWriter(path, compress=way.level) as writer:
        writer.append(tokens)
    return Cost((time.perf_counter() - wall) / len(tokens) * 1e9, (time.process_time() - cpu) / len(tokens) * 1e9)


def read(path: Path, *, shuffle: str | bool, seconds: float) -> Cost:
    """Take batches for some seconds with one thread."""
    given = {"chunk_size": LENGTH, "batch_size": ROWS, "framework": "numpy", "threads": 1, "shuffle": shuffle}
    with PretrainDataLoader(path, **given) as loader:  # type: ignore[arg-type]
        for _ in range(20):
            loader.next()
        batches, wall, cpu = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - wall < seconds:
            loader.next()
            batches += 1
        tokens = batches * ROWS * LENGTH
        return Cost((time.perf_counter() - wall) / tokens * 1e9, (time.process_time() - cpu) / tokens * 1e9)


def rounds_of(tokens: np.ndarray, folder: Path, seconds: float) -> tuple[dict[Way, int], Rounds]:
    """Write each way once, then read each way in both orders in every round; gives the sizes too."""
    paths = {way: folder / f"{number}.bin" for number, way in enumerate(WAYS)}
    written = {way: write(tokens, way, paths[way]) for way in WAYS}

    def costs(way: Way) -> list[Cost]:
        return [written[way], *(read(paths[way], shuffle=order, seconds=seconds) for order in ("global", False))]

    rounds = [{way: costs(way) for way in WAYS} for _ in range(ROUNDS)]
    return {way: path.stat().st_size for way, path in paths.items()}, rounds


def table(sizes: dict[Way, int], rounds: Rounds) -> list[str]:
    """Lay the medians out as Markdown; ratios are to the plain store of the same round."""
    plain = WAYS[0]
    lines = [
        "| blocks | size | written, CPU ns/token | global, CPU ns/token | x plain | Mtok/s "
        "| in file order, CPU ns/token | x plain | Mtok/s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for way in WAYS:
        cells = [way.name, f"1/{sizes[plain] / sizes[way]:.2f}", f"{rounds[0][way][0].cpu_ns:.1f}"]
        for order in (1, 2):
            cpu = median(each[way][order].cpu_ns for each in rounds)
            ratio = median(each[way][order].cpu_ns / each[plain][order].cpu_ns for each in rounds)
            speed = median(1e3 / each[way][order].wall_ns for each in rounds)
            cells += [f"{cpu:.2f}", f"{ratio:.1f}", f"{speed:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--seconds", type=float, default=1.0)
    asked = parser.parse_args()
    store = TokenStore(asked.store)
    tokens = store.read(0, min(len(store), MOST_TOKENS))
    with tempfile.TemporaryDirectory(dir=asked.scratch) as folder:
        sizes, rounds = rounds_of(tokens, Path(folder), asked.seconds)
    facts = machine.facts(["numpy", "millstream"])
    about = machine.one_line(facts)
    what = f"{len(tokens):,} tokens of {store.dtype} in batches of {ROWS} x {LENGTH}, one thread, warm files."
    lines = ["# Packed stores", "", about, "", what, "", *table(sizes, rounds)]
    RESULTS.joinpath("compressed.md").write_text("\n".join(lines) + "\n")
    raw = [{way.name: [asdict(cost) for cost in costs] for way, costs in each.items()} for each in rounds]
    by_name = {way.name: size for way, size in sizes.items()}
    RESULTS.joinpath("compressed.json").write_text(
        json.dumps({"machine": facts, "bytes": by_name, "rounds": raw}, indent=1) + "\n"
    )
    print("\n".join(lines))


if __name__ == "__main__":
    main()
