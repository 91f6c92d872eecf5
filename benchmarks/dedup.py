"""Near-duplicates: documents per CPU second, recall and precision, against datatrove, datasketch and rensa in one run.

    python benchmarks/dedup.py [--documents 2000] [--output benchmarks/results/dedup.md]

Needs what requirements-records.txt lists. Every other document is an edited copy of the one before: some words are
replaced, so that the true Jaccard similarity of the pair (of sets of five folded words) lies anywhere up to 1. All make
112 hashes and cut them into 14 bands of 8; two documents meet when a band is equal. Time is that of text -> bands.
datasketch and rensa take words from us, since they bring none.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import numpy as np

import machine
from millstream.records.dedup import MinhashDedup
from millstream.records.phrases import fold
from millstream.sources import RecordBlock
from prose import documents, records

WORDS, BANDS, ROWS = 5, 14, 8
HASHES = BANDS * ROWS

LEVELS = {"0.9-1": 0.9, "0.8-0.9": 0.8, "0.6-0.8": 0.6, "0-0.6": 0.0}

Bands = list[list[Hashable]]  # per document
Maker = Callable[[list[str]], Bands]


def planted(count: int) -> list[str]:
    """Documents and their edited copies, in turn."""
    draw = random.Random(1)
    out: list[str] = []
    for text in documents(12):
        words = text.split(" ")
        if 60 <= len(words) <= 2000:
            edits = draw.choice([0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1])
            copy = [f"edit{draw.randrange(10**6):x}q" if draw.random() < edits else word for word in words]
            out += [text, " ".join(copy)]
        if len(out) >= count:
            break
    return out


def shingles(text: str) -> set[str]:
    words = fold(text).split()
    return {" ".join(words[i : i + WORDS]) for i in range(max(1, len(words) - WORDS + 1))}


def millstream(texts: list[str]) -> Bands:
    block = RecordBlock.of(records(texts), "bench")
    return [list(row) for row in MinhashDedup(WORDS, BANDS, ROWS).keys(block).tolist()]


def datatrove(*, own_words: bool) -> Maker:
    from datatrove.pipeline.dedup.minhash import MinhashDedupSignature

    step = MinhashDedupSignature("/tmp")

    class FoldedWords:
        def word_tokenize(self, text: str) -> list[str]:
            return text.split()

    if not own_words:
        step.word_tokenizer = FoldedWords()

    def make(texts: list[str]) -> Bands:
        return [[tuple(band) for band in step.get_signature(step.get_shingles(text))] for text in texts]

    return make


def cut(hashes: Any) -> list[Hashable]:
    return [band.tobytes() for band in np.asarray(hashes).reshape(BANDS, ROWS)]


def datasketch(texts: list[str]) -> Bands:
    from datasketch import MinHash

    out: Bands = []
    for text in texts:
        made = MinHash(num_perm=HASHES)
        made.update_batch([shingle.encode() for shingle in shingles(text)])
        out.append(cut(made.hashvalues))
    return out


def rensa(texts: list[str]) -> Bands:
    from rensa import RMinHash

    out: Bands = []
    for text in texts:
        made = RMinHash(num_perm=HASHES, seed=1)
        made.update(list(shingles(text)))
        out.append(cut(made.digest()))
    return out


def meetings(bands: Bands) -> set[tuple[int, int]]:
    """Pairs of documents that share a band; a document meets the first that had it."""
    first: dict[tuple[int, Hashable], int] = {}
    met: set[tuple[int, int]] = set()
    for document, own in enumerate(bands):
        for place, band in enumerate(own):
            earlier = first.setdefault((place, band), document)
            if earlier != document:
                met.add((earlier, document))
    return met


class Truth:
    """The similarity of pairs, computed when it is asked for."""

    def __init__(self, texts: list[str]) -> None:
        self.sets = [shingles(text) for text in texts]
        self.levels: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for pair in ((i, i + 1) for i in range(0, len(texts) - 1, 2)):
            self.levels[next(name for name, low in LEVELS.items() if self.of(pair) >= low)].append(pair)

    def of(self, pair: tuple[int, int]) -> float:
        one, other = self.sets[pair[0]], self.sets[pair[1]]
        return len(one & other) / len(one | other)


def judged(bands: Bands, truth: Truth) -> list[str]:
    """The share of the planted pairs that meet, by similarity, and the share of meetings that are right."""
    met = meetings(bands)
    found = [sum(pair in met for pair in truth.levels[level]) / max(1, len(truth.levels[level])) for level in LEVELS]
    precision = sum(truth.of(pair) >= 0.6 for pair in met) / max(1, len(met))
    return [f"{each:.3f}" for each in (*found, precision)]


def theory(truth: Truth) -> list[str]:
    """What bands of rows promise for pairs of these similarities."""
    chances = {level: [1 - (1 - truth.of(pair) ** ROWS) ** BANDS for pair in truth.levels[level]] for level in LEVELS}
    return [f"{np.mean(each) if each else 0:.3f}" for each in chances.values()]


def heading(texts: list[str], truth: Truth) -> list[str]:
    facts = machine.facts(["datatrove", "spacy", "datasketch", "rensa", "numpy", "millstream"])
    size = sum(len(text.encode()) for text in texts) / 1e6
    pairs = ", ".join(f"{len(truth.levels[level])} at {level}" for level in LEVELS)
    columns = ["documents per CPU second", "CPU against ours", *(f"found at {each}" for each in LEVELS), "precision"]
    return [
        "# Near-duplicates",
        "",
        machine.one_line(facts),
        "",
        f"{len(texts)} documents, {size:.1f} MB, one thread. Planted pairs by Jaccard similarity: {pairs}.",
        "Found: the share of planted pairs that meet; theory: the mean of 1 - (1 - s^8)^14 over them.",
        "Precision: the share of all meetings whose true similarity is at least 0.6.",
        "",
        f"| who | {' | '.join(columns)} |",
        f"|---|{'---:|' * len(columns)}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "dedup.md")
    settings = parser.parse_args()
    texts = planted(settings.documents)
    truth = Truth(texts)
    makers: list[tuple[str, Maker]] = [
        ("**millstream**", millstream),
        ("rensa (RMinHash)", rensa),
        ("datasketch", datasketch),
        ("datatrove, words split at spaces", datatrove(own_words=False)),
        ("datatrove", datatrove(own_words=True)),
    ]
    lines = heading(texts, truth)
    ours = 0.0
    for name, make in makers:
        make(texts[:50])  # imports and tables are not part of the cost
        start = time.process_time()
        bands = make(texts)
        seconds = time.process_time() - start
        ours = ours or seconds
        cells = [f"{len(texts) / seconds:,.0f}", f"{seconds / ours:.1f}", *judged(bands, truth)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    lines.append(f"| theory | | | {' | '.join(theory(truth))} | |")
    settings.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
