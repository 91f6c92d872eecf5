"""get_batch(k) with a k that changes at every call, against steady batches of the same sizes, in the same run.

    python benchmarks/resize.py [--rounds N] [--quick]

Wall and CPU time (all threads) of a batch, for texts and packed chats. Rounds alternate, and each is cut into short
stretches of which the best counts: what else the machine does only adds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from millstream import BPETokenizer, ConversationDataLoader, PretrainDataLoader

SHAPES = ((8, 1024), (64, 2048))
STRETCHES = 10


def texts(folder: Path) -> Callable[[int, int], Any]:
    path = folder / "texts.bin"
    np.random.default_rng(0).integers(0, 50_000, 20_000_000).astype(np.uint16).tofile(path)
    shared: dict[str, Any] = {"dtype": "uint16", "framework": "numpy", "threads": 1}
    return lambda rows, length: PretrainDataLoader(path, chunk_size=length, batch_size=rows, **shared)


def chats(folder: Path) -> Callable[[int, int], Any]:
    text = "How far is it to the mill by the stream, and who has been there before us? "
    tokenizer = BPETokenizer.train([text], vocab_size=300)
    rows = [
        {"messages": [{"role": "user", "content": text * (1 + n % 5)}, {"role": "assistant", "content": text * 4}]}
        for n in range(20_000)
    ]
    shared: dict[str, Any] = {"chat_template": "chatml", "add_control_tokens": True, "packing": True}
    shared |= {"framework": "numpy", "threads": 1, "cache_dir": folder / "cache"}

    def made(rows_of_batch: int, length: int) -> Any:
        given = {"max_length": length, "batch_size": rows_of_batch, **shared}
        loader = ConversationDataLoader(rows, tokenizer=tokenizer, **given)
        loader.wait()
        return loader

    return made


def cost(loader: Any, sizes: tuple[int, ...], batches: int) -> tuple[float, float]:
    """Microseconds of a batch in the best of some stretches: wall and CPU."""
    for number in range(20):
        loader.get_batch(sizes[number % len(sizes)])
    found = []
    for _ in range(STRETCHES):
        wall, cpu = time.perf_counter(), time.process_time()
        for number in range(batches):
            loader.get_batch(sizes[number % len(sizes)])
        found.append((time.perf_counter() - wall, time.process_time() - cpu))
    best = (min(column) / batches * 1e6 for column in zip(*found, strict=True))
    return next(best), next(best)


def measured(made: Callable[[int, int], Any], rows: int, length: int, rounds: int) -> list[tuple[float, float]]:
    """The best wall and CPU time of each: steady, steady at half the size, and both in turn."""
    ways = ((rows,), (rows // 2,), (rows, rows // 2))
    batches = 1000 if rows * length < 100_000 else 100
    best = [(float("inf"), float("inf"))] * len(ways)
    for _ in range(rounds):
        for number, sizes in enumerate(ways):
            with made(sizes[0], length) as loader:
                wall, cpu = cost(loader, sizes, batches)
            best[number] = min(best[number][0], wall), min(best[number][1], cpu)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round, to see that it runs")
    arguments = parser.parse_args()
    print("| rows | steady, wall / CPU us | changing, wall / CPU us | ratio, wall / CPU | limit |")
    print("|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in (("texts", texts), ("packed chats", chats)):
            made = kind(Path(folder))
            for rows, length in SHAPES:
                whole, half, changing = measured(made, rows, length, 1 if arguments.quick else arguments.rounds)
                wall, cpu = ((a + b) / 2 for a, b in zip(whole, half, strict=True))
                print(
                    f"| {name}, {rows} x {length} | {wall:.0f} / {cpu:.0f} | {changing[0]:.0f} / {changing[1]:.0f} "
                    f"| {changing[0] / wall:.2f} / {changing[1] / cpu:.2f} | 2 |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
