"""What it costs to get the text out of JSON lines, per byte of input, and out of other files.

    python benchmarks/jsonl.py [--megabytes 64]

The same lines of 1 to 5 kB (the sources of Python's standard library: many escapes) go through our native parser and
through those that Python programs use. Theirs are given lines and give one `str` for each; ours also finds the lines,
and gives columns. The second table reads whole files, chunk by chunk, on one thread: opening, decompressing, cutting,
checking and parsing. CPU time, best of `--rounds`.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sysconfig
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

import machine
from millstream import _core
from millstream.sources import FoundFile, Reading, discover, read_file

SEED = 7
CHUNK = 8 << 20
Parser = Callable[[], int]


def texts(size: int) -> list[str]:
    """Pieces of real text of 1000 to 5000 characters, `size` characters in all."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    corpus = "\n".join(path.read_text("utf-8", "replace") for path in files)
    random = np.random.default_rng(SEED)
    pieces, total = [], 0
    while total < size:
        start, length = int(random.integers(len(corpus) - 5000)), int(random.integers(1000, 5000))
        pieces.append(corpus[start : start + length])
        total += length
    return pieces


def ours(data: bytes) -> Parser:
    """Parse chunks of lines into columns."""
    cuts = [0]
    while cuts[-1] < len(data):
        cuts.append(data.find(b"\n", cuts[-1] + CHUNK) + 1 or len(data))
    chunks = [np.frombuffer(data, np.uint8)[a:b] for a, b in pairwise(cuts)]
    return lambda: sum(len(_core.parse_jsonl(chunk, "text")[0]) for chunk in chunks)


def python_json(data: bytes) -> Parser:
    """Python's own parser."""
    lines = data.split(b"\n")
    return lambda: sum(len(json.loads(line)["text"]) for line in lines)


def orjson(data: bytes) -> Parser:
    """orjson: every field of every line."""
    import orjson

    lines = data.split(b"\n")
    return lambda: sum(len(orjson.loads(line)["text"]) for line in lines)


def msgspec(data: bytes) -> Parser:
    """msgspec with a schema: the text only."""
    import msgspec

    decoder = msgspec.json.Decoder(msgspec.defstruct("Line", [("text", str)]))
    lines = data.split(b"\n")
    return lambda: sum(len(decoder.decode(line).text) for line in lines)


def simdjson(data: bytes) -> Parser:
    """pysimdjson: the text only."""
    import simdjson

    parser = simdjson.Parser()
    lines = data.split(b"\n")
    return lambda: sum(len(parser.parse(line)["text"]) for line in lines)


PARSERS = {"millstream": ours, "json": python_json, "orjson": orjson, "msgspec": msgspec, "pysimdjson": simdjson}


def rate(run: Callable[[], object], size: int, rounds: int) -> float:
    """Gigabytes per CPU second."""
    best = float("inf")
    for _ in range(rounds):
        before = time.process_time()
        run()
        best = min(best, time.process_time() - before)
    return size / best / 1e9


def write_files(folder: Path, pieces: list[str], data: bytes) -> None:
    """Put the same texts into files of several formats."""
    (folder / "plain.jsonl").write_bytes(data)
    (folder / "packed.jsonl.gz").write_bytes(gzip.compress(data, 6))
    (folder / "separated.txt").write_text("<|endoftext|>".join(pieces), "utf-8")
    with (folder / "table.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text"], *([piece] for piece in pieces)])
    try:
        import zstandard

        (folder / "packed.jsonl.zst").write_bytes(zstandard.compress(data))
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"text": pieces}), folder / "table.parquet", row_group_size=4000)
    except ImportError as error:
        print(f"not installed: {error.name}")


def read_all(file: FoundFile) -> int:
    """Read a file and count its records."""
    return sum(len(read.block) for read in read_file(file, Reading(separator="<|endoftext|>")))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    pieces = texts(given.megabytes * 1_000_000)
    rows = ({"id": n, "text": text, "meta": {"url": "https://a.b/c", "score": 0.5}} for n, text in enumerate(pieces))
    data = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()
    facts = machine.facts(["orjson", "msgspec", "pysimdjson", "millstream"])
    print(machine.one_line(facts))
    print("\n| parser | GB per CPU-s | x json |\n|---|---:|---:|")
    base = rate(python_json(data), len(data), given.rounds)
    for name, make in PARSERS.items():
        try:
            found = rate(make(data), len(data), given.rounds)
        except ImportError as error:
            print(f"| {name} | not installed: {error.name} | |")
            continue
        print(f"| {name} | {found:.2f} | {found / base:.1f} |")
    size = sum(len(piece.encode()) for piece in pieces)
    print("\n| file | GB of text per CPU-s |\n|---|---:|")
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), pieces, data)
        for file in discover(folder).files:
            print(f"| {file.name} | {rate(partial(read_all, file), size, given.rounds):.2f} |")


if __name__ == "__main__":
    main()
