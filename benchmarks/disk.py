"""What the disk gives when nothing is cached, and the tools to make sure that nothing is.

    python benchmarks/disk.py --scratch /some/folder/on/the/disk

A measurement of cold reads is only as good as the proof that they were cold: mapped pages survive
POSIX_FADV_DONTNEED, so `drop` checks with mincore and raises when anything stayed. What the host below a
virtual disk caches is out of reach.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np

import machine
from workload import SEED, Indices

GIGABYTE = 1_000_000_000
SEQUENTIAL_BYTES = 4_000_000
RANDOM_BYTES = 4098  # a window of 2048 uint16 tokens and its last label
DEPTHS = (1, 8, 16, 32, 64)
PAGE = mmap.PAGESIZE


@dataclass(frozen=True)
class Reading:
    """How fast one way of reading was. `cpu_s` is this process's own CPU time, all threads."""

    what: str
    bytes: int
    reads: int
    wall_s: float
    cpu_s: float

    @property
    def mb_per_s(self) -> float:
        """Give 10^6 bytes per second."""
        return self.bytes / self.wall_s / 1e6

    @property
    def reads_per_s(self) -> float:
        """Give reads per second."""
        return self.reads / self.wall_s


def write_random(path: Path, size: int = 2 * GIGABYTE) -> Path:
    """Write `size` random bytes, so that nothing below can compress them; keep a file that is there."""
    if path.exists() and path.stat().st_size == size:
        return path
    rng = np.random.default_rng(SEED)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for start in range(0, size, 1 << 26):
            file.write(rng.bytes(min(1 << 26, size - start)))
    return path


def resident_fraction(path: Path) -> float:
    """Give the share of the file's pages that are in the page cache now."""
    size = path.stat().st_size
    if size == 0:
        return 0.0
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    integers = (ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *integers)
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    pages = np.zeros((size + PAGE - 1) // PAGE, dtype=np.uint8)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "mmap failed")
        failed = libc.mincore(address, size, pages.ctypes.data)
        error = ctypes.get_errno()
        libc.munmap(address, size)
    finally:
        os.close(descriptor)
    if failed:
        raise OSError(error, "mincore failed")
    return float((pages & 1).mean())


def drop(path: Path, *, everything: bool = False) -> None:
    """Put the file out of the page cache, or raise. No process may have it mapped.

    `everything` also empties the whole machine's page cache, where this process is allowed to.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    if everything and os.access("/proc/sys/vm/drop_caches", os.W_OK):
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    stayed = resident_fraction(path)
    if stayed:
        raise RuntimeError(f"{stayed:.2%} of {path.name} stayed in the page cache; is it mapped somewhere?")


def timed(what: str, size: int, reads: int, body: Callable[[], None]) -> Reading:
    """Run `body` and say how long `size` bytes in `reads` reads took."""
    wall, cpu = time.perf_counter(), time.process_time()
    body()
    return Reading(what, size, reads, time.perf_counter() - wall, time.process_time() - cpu)


def sequential(path: Path, block: int = SEQUENTIAL_BYTES) -> Reading:
    """Drop the file, then read it from end to end, `block` bytes at a time."""
    drop(path)
    size = path.stat().st_size
    descriptor = os.open(path, os.O_RDONLY)
    buffer = bytearray(block)

    def body() -> None:
        while os.readv(descriptor, [buffer]):
            pass

    try:
        return timed(f"sequential, {block / 1e6:g} MB reads", size, -(-size // block), body)
    finally:
        os.close(descriptor)


def random_starts(path: Path, reads: int, length: int) -> Indices:
    """Choose windows that do not share a page with one another, in random order."""
    stride = (length + 2 * PAGE - 1) // PAGE * PAGE
    places = path.stat().st_size // stride
    if reads > places:
        raise ValueError(f"{path.name} has room for {places} windows of {length} bytes, not {reads}")
    return np.random.default_rng(SEED).permutation(places)[:reads] * stride


def random_pread(path: Path, depth: int, reads: int = 20_000, length: int = RANDOM_BYTES) -> Reading:
    """Drop the file, then read random windows with `depth` threads, each with one pread under way."""
    starts = random_starts(path, reads, length)
    drop(path)
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no readahead: only what was asked for

    def reader(mine: list[int]) -> None:
        buffer = bytearray(length)
        for start in mine:
            if os.preadv(descriptor, [buffer], start) != length:
                raise RuntimeError(f"short read at {start}")

    def body() -> None:
        shares = [starts[number::depth].tolist() for number in range(depth)]
        threads = [threading.Thread(target=reader, args=(share,)) for share in shares]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    try:
        return timed(f"random {length} B, pread, {depth} threads", reads * length, reads, body)
    finally:
        os.close(descriptor)


def random_willneed(path: Path, depth: int, reads: int = 20_000, length: int = RANDOM_BYTES) -> Reading:
    """Drop the file, then read random windows from one thread that announces `depth` windows ahead."""
    starts = random_starts(path, reads, length).tolist()
    drop(path)
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    buffer = bytearray(length)

    def body() -> None:
        for start in starts[:depth]:
            os.posix_fadvise(descriptor, start, length, os.POSIX_FADV_WILLNEED)
        for number, start in enumerate(starts):
            if number + depth < reads:
                os.posix_fadvise(descriptor, starts[number + depth], length, os.POSIX_FADV_WILLNEED)
            if os.preadv(descriptor, [buffer], start) != length:
                raise RuntimeError(f"short read at {start}")

    try:
        return timed(f"random {length} B, willneed, {depth} ahead", reads * length, reads, body)
    finally:
        os.close(descriptor)


def measurements(path: Path, reads: int) -> list[Callable[[], Reading]]:
    """List every measurement as something to call, so that rounds can be interleaved."""
    listed: list[Callable[[], Reading]] = [lambda: sequential(path)]
    for depth in DEPTHS:
        listed.append(lambda depth=depth: random_pread(path, depth, reads))  # type: ignore[misc]
        listed.append(lambda depth=depth: random_willneed(path, depth, reads))  # type: ignore[misc]
    return listed


def main() -> None:
    """Measure the disk under `--scratch` and print and save the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "millstream-bench")
    parser.add_argument("--bytes", type=int, default=2 * GIGABYTE)
    parser.add_argument("--reads", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=Path(__file__).resolve().parent / "results")
    parser.add_argument("--drop-all", action="store_true", help="as root: first empty the whole page cache")
    given = parser.parse_args()
    path = write_random(given.scratch / "disk.bin", given.bytes)
    drop(path, everything=given.drop_all)
    by_name: dict[str, list[Reading]] = {}
    for _ in range(given.rounds):
        for measure in measurements(path, given.reads):
            reading = measure()
            by_name.setdefault(reading.what, []).append(reading)

    lines = ["# Disk, cold", "", machine.one_line(machine.facts([])), ""]
    lines += ["| what | MB/s | best | reads/s | CPU us per read |", "|---|---:|---:|---:|---:|"]
    for what, readings in by_name.items():
        rates = [reading.mb_per_s for reading in readings]
        per_s = median(reading.reads_per_s for reading in readings)
        cpu_us = median(1e6 * reading.cpu_s / reading.reads for reading in readings)
        lines.append(f"| {what} | {median(rates):.0f} | {max(rates):.0f} | {per_s:.0f} | {cpu_us:.1f} |")
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "disk.md").write_text("\n".join(lines) + "\n")
    saved = {what: [asdict(reading) for reading in readings] for what, readings in by_name.items()}
    (given.results / "disk.json").write_text(json.dumps(saved, indent=1) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
