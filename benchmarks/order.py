"""What it costs to know which row comes next, per index, asked for in batches.

    python benchmarks/order.py [--rows 100000000] [--batch 4096]

Three ways of shuffling n rows: Grain's keyed permutation, one call per index; numpy's permutation, made
whole before the first index; ours. `first_s` is the time until the first batch of indices is there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np

import machine
from processes import private_bytes
from workload import SEED, Indices

Batcher = Callable[[int, int], Indices]  # (first position, count) -> indices


@dataclass(frozen=True)
class Cost:
    """What one way of shuffling costs."""

    name: str
    first_s: float
    ns_per_index: float
    private_mb: float


def grain_index_shuffle(rows: int) -> Batcher:
    """Grain's index_shuffle, the C++ function under its MapDataset.shuffle, one index per call."""
    from grain._src.python.experimental.index_shuffle.python import index_shuffle_module

    shuffle = index_shuffle_module.index_shuffle

    def batch(first: int, count: int) -> Indices:
        positions = range(first, first + count)
        last = rows - 1
        return np.fromiter((shuffle(p, last, SEED, 4) for p in positions), dtype=np.int64, count=count)

    return batch


def numpy_permutation(rows: int) -> Batcher:
    """numpy: the whole order in memory first, then slices of it."""
    order = np.random.default_rng(SEED).permutation(rows)
    return lambda first, count: order[first : first + count].copy()


def millstream_order(rows: int) -> Batcher:
    """Ours: a keyed bijection, a whole batch of positions per call."""
    from millstream.order import SampleOrder

    order = SampleOrder(rows, shuffle="global", seed=SEED)
    return lambda first, count: order.at(np.arange(first, first + count)).astype(np.int64)


WAYS: tuple[tuple[str, Callable[[int], Batcher]], ...] = (
    ("Grain index_shuffle", grain_index_shuffle),
    ("numpy permutation", numpy_permutation),
    ("millstream", millstream_order),
)


def cost(name: str, make: Callable[[int], Batcher], rows: int, batch: int, seconds: float = 0.5) -> Cost:
    """Measure one way: set-up and first batch, then as many batches as fit into `seconds`."""
    make(batch)  # imports are not part of the cost
    idle = private_bytes()
    start = time.perf_counter()
    indices = make(rows)
    first = indices(0, batch)
    first_s = time.perf_counter() - start
    if len(np.unique(first)) != batch or first.min() < 0 or first.max() >= rows:
        raise ValueError(f"{name}: not a permutation")
    spent = []
    stop = time.perf_counter() + seconds
    for position in range(batch, rows - batch, batch):
        before = time.process_time_ns()
        indices(position, batch)
        spent.append((time.process_time_ns() - before) / batch)
        if time.perf_counter() > stop:
            break
    return Cost(name, first_s, median(spent), (private_bytes() - idle) / 1e6)


def main() -> None:
    """Print one line per way of shuffling."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--batch", type=int, default=4096)
    given = parser.parse_args()
    print(f"{given.rows} rows, {given.batch} indices at a time")
    facts = machine.facts(["grain", "numpy", "millstream"])
    print(machine.one_line(facts))
    print("| way | first batch s | CPU ns per index | private MB |\n|---|---:|---:|---:|")
    for name, make in WAYS:
        try:
            found = cost(name, make, given.rows, given.batch)
        except ImportError as error:
            print(f"| {name} | not installed: {error.name} | | |")
            continue
        print(f"| {name} | {found.first_s:.4f} | {found.ns_per_index:.1f} | {found.private_mb:.0f} |")


if __name__ == "__main__":
    main()
