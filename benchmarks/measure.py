"""Measure one contestant in this process: rate, CPU time, latency, memory, time to the first batch.

Run by run.py in a fresh process for every contestant, shape and round, so that none profits from what
another one left in memory. The result is one line of JSON on stdout, after the word RESULT.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from contestants import ENTRIES, Entry
from processes import cpu_seconds, end_children, private_bytes
from workload import VOCABULARY, Indices, Tokens, Workload

MARK = "RESULT "
WARM_SHARE, RATE_SHARE, LATENCY_SHARE = 0.05, 0.7, 0.2  # of an epoch, and of the seconds given
CLOCK_EVERY_S = 0.01


@dataclass(frozen=True)
class Sample:
    """What one run of one contestant showed. CPU counts all threads and child processes."""

    mtokens_per_s: float
    cpu_s_per_gtoken: float
    p50_us: float
    p99_us: float
    private_mb: float
    first_batch_s: float
    tokens: int


Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


def check(inputs: torch.Tensor, labels: torch.Tensor, seq: int, batch: int) -> None:
    """Refuse to time batches that are not what was asked for."""
    for name, tensor in (("input_ids", inputs), ("labels", labels)):
        if tensor.dtype != torch.int64 or tuple(tensor.shape) != (batch, seq):
            raise ValueError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}, not int64 {(batch, seq)}")
    if not torch.equal(inputs[:, 1:], labels[:, :-1]):
        raise ValueError("labels are not the inputs shifted by one")
    if inputs.min() < 0 or inputs.max() >= VOCABULARY or not inputs.any():
        raise ValueError("the batch does not look like the data")


def pieces(row: Indices, tokens: Tokens) -> int:
    """Say of how few stretches of the file `row` can be made: 1 for a window, many for a mistake."""
    count = 0
    while len(row):
        places = np.flatnonzero(tokens[: len(tokens) - len(row) + 1] == row[0])
        length = 1
        while length < len(row) and len(further := places[tokens[places + length] == row[length]]):
            places, length = further, length + 1
        row, count = row[length:], count + 1
    return count


def verify(entry: Entry, data: Workload, scratch: Path, seq: int) -> None:
    """Look for two rows of the first batch in the token file; raise when they are not there."""
    inputs, labels = next(entry.load().batches(data, scratch, seq, 8, workers=entry.workers))
    check(inputs, labels, seq, 8)
    allowed = seq // entry.document_tokens + 2 if entry.document_tokens else 1
    for row in (0, -1):
        found = pieces(np.append(inputs[row].numpy(), labels[row, -1].item()), data.memmap())
        if found > allowed:
            raise ValueError(f"row {row} consists of {found} stretches of the data, not of {allowed}")


def drain(batches: Batches, most: int, seconds: float, step: int) -> tuple[int, float]:
    """Take up to `most` batches in `seconds`, looking at the clock every `step`; give count and seconds."""
    taken, start = 0, time.perf_counter()
    while taken < most:
        step = min(step, most - taken)
        if not deque(itertools.islice(batches, step), maxlen=1):
            raise RuntimeError(f"the epoch ended after {taken} of {most} batches")
        taken += step
        if time.perf_counter() - start >= seconds:
            break
    return taken, time.perf_counter() - start


def latencies_us(batches: Batches, most: int, seconds: float) -> list[float]:
    """Time each next() on its own."""
    found: list[float] = []
    clock, stop = time.perf_counter_ns, time.perf_counter_ns() + int(seconds * 1e9)
    before = clock()
    while len(found) < most and before < stop and next(batches, None) is not None:
        after = clock()
        found.append((after - before) / 1e3)
        before = clock()
    return found


def measure_batches(entry: Entry, data: Workload, scratch: Path, seq: int, batch: int, seconds: float) -> Sample:
    """Time a contestant that hands out batches."""
    idle_bytes = private_bytes()
    start = time.perf_counter()
    batches = entry.load().batches(data, scratch, seq, batch, workers=entry.workers)
    first = next(batches)
    first_batch_s = time.perf_counter() - start
    check(*first, seq, batch)
    del first

    epoch = data.windows(seq) // batch
    warmed, warm_s = drain(batches, max(1, int(WARM_SHARE * epoch)), WARM_SHARE * seconds, 1)
    step = max(1, int(CLOCK_EVERY_S * warmed / warm_s))
    cpu_before = cpu_seconds()
    taken, wall_s = drain(batches, int(RATE_SHARE * epoch), RATE_SHARE * seconds, step)
    cpu_s = cpu_seconds() - cpu_before
    slices = latencies_us(batches, int(LATENCY_SHARE * epoch), LATENCY_SHARE * seconds)
    used_bytes = private_bytes() - idle_bytes

    tokens = taken * batch * seq
    return Sample(
        mtokens_per_s=tokens / wall_s / 1e6,
        cpu_s_per_gtoken=cpu_s * 1e9 / tokens,
        p50_us=float(np.percentile(slices, 50)),
        p99_us=float(np.percentile(slices, 99)),
        private_mb=used_bytes / 1e6,
        first_batch_s=first_batch_s,
        tokens=tokens,
    )


def measure_native_loop(entry: Entry, data: Workload, scratch: Path, seq: int, batch: int, seconds: float) -> Sample:
    """Time the loop that never comes back to Python; it has no next(), so a mean stands for p50 and p99."""
    idle_bytes = private_bytes()
    gather = getattr(entry.load(), "Gather")(data, scratch, seq, batch)  # noqa: B009  (only the limits have one)
    start = time.perf_counter()
    gather.many(1)
    first_batch_s = time.perf_counter() - start
    check(gather.inputs, gather.labels, seq, batch)

    epoch = data.windows(seq) // batch
    gather.many(int(WARM_SHARE * epoch) + 1)
    taken, cpu_before, start = 0, cpu_seconds(), time.perf_counter()
    while time.perf_counter() - start < RATE_SHARE * seconds:
        gather.many(epoch)
        taken += epoch
    wall_s, cpu_s = time.perf_counter() - start, cpu_seconds() - cpu_before

    tokens = taken * batch * seq
    mean_us = wall_s / taken * 1e6
    used_mb = (private_bytes() - idle_bytes) / 1e6
    rate, cost = tokens / wall_s / 1e6, cpu_s * 1e9 / tokens
    return Sample(rate, cost, mean_us, mean_us, used_mb, first_batch_s, tokens)


def measure(entry: Entry, data: Workload, scratch: Path, seq: int, batch: int, seconds: float) -> Sample:
    """Time `entry` on windows of `seq` tokens, `batch` at a time, for one epoch or `seconds`."""
    if entry.native_loop:
        return measure_native_loop(entry, data, scratch, seq, batch, seconds)
    return measure_batches(entry, data, scratch, seq, batch, seconds)


def one_line(error: BaseException, data: Workload, scratch: Path) -> str:
    """Say what went wrong in one line without naming this machine's folders."""
    if isinstance(error, ModuleNotFoundError):
        return f"not installed: {error.name}"
    text = " ".join(f"{type(error).__name__}: {error}".split())
    for folder in (scratch, data.path.parent, Path.cwd(), Path(sys.prefix), Path.home()):
        text = text.replace(str(folder), "…")
    return text[:160]


