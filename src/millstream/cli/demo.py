"""`millstream demo`: everything once, on text that every Python carries. No network, no data of your own."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import logging
import sysconfig
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from millstream.api import PrepareReport, prepare
from millstream.cli.explain import tokens_of
from millstream.cli.progress import shown_progress
from millstream.cli.terminal import one_line, print_json, sparkline, table
from millstream.cli.tiny_model import TinyModel, unigram_entropy
from millstream.errors import MissingExtra
from millstream.loaders import PretrainDataLoader
from millstream.stats import OnProgress, Progress, count, counted, duration, size
from millstream.store import TokenStore
from millstream.tokens import BPETokenizer, CharTokenizer, Tokenizer

DESCRIPTION = """\
Takes the sources of Python's standard library, learns a tokenizer, prepares a store, feeds a small language
model (numpy only) from it, and shows that the order can be explained and resumed. Needs no network."""
EPILOG = """\
examples:
  millstream demo
  millstream demo --output /tmp/demo --steps 500
"""

VOCABULARY = 2048
LEARN_BYTES = 4 << 20
ROW_TOKENS, ROWS = 128, 32
EXAMPLES = 1024
SEED = 0
SHOWN_STEP, SHOWN_ROW = 12, 3
HELD_OUT_EVERY = 25
MOST_BYTES = 24 << 20
_PASSED_OVER = {
    "encodings",
    "test",
    "tests",
    "idle_test",
    "site-packages",
    "dist-packages",
    "lib2to3",
    "__pycache__",
}
_DOCUMENTED = (
    "argparse ast asyncio base64 bisect calendar cmd codecs collections configparser contextlib copy csv "
    "ctypes dataclasses datetime decimal difflib dis email enum fractions functools glob gzip heapq html "
    "http inspect io itertools json logging math multiprocessing operator os pathlib pickle platform "
    "pprint queue random re sched shelve shlex shutil signal socket sqlite3 ssl statistics string struct "
    "subprocess tarfile tempfile textwrap threading time tokenize traceback types typing unittest "
    "urllib.request uuid warnings wave weakref xml.dom zipfile "
)

_log = logging.getLogger("millstream.cli")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("-o", "--output", type=Path, default=Path("millstream-demo"), help="folder to write to")
    parser.add_argument("--steps", type=int, default=250, help="training steps (default: 250)")
    parser.add_argument("--seconds", type=float, default=20.0, help="most time to train (default: 20)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


@dataclass(slots=True)
class Outcome:
    """The measurements of the demo."""

    losses: list[float] = field(default_factory=list)
    held_out_before: float = 0.0
    held_out_after: float = 0.0
    unigram: float = 0.0
    trained_tokens: int = 0
    train_seconds: float = 0.0
    wait_fraction: float = 0.0
    loader_tokens_per_second: float = 0.0
    resumed_equal: bool = False
    explained: dict[str, Any] = field(default_factory=dict)


def run(arguments: argparse.Namespace) -> int:
    """Run the demo from raw text to a trained model."""
    begun = time.perf_counter()
    output: Path = arguments.output
    outcome = Outcome()
    with shown_progress(quiet=arguments.quiet, machine=arguments.json) as progress:
        files, kind = _collect(output / "text")
        tokenizer, note = _learn(files, progress)
        corpus, held_out = _prepare(files, output, tokenizer, progress)
        _train(corpus.path, held_out.path, arguments, outcome, progress)
        _prove(corpus.path, tokenizer, outcome)
        outcome.loader_tokens_per_second = _draw_for(corpus.path, 0.5)
    facts = {"text": kind, "seconds": time.perf_counter() - begun, **asdict(outcome)}
    if arguments.json:
        print_json({**facts, "store": asdict(corpus)})
    else:
        _print_report(facts, corpus, outcome.losses, note)
    return 0 if outcome.resumed_equal and outcome.explained["equal"] else 1


def _learn(files: list[Path], progress: OnProgress) -> tuple[Tokenizer, str]:
    """Learn a BPE from a part of the text; without the library for that, fall back to characters."""
    chosen = files[::4] if len(files) > 200 else files
    total = min(LEARN_BYTES, sum(path.stat().st_size for path in chosen))
    texts, done = [], 0
    for path in chosen:
        raw = path.read_bytes()
        texts.append(raw.decode("utf-8", "ignore"))
        done += len(raw)
        progress(Progress("learn tokenizer", min(done, total), total, "bytes"))
        if done >= total:
            break
    try:
        tokenizer: Tokenizer = BPETokenizer.train(texts, vocab_size=VOCABULARY)
    except MissingExtra as error:
        return CharTokenizer.train(texts, unknown="replace"), f"one token per character: {error.message}"
    return tokenizer, ""


def _prepare(
    files: list[Path], output: Path, tokenizer: Tokenizer, progress: OnProgress
) -> tuple[PrepareReport, PrepareReport]:
    """Make two stores; every 25th file is held out."""
    kept_back = set(files[::HELD_OUT_EVERY])
    used = [path for path in files if path not in kept_back]
    corpus, held_out = (
        prepare(part, output / name, tokenizer, on_bad="skip", overwrite=True, progress=progress)
        for part, name in ((used, "corpus"), (sorted(kept_back), "held-out"))
    )
    return corpus, held_out


def _open(path: Path, **settings: Any) -> PretrainDataLoader:
    return PretrainDataLoader(path, chunk_size=ROW_TOKENS, batch_size=ROWS, seed=SEED, framework="numpy", **settings)


def _train(corpus: Path, held_out: Path, arguments: argparse.Namespace, outcome: Outcome, progress: OnProgress) -> None:
    """Train on batches as they come; the loss on held-out files shows what was learned."""
    with TokenStore(corpus) as store:
        vocabulary = store.manifest["tokenizer"]["vocab_size"]
        outcome.unigram = unigram_entropy(store.read(0, min(len(store), 4_000_000)), vocabulary)
    model, chooser = TinyModel(vocabulary), np.random.default_rng(SEED)
    with _open(held_out, shuffle=False) as loader:
        batch = loader.next()
        unseen = model.examples(np.array(batch.input_ids), np.array(batch.labels))
    outcome.held_out_before = model.loss(*unseen)
    begun = time.perf_counter()
    with _open(corpus) as loader:
        loader.enable_profiling()
        for step in range(arguments.steps):
            batch = loader.next()
            contexts, targets = model.examples(batch.input_ids, batch.labels)
            chosen = chooser.integers(0, len(targets), EXAMPLES)
            outcome.losses.append(model.train(contexts[chosen], targets[chosen]))
            outcome.trained_tokens += batch.input_ids.size
            progress(Progress("train", step + 1, arguments.steps, "steps", f"loss {outcome.losses[-1]:.2f}"))
            if time.perf_counter() - begun > arguments.seconds:
                break
        outcome.train_seconds = time.perf_counter() - begun
        outcome.wait_fraction = float(loader.get_profiling_results()["wait_fraction"])
    outcome.held_out_after = model.loss(*unseen)


def _prove(corpus: Path, tokenizer: Tokenizer, outcome: Outcome) -> None:
    """Stop and resume give the same batch; a row is where `explain` says it is."""
    with _open(corpus) as loader, _open(corpus) as resumed, TokenStore(corpus) as store:
        for _ in range(SHOWN_STEP):
            loader.next()
        state = json.loads(json.dumps(loader.state_dict()))
        batch = loader.next()
        resumed.load_state_dict(state)
        again = resumed.next()
        outcome.resumed_equal = np.array_equal(batch.input_ids, again.input_ids) and np.array_equal(
            batch.labels, again.labels
        )
        spans = loader.explain(SHOWN_STEP)[SHOWN_ROW].spans
        tokens = np.concatenate([tokens_of(store, span) for span in spans])
        first = spans[0]
        outcome.explained = {
            "step": SHOWN_STEP,
            "row": SHOWN_ROW,
            "file": first.file,
            "start": int(first.start),
            "stop": int(first.stop),
            "text": one_line(tokenizer.decode(tokens[:24].tolist()), width=60),
            "equal": bool(np.array_equal(tokens, batch.input_ids[SHOWN_ROW])),
        }


def _draw_for(corpus: Path, seconds: float) -> float:
    """Tokens per second of the loader alone, without a training step."""
    tokens = 0
    with PretrainDataLoader(corpus, chunk_size=1024, batch_size=64, seed=SEED, framework="numpy") as loader:
        loader.next()
        begun = time.perf_counter()
        while time.perf_counter() - begun < seconds:
            tokens += loader.next().input_ids.size
        return tokens / (time.perf_counter() - begun)


def _print_report(facts: dict[str, Any], corpus: PrepareReport, losses: list[float], note: str) -> None:
    """Print the short report for people."""
    explained = facts["explained"]
    span = f"tokens {explained['start']:,}-{explained['stop']:,}"
    rows = [
        ("text", f"{counted(corpus.files, 'file')}, {size(corpus.bytes)}: {facts['text']}"),
        ("note", note),
        ("store", f"{corpus.path}  ({corpus.tokens:,} tokens of {corpus.tokenizer}, {corpus.dtype})"),
        ("prepared in", f"{duration(corpus.seconds)}, {count(corpus.tokens_per_second)} tokens/s"),
        (
            "trained on",
            f"{count(facts['trained_tokens'])} tokens in {duration(facts['train_seconds'])}",
        ),
        ("waited for data", f"{facts['wait_fraction']:.2%} of that time"),
        ("loader alone", f"{count(facts['loader_tokens_per_second'])} tokens/s"),
        ("loss", f"{losses[0]:.2f} {sparkline(losses, 40)} {losses[-1]:.2f}"),
        (
            "on unseen files",
            f"{facts['held_out_before']:.2f} -> {facts['held_out_after']:.2f}  "
            f"(knowing only how frequent tokens are: {facts['unigram']:.2f})",
        ),
        (
            f"{_mark(explained['equal'])} explained",
            f"step {explained['step']} row {explained['row']} is {explained['file']} {span}",
        ),
        ("", f"  {explained['text']}"),
        (
            f"{_mark(facts['resumed_equal'])} resumed",
            "stopped, started again: the next batch is the same, bit for bit",
        ),
        ("in all", duration(facts["seconds"])),
    ]
    print(table(rows))
    shape = "--chunk-size 128 --batch-size 32"
    print(f"""
