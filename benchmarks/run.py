"""Every loader against the limit of the machine, in one run.

    python benchmarks/run.py                        all contestants, all shapes, 5 rounds: about half an hour
    python benchmarks/run.py --quick                two shapes, one short round: about two minutes
    python benchmarks/run.py --only limit millstream grain --shapes 2048x64

Each measurement is a fresh process; rounds are interleaved. Results go to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import machine
import report
from contestants import ENTRIES, Entry
from disk import resident_fraction
from measure import MARK, Sample
from report import Outcome, Results, Shape
from workload import EPOCH_TOKENS, Workload, make_workload, warm

HERE = Path(__file__).resolve().parent
SHAPES: tuple[Shape, ...] = ((2048, 64), (2048, 8), (128, 64), (128, 8))
QUICK_SHAPES: tuple[Shape, ...] = ((2048, 64), (128, 8))
PREPARE_TIMEOUT_S, MEASURE_TIMEOUT_S = 1800, 120

# One thread for every numeric library, and no network.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
}


def child(task: str, entry: Entry, data: Workload, folder: Path, timeout_s: float, *more: str) -> dict[str, object]:
    """Run measure.py in a process of its own; whatever goes wrong comes back as an error of one line."""
    command = [sys.executable, str(HERE / "measure.py"), task, "--entry", str(ENTRIES.index(entry))]
    command += ["--tokens", str(data.path), "--scratch", str(folder), *more]
    environment = os.environ | ENVIRONMENT
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer after {timeout_s:.0f} s"}
    marked = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not marked:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"error": f"ended with code {done.returncode}: {last[:120]}"}
    answer: dict[str, object] = json.loads(marked[-1].removeprefix(MARK))
    return answer


def prepare(entries: Iterable[Entry], data: Workload, scratch: Path, verify: bool) -> dict[str, str]:
    """Convert the data for every contestant; give the errors by name."""
    errors = {}
    for entry in entries:
        say(f"preparing {entry.name}")
        more = ["--sequences", *map(str, data.sequences), *(["--verify"] if verify else [])]
        answer = child("prepare", entry, data, scratch / entry.module, PREPARE_TIMEOUT_S, *more)
        if "error" in answer:
            errors[entry.name] = str(answer["error"])
            say(f"  {entry.name}: {answer['error']}")
    return errors


def measure(entry: Entry, data: Workload, scratch: Path, shape: Shape, seconds: float) -> Outcome:
    """Measure one contestant once."""
    seq, batch = shape
    more = ["--sequences", str(seq), "--batch", str(batch), "--seconds", str(seconds)]
    answer = child("measure", entry, data, scratch / entry.module, MEASURE_TIMEOUT_S, *more)
    if "error" in answer:
        return str(answer["error"])
    return Sample(**answer)  # type: ignore[arg-type]  # measure.py wrote it with asdict(Sample)


def say(text: str) -> None:
    """Report progress on stderr: stdout is for the tables."""
    print(text, file=sys.stderr, flush=True)


def chosen(words: list[str]) -> list[Entry]:
    """Give the entries whose name starts with one of `words`, and always the limit."""
    if not words:
        return list(ENTRIES)
    starts = tuple(word.lower() for word in words)
    return [entry for entry in ENTRIES if entry.name == "limit" or entry.name.lower().startswith(starts)]


def parse_shape(text: str) -> Shape:
    """Read `2048x64` as (2048, 64)."""
    seq, _, batch = text.partition("x")
    return int(seq), int(batch)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two shapes, one short round, no verification")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="names, or how they begin")
    parser.add_argument("--shapes", nargs="+", type=parse_shape, metavar="SEQxBATCH")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="at most, per measurement (default 2)")
    parser.add_argument("--tokens", type=int, default=EPOCH_TOKENS)
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "millstream-bench")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--name", default="loaders", help="name of the result files")
    return parser.parse_args()


def main() -> None:
    """Prepare, measure, report."""
    given = arguments()
    shapes: tuple[Shape, ...] = tuple(given.shapes or (QUICK_SHAPES if given.quick else SHAPES))
    rounds = given.rounds or (1 if given.quick else 5)
    seconds = given.seconds or (1.0 if given.quick else 2.0)
    entries = chosen(given.only)
    scratch = given.scratch / f"{given.tokens}-tokens"
    sequences = tuple(dict.fromkeys(seq for seq, _ in shapes))
    data = make_workload(scratch / "data", given.tokens, sequences)
    facts = machine.facts(dict.fromkeys(["torch", "numpy", *(e.package for e in entries if e.package)]))

    errors = prepare(entries, data, scratch, verify=not given.quick)
    results: Results = {shape: {entry.name: [] for entry in entries} for shape in shapes}
    for number in range(rounds):
        warm(scratch)
        resident = resident_fraction(data.path)
        if resident < 0.999:
            say(f"WARNING: only {resident:.1%} of the tokens are in the page cache: memory is short")
        for shape in shapes:
            for entry in entries:
                error = errors.get(entry.name)
                outcome = error if error else measure(entry, data, scratch, shape, seconds)
                results[shape][entry.name].append(outcome)
                speed = f"{outcome.mtokens_per_s:.1f} Mtok/s" if isinstance(outcome, Sample) else outcome
                say(f"round {number + 1}/{rounds}  {shape[0]}x{shape[1]}  {entry.name}: {speed}")
    facts["load average"] += f" at the start, {os.getloadavg()[0]:.1f} at the end"
    facts["rounds"] = f"{rounds} of at most {seconds:g} s or one epoch of {given.tokens:.0e} tokens"
    report.save(given.results, given.name, entries, results, facts)
    report.show(entries, results, facts)


if __name__ == "__main__":
    main()
