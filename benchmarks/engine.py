"""What the engine promises beside throughput, each as a ratio to a baseline measured in the same run.

    python benchmarks/engine.py [--scratch DIR] [--quick]

Calls, refills, waits, first batches, resuming, memory and cold reads. `run.py` compares throughput with other loaders,
`order.py` the cost of the shuffle; this is the rest.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch

import disk
import machine
from millstream import PretrainDataLoader
from workload import make_workload

RESULTS = Path(__file__).parent / "results"
DEPTH = 64


@dataclass(frozen=True)
class Finding:
    """One promise: what was measured, against what, and the ratio that was hoped for."""

    what: str
    ours: str
    baseline: str
    ratio: float
    target: str
    met: bool


def loader_over(path: Path, seq: int, rows: int, **settings: object) -> PretrainDataLoader:
    shared: dict[str, object] = {"threads": 1, "framework": "torch", "dtype": "uint16", **settings}
    return PretrainDataLoader(path, chunk_size=seq, batch_size=rows, **shared)  # type: ignore[arg-type]


def typical(body: Callable[[], float], rounds: int) -> float:
    return median(body() for _ in range(rounds))


def calls(path: Path, rounds: int) -> Finding:
    """All of next(), tensors included, against making two torch tensors over a filled native batch and nothing else."""
    count = 20_000

    def ours() -> float:
        with loader_over(path, 128, 8, prefetch=DEPTH) as loader:
            for _ in range(200):
                batch = loader.next()
            start = time.perf_counter()
            for _ in range(count):
                batch = loader.next()
            assert batch.input_ids.shape == (8, 128)
            return (time.perf_counter() - start) / count * 1e6

    def tensors() -> float:
        with loader_over(path, 128, 8) as loader:
            native = loader.next()._native
        assert native is not None
        start = time.perf_counter()
        for _ in range(count):
            pair = torch.from_numpy(native.column(0)), torch.from_numpy(native.column(1))
        assert pair[0].shape == (8, 128)
        return (time.perf_counter() - start) / count * 1e6

    mine, alone = typical(ours, rounds), typical(tensors, rounds)
    return Finding(
        "next() at 128 x 8, tensors included", f"{mine:.2f} us", f"the two tensors alone: {alone:.2f} us",
        mine / alone, "<= 3", mine / alone <= 3,
    )  # fmt: skip


def refill(path: Path, rounds: int) -> Finding:
    """Time to fill an empty ring of 64 batches with the main thread asleep, against with it spinning in Python."""

    def until_full(idle: Callable[[], object]) -> float:
        with loader_over(path, 2048, 64) as loader:
            start = time.perf_counter()
            loader.prefetch(DEPTH)
            while loader.get_profiling_results()["ready_batches"] < DEPTH:
                idle()
            return time.perf_counter() - start

    def spin() -> None:
        end = time.perf_counter() + 0.0005
        while time.perf_counter() < end:
            pass

    asleep = typical(lambda: until_full(lambda: time.sleep(0.0005)), rounds)
    spinning = typical(lambda: until_full(spin), rounds)
    ratio = asleep / spinning
    return Finding(
        "refill of 64 batches, main thread asleep / spinning", f"{spinning * 1e3:.1f} ms spinning",
        f"{asleep * 1e3:.1f} ms asleep", ratio, ">= 0.90", ratio >= 0.9,
    )  # fmt: skip


def trainer_wait(path: Path, rounds: int) -> Finding:
    """How long a trainer waits whose step takes twice as long as the engine needs for a batch."""

    def once() -> tuple[float, float, float]:
        with loader_over(path, 2048, 64) as loader:
            for _ in range(300):
                loader.next()
            results = loader.get_profiling_results()
            step = 2 * results["waits"]["threads_filling"] / results["batches"]
            loader.enable_profiling()
            for _ in range(2000):
                loader.next()
                end = time.perf_counter() + step
                while time.perf_counter() < end:
                    pass
            results = loader.get_profiling_results()
            waited = results["waits"]["trainer_on_batch"] / results["seconds"]
            return waited, results["wait_fraction"], step

    runs = sorted(once() for _ in range(rounds))
    waited, inside, step = runs[len(runs) // 2]
    return Finding(
        "trainer's wait at 2048 x 64, step = 2 x fill", f"{waited:.3%} waiting, {inside:.2%} inside next() in all",
        f"steps of {step * 1e6:.0f} us", waited, "< 1 %", waited < 0.01,
    )  # fmt: skip


FIRST_BATCH = """
import sys, time
from millstream import PretrainDataLoader
start = time.perf_counter()
loader = PretrainDataLoader(sys.argv[1], chunk_size=2048, batch_size=8, dtype="uint16", framework="numpy", threads=1)
batch = loader.next()
assert batch.input_ids.shape == (8, 2048)
print(time.perf_counter() - start)
"""


def first_batch(rounds: int) -> Finding:
    """The first shuffled batch of 10^12 tokens (a sparse file) against that of 10^6, in fresh processes."""
    with tempfile.TemporaryDirectory() as folder:
        return first_batch_in(Path(folder), rounds)


def first_batch_in(scratch: Path, rounds: int) -> Finding:
    """Write both files and open them."""
    small, large = scratch / "small.bin", scratch / "large.bin"
    for path, tokens in ((small, 10**6), (large, 10**12)):
        with path.open("wb") as file:
            file.truncate(2 * tokens)

    def fresh(path: Path) -> float:
        command = [sys.executable, "-c", FIRST_BATCH, str(path)]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    mine, base = typical(lambda: fresh(large), 2 * rounds), typical(lambda: fresh(small), 2 * rounds)
    met = mine <= 1.2 * base or mine - base <= 0.005
    return Finding(
        "first batch of 10^12 tokens against 10^6", f"{mine * 1e3:.2f} ms", f"{base * 1e3:.2f} ms",
        mine / base, "<= 1.2 or + 5 ms", met,
    )  # fmt: skip


def resume(path: Path, rounds: int) -> Finding:
    """Resuming at 90 % of an epoch against starting at 0."""
    with loader_over(path, 128, 8) as loader:
        loader.seek(int(loader.get_num_batches() * 0.9))
        late = json.dumps(loader.state_dict())
        loader.reset()
        early = json.dumps(loader.state_dict())

    def first_after(state: str) -> float:
        start = time.perf_counter()
        with loader_over(path, 128, 8) as loader:
            loader.load_state_dict(json.loads(state))
            loader.next()
            return time.perf_counter() - start

    mine, base = typical(lambda: first_after(late), 10 * rounds), typical(lambda: first_after(early), 10 * rounds)
    met = mine <= 1.1 * base or mine - base <= 0.005
    return Finding(
        "resume at 90 % of an epoch against at 0", f"{mine * 1e3:.2f} ms ({len(late)} bytes of state)",
        f"{base * 1e3:.2f} ms", mine / base, "<= 1.1 or + 5 ms", met,
    )  # fmt: skip


MEMORY = """
import sys
sys.path.insert(0, sys.argv[2])
import torch
from processes import private_bytes
before = private_bytes()
from millstream import PretrainDataLoader
loader = PretrainDataLoader(sys.argv[1], chunk_size=2048, batch_size=64, dtype="uint16", threads=1, prefetch=8)
for _ in range(400):
    batch = loader.next()
