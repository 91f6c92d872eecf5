"""Made-up reports of runs, of every kind that a page or a terminal may have to show."""

from __future__ import annotations

import math
import random
from typing import Any

HOSTILE = "</script></pre><img src=x onerror=alert(1)>&amp; \x00\x1b[2J\u202egnp.exe \ud800 " + "a" * 1900


def source(path: str, tokens: int, **changes: Any) -> dict[str, Any]:
    row = {"path": path, "format": "jsonl", "bytes": tokens * 4, "weight": None}
    return row | {"rows": tokens // 400 + 1, "documents": tokens // 500 + 1, "tokens": tokens} | changes


def plain_report(**changes: Any) -> dict[str, Any]:
    """One small file, nothing left out, found in the cache in no time."""
    report = {
        "version": 1,
        "fingerprint": "9c45d3f65c07b886b3ca15bf3f971716",
        "dtype": "uint16",
        "tokenizer": {"name": "char", "fingerprint": "ab" * 16, "vocab_size": 29, "eos": 28},
        "tokenizer_engine": "char",
        "recipe": [],
        "documents": 3,
        "tokens": 363,
        "source_bytes": 360,
        "text_bytes": 360,
        "root": "/data/poems",
        "sources": [source("poem.txt", 363, format="text", bytes=360, rows=3, documents=3)],
        "lengths": [0] * 7 + [2, 1] + [0] * 39,
        "storage": {"token_bytes": 200, "file_bytes": 264, "ratio": 0.758, "cpu_seconds": 0.0},
        "left_out": {},
        "bad": {},
        "skipped": {},
        "changed": {},
        "dropped": {},
        "examples": {},
        "pace": [[0.01, 360, 363]],
        "seconds": 0.01,
        "cpu_seconds": 0.009,
        "peak_memory_bytes": 61_000_000,
        "workers": 2,
        "parts": {"made": 0, "found": 1, "bytes_written": 0},
        "machine": {"processors": 2, "system": "Linux", "python": "3.11.7"},
    }
    return report | changes


def rich_report(files: int = 64, **changes: Any) -> dict[str, Any]:
    """A long run over many files, with everything that can happen to a record."""
    chance = random.Random(7)
    tokens = [int(2_000_000 * chance.paretovariate(1.1)) for _ in range(files)]
    sources = [source(f"web/crawl-{n % 9}/part-{n:05}.jsonl.zst", number) for n, number in enumerate(tokens)]
    lengths = [0] * 48
    for bits in range(1, 22):
        lengths[bits] = int(1_200_000 * math.exp(-(((bits - 10.2) / 2.6) ** 2)))
    dropped = {
        "exact_duplicates: duplicate": 412_733,
        "gopher: too few words": 301_554,
        "near_duplicates: duplicate": 288_120,
        "language: not en": 190_224,
        "fineweb: lines too short": 44_031,
        "c4: curly bracket": 17_906,
        "decontamination: shares 13 words with gsm8k": 212,
        "blocklist: a phrase": 3,
    }
    texts = ["Click here to log in.\n\nHome | About | Contact", "Das Mühlrad dreht sich am Bach. " * 9, HOSTILE]
    examples = {
        reason: [
            {"file": sources[n * 7 % files]["path"], "row": 1_000 * n + 17, "text": texts[n]}
            for n in range(min(3, number))
        ]
        for reason, number in dropped.items()
    }
    bad, skipped = {"not JSON": 118, "no text field": 41, "invalid UTF-8": 7}, {"empty": 5_210, "hidden file": 2}
    changed = {"normalize: text changed": 81_220, "pii: e-mail address masked": 12_043}
    seconds, read, pace = 0.0, 0, []
    for n in range(150):
        seconds += 1.55 + 0.2 * chance.random()
        read += int(3e8 * (0.75 + 0.35 * chance.random() - 0.35 * (60 < n < 72)))
        pace.append([round(seconds, 3), read, read // 4])
    rich = {
        "dtype": "uint32",
        "tokenizer": {"name": "cl100k_base", "fingerprint": "cd" * 16, "vocab_size": 100_277, "eos": 100_257},
        "tokenizer_engine": "gigatoken",
        "recipe": [
            {"name": "normalize", "form": "NFC", "whitespace": True},
            {"name": "language", "keep": ["en"], "least": 0.65},
            {"name": "gopher", "least_words": 50, "most_words": 100_000},
            {"name": "exact_duplicates"},
            {"name": "near_duplicates", "bands": 14, "rows": 8, "words": 5},
        ],
        "documents": sum(lengths),
        "tokens": sum(tokens),
        "source_bytes": read,
        "text_bytes": int(sum(tokens) * 4.31),
        "sources": sources,
        "lengths": lengths,
        "storage": {"token_bytes": 4_000_000_000, "file_bytes": 1_250_000_000, "ratio": 3.2, "cpu_seconds": 21.5},
        "left_out": skipped | bad | dropped,
        "bad": bad,
        "skipped": skipped,
        "changed": changed,
        "dropped": dropped,
        "examples": examples,
        "pace": pace,
        "seconds": round(seconds + 0.4, 3),
        "cpu_seconds": round(seconds * 1.9, 3),
        "peak_memory_bytes": 1_310_000_000,
        "parts": {"made": 1_403, "found": 12, "bytes_written": 2_800_000_000},
    }
    return plain_report(**rich) | changes