try next:
  millstream inspect {corpus.path}
  millstream explain {corpus.path} --step 100 {shape}
  millstream bench {corpus.path} --chunk-size 1024
  millstream prepare your-texts/ your-corpus --tokenizer bpe""")


def _mark(good: object) -> str:
    return "✓" if good else "✗"


def _collect(folder: Path) -> tuple[list[Path], str]:
    """Find the text: (files, what they are). Documentation is first written into `folder`."""
    files = list(_up_to(_sources(), MOST_BYTES))
    if len(files) >= 20:
        return files, "sources of Python's standard library"
    written = write_documentation(folder)
    return written, "documentation of Python's standard library (its sources are not installed here)"


def _sources() -> Iterator[Path]:
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")) if root.is_dir() else ():
        if not _PASSED_OVER & set(path.relative_to(root).parts[:-1]) and path.stat().st_size:
            yield path


def _up_to(paths: Iterator[Path], most_bytes: int) -> Iterator[Path]:
    for path in paths:
        most_bytes -= path.stat().st_size
        if most_bytes < 0:
            return
        yield path


def write_documentation(folder: Path) -> list[Path]:
    """Write what can be reached by import: the language reference of `help()` and the modules' docstrings."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = dict(_topics())
    for name in _DOCUMENTED.split():
        text = "\n\n".join(_docstrings(name))
        if len(text) > 500:
            texts[f"module-{name}"] = text
    paths = []
    for name, text in sorted(texts.items()):
        path = folder / f"{name}.txt"
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def _topics() -> Iterator[tuple[str, str]]:
    try:
        topics = importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        return
    for name, text in topics.items():
        yield f"topic-{name.replace('/', '-')}", text


def _docstrings(name: str) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old names in the library warn when they are only looked at
        yield from _documented(name)


def _documented(name: str) -> Iterator[str]:
    try:
        module = importlib.import_module(name)
    except Exception as error:  # a part of the standard library that was left out here
        _log.info("no documentation of %s: %s", name, error)
        return
    yield inspect.getdoc(module) or ""
    for key, value in sorted(vars(module).items()):
        # Numbers and strings have no documentation of their own, only that of their type.
        text = inspect.getdoc(value) if callable(value) else None
        if text:
            yield f"{name}.{key}\n{text}"