print(private_bytes() - before, loader.get_profiling_results()["memory"]["batches"])
"""


def memory(path: Path, rounds: int) -> Finding:
    """Private memory over `import torch` alone, beside the ring itself."""

    def fresh() -> tuple[int, int]:
        command = [sys.executable, "-c", MEMORY, str(path), str(Path(__file__).parent)]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        return int(out[0]), int(out[1])

    grown, ring = sorted(fresh() for _ in range(rounds))[rounds // 2]
    beside = (grown - ring) / 1e6
    return Finding(
        "private memory over import torch, 2048 x 64", f"{grown / 1e6:.1f} MB", f"ring of {ring / 1e6:.1f} MB",
        beside, "ring + 32 MB", beside <= 32,
    )  # fmt: skip


def cold(scratch: Path, shuffle: str | bool, rounds: int) -> Finding:
    """Rows from the disk: in file or local order against sequential reads, shuffled globally against random ones."""
    path = disk.write_random(scratch / "cold.bin")
    seq, rows = 2048, 64
    limits, ours = [], []
    for _ in range(rounds):
        disk.drop(path, everything=True)
        limits.append((disk.random_willneed(path, 512) if shuffle == "global" else disk.sequential(path)).mb_per_s)
        disk.drop(path, everything=True)
        with loader_over(path, seq, rows, shuffle=shuffle, threads=2, prefetch=8) as loader:
            steps = min(loader.get_num_batches() - 1, 400 if shuffle == "global" else 10**9)
            start = time.perf_counter()
            for _ in range(steps):
                loader.next()
            seconds = time.perf_counter() - start
        ours.append(steps * rows * seq * 2 / seconds / 1e6)
    mine, limit = median(ours), median(limits)
    least = 0.8 if shuffle == "global" else 0.85
    name = {"global": "global", "local": "local", False: "none"}[shuffle]
    baseline = "random 4098 B reads, 512 ahead" if shuffle == "global" else "sequential 4 MB reads"
    return Finding(
        f"cold, shuffle={name}", f"{mine:.0f} MB/s", f"{baseline}: {limit:.0f} MB/s", mine / limit,
        f">= {least}, never under 100 MB/s", mine / limit >= least and mine >= 100,
    )  # fmt: skip


def table(findings: list[Finding]) -> str:
    lines = ["| what | ours | baseline in the same run | ratio | target | met |", "|---|---|---|---:|---|---|"]
    lines += [
        f"| {f.what} | {f.ours} | {f.baseline} | {f.ratio:.3g} | {f.target} | {'yes' if f.met else '**no**'} |"
        for f in findings
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "millstream-bench")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round, to see that it runs")
    parser.add_argument("--no-disk", action="store_true", help="leave out the cold reads")
    arguments = parser.parse_args()
    rounds = 1 if arguments.quick else arguments.rounds
    torch.set_num_threads(1)
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    data = make_workload(arguments.scratch, 400_000_000, (2048, 128))
    data.memmap()[::2048].sum()  # in the page cache, and nothing else is
    findings = [calls(data.path, rounds), refill(data.path, rounds), trainer_wait(data.path, rounds)]
    findings += [first_batch(rounds), resume(data.path, rounds), memory(data.path, rounds)]
    if not arguments.no_disk:
        findings += [cold(arguments.scratch, shuffle, min(rounds, 3)) for shuffle in (False, "local", "global")]
    facts = machine.facts(["torch", "numpy", "millstream"])
    text = "\n".join(
        [f"# Engine\n\n{'; '.join(f'{key} {value}' for key, value in facts.items())}\n", table(findings), ""]
    )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "engine.md").write_text(text)
    (RESULTS / "engine.json").write_text(
        json.dumps({"machine": facts, "findings": [asdict(f) for f in findings]}, indent=1)
    )
    print(text)


if __name__ == "__main__":
    main()
