"""`millstream bench`: how fast a store can be read here, next to plain copying in the same run."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from millstream.cli.options import add_run_arguments, open_loader
from millstream.cli.progress import shown_progress
from millstream.cli.terminal import print_json, table
from millstream.errors import LoaderError
from millstream.loaders import USUAL_ROW
from millstream.stats import Progress, count, counted
from millstream.store import TokenStore

DESCRIPTION = """\
Draw batches as a trainer would that computes nothing, and set that beside two baselines measured in the same
run: a loop that gathers random rows with numpy, and a plain copy of as many bytes (memcpy). Turns alternate,
and the median of each counts, so that a busy machine slows all of them."""
EPILOG = """\
examples:
  millstream bench corpus
  millstream bench corpus --chunk-size 4096 --batch-size 32 --threads 2 --seconds 10
  millstream bench corpus --json > bench.json
"""

ROUNDS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("store", help="a store: a folder or a .bin file")
    add_run_arguments(parser)
    parser.set_defaults(batch_size=64)
    parser.add_argument("--threads", type=int, help="threads that fill batches (default: chosen by the loader)")
    parser.add_argument("--prefetch", type=int, help="batches kept ready (default: chosen by the loader)")
    parser.add_argument("--seconds", type=float, default=5.0, help="time for each of the three (default: 5)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Measure and report."""
    chosen = {name: getattr(arguments, name) for name in ("threads", "prefetch")}
    settings = {name: value for name, value in chosen.items() if value is not None}
    arguments.chunk_size = USUAL_ROW if arguments.chunk_size is None else arguments.chunk_size
    with TokenStore(arguments.store, dtype=arguments.dtype) as store:
        rows = max(len(store) - 1, 0) // max(arguments.chunk_size, 1)
        if rows < arguments.batch_size * arguments.world_size:
            found = f"{counted(rows, 'row')} of {arguments.chunk_size:,} tokens"
            raise LoaderError(
                f"{arguments.store}: {found} do not fill a batch",
                hint="pass a smaller --chunk-size or --batch-size",
            )
        # A short batch at the end of an epoch would be counted as a full one.
        with (
            open_loader(store, arguments, drop_last=True, **settings) as loader,
            shown_progress(quiet=arguments.quiet, machine=arguments.json) as progress,
        ):
            result = measure(loader, store, arguments.seconds, arguments, progress)
    if arguments.json:
        print_json(result)
    else:
        _print(result)
    return 0


def measure(loader: Any, store: TokenStore, seconds: float, shape: Any, progress: Any) -> dict[str, Any]:
    """Take turns: the loader, the numpy loop, the plain copy."""
    for _ in range(3):
        first = loader.next()
    ids_bytes = first.input_ids.nbytes + first.labels.nbytes
    drawn = Timed(lambda: _touch(loader.next()))
    gathered = Timed(_numpy_gather(store, shape, first.input_ids.dtype))
    copied = Timed(_memcpy(ids_bytes))
    del first
    for turn in range(ROUNDS):
        for timed in (drawn, gathered, copied):
            timed.run_for(seconds / ROUNDS)
        progress(Progress("bench", turn + 1, ROUNDS, "rounds"))
    tokens = shape.chunk_size * shape.batch_size
    rates = {name: tokens * timed.rate for name, timed in _named(drawn, gathered, copied)}
    return {
        "tokens_per_second": rates["loader"],
        "ratio_to_numpy_gather": rates["loader"] / rates["numpy"],
        "ratio_to_memcpy": rates["loader"] / rates["memcpy"],
        "numpy_gather_tokens_per_second": rates["numpy"],
        "memcpy_tokens_per_second": rates["memcpy"],
        "next_p50_ms": drawn.quantile(0.5) * 1e3,
        "next_p99_ms": drawn.quantile(0.99) * 1e3,
        "batches": len(drawn.times),
        "cpu_seconds_per_billion_tokens": drawn.cpu / (len(drawn.times) * tokens) * 1e9,
        "tokens_per_batch": tokens,
    }


class Timed:
    """A job that is run again and again, with the time that each run took."""

    def __init__(self, job: Callable[[], object]) -> None:
        self._job = job
        self.times: list[float] = []
        self.rounds: list[float] = []
        self.cpu = 0.0

    def run_for(self, seconds: float) -> None:
        """Run the job for some time, at least once."""
        cpu, before = time.process_time(), len(self.times)
        begun = last = time.perf_counter()
        while last < begun + seconds or len(self.times) == before:
            self._job()
            now = time.perf_counter()
            self.times.append(now - last)
            last = now
        self.cpu += time.process_time() - cpu
        self.rounds.append((len(self.times) - before) / (last - begun))

    @property
    def rate(self) -> float:
        """Runs per second: the median of the rounds."""
        return float(np.median(self.rounds))

    def quantile(self, part: float) -> float:
        """The time that this part of the runs stayed below."""
        return float(np.quantile(self.times, part))


def _named(drawn: Timed, gathered: Timed, copied: Timed) -> list[tuple[str, Timed]]:
    return [("loader", drawn), ("numpy", gathered), ("memcpy", copied)]


def _touch(batch: Any) -> Any:
    """Look at the arrays, as a trainer would; what is made on demand is made now."""
    return batch.input_ids, batch.labels


def _numpy_gather(store: TokenStore, shape: Any, dtype: Any) -> Callable[[], object]:
    """What people write by hand: random rows of the mapped file, copied one after another."""
    generator = np.random.default_rng(0)
    samples = (len(store) - 1) // shape.chunk_size
    ids = np.empty((shape.batch_size, shape.chunk_size), dtype)
    labels = np.empty_like(ids)

    def gather() -> object:
        for row, sample in enumerate(generator.integers(0, samples, shape.batch_size)):
            start = int(sample) * shape.chunk_size
            tokens = store[start : start + shape.chunk_size + 1]
            ids[row], labels[row] = tokens[:-1], tokens[1:]
        return ids

    return gather


def _memcpy(bytes_wanted: int) -> Callable[[], object]:
    """The floor: as many bytes as a batch has, from memory to memory."""
    there, here = np.ones(bytes_wanted, np.uint8), np.empty(bytes_wanted, np.uint8)
    return lambda: np.copyto(here, there)


def _print(result: dict[str, Any]) -> None:
    def compared(name: str) -> str:
        return f"{count(result[f'{name}_tokens_per_second'])} tokens/s"

    rows = [
        ("loader", f"{count(result['tokens_per_second'])} tokens/s"),
        ("numpy loop", f"{compared('numpy_gather')}  (loader: {result['ratio_to_numpy_gather']:.2f} x)"),
        ("memcpy", f"{compared('memcpy')}, one thread  (loader: {result['ratio_to_memcpy']:.2f} x)"),
        ("next()", f"p50 {result['next_p50_ms']:.3f} ms, p99 {result['next_p99_ms']:.3f} ms"),
        ("CPU", f"{result['cpu_seconds_per_billion_tokens']:.2f} s for 10^9 tokens"),
    ]
    print(table(rows))