def main() -> None:
    """Do what run.py asks and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=("prepare", "measure"))
    parser.add_argument("--entry", type=int, required=True, help="number of the row in contestants.ENTRIES")
    parser.add_argument("--tokens", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--sequences", type=int, nargs="+", required=True)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--verify", action="store_true", help="after preparing, look the rows up in the data")
    given = parser.parse_args()

    torch.set_num_threads(1)  # two OpenMP threads on a busy machine cost 7 to 15 times
    entry = ENTRIES[given.entry]
    data = Workload(given.tokens, given.tokens.stat().st_size // 2, tuple(given.sequences))
    given.scratch.mkdir(parents=True, exist_ok=True)
    result: dict[str, float | str]
    try:
        if given.task == "prepare":
            entry.load().prepare(data, given.scratch)
            for seq in data.sequences if given.verify else ():
                verify(entry, data, given.scratch, seq)
            result = {}
        else:
            result = asdict(measure(entry, data, given.scratch, data.sequences[0], given.batch, given.seconds))
    except Exception as error:  # every failure becomes a line of the table
        result = {"error": one_line(error, data, given.scratch)}
    sys.stdout.write(f"\n{MARK}{json.dumps(result)}\n")
    sys.stdout.flush()
    end_children()
    os._exit(0)  # the threads of a half-read epoch are of no further interest


if __name__ == "__main__":
    main()
