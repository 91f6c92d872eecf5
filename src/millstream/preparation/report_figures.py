"""A report -> what is worth showing of it, on its page and in the terminal alike. Pure, and bounded in size."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from millstream.stats import count, counted, duration, share, size

MOST_REASONS = 30
MOST_INTERVALS = 60
LEAST_SECONDS = 0.01
_DUPLICATE = ": duplicate"


@dataclass(frozen=True, slots=True)
class Ranked:
    """The largest of many counts in falling order, and what they leave over: how many others, and their sum."""

    shown: list[tuple[str, int]]
    others: int
    others_sum: int

    @property
    def total(self) -> int:
        """The sum of all counts."""
        return sum(number for _, number in self.shown) + self.others_sum


def ranked(counts: Mapping[str, int] | Sequence[tuple[str, int]], most: int = MOST_REASONS) -> Ranked:
    """Put the largest counts first and sum up the others.

    >>> ranked({"a": 1, "b": 5, "c": 2}, most=2)
    Ranked(shown=[('b', 5), ('c', 2)], others=1, others_sum=1)
    """
    pairs = counts.items() if isinstance(counts, Mapping) else counts
    falling = sorted(pairs, key=lambda pair: -pair[1])
    rest = falling[most:]
    return Ranked(falling[:most], len(rest), sum(number for _, number in rest))


def tokens_by_source(report: Mapping[str, Any], most: int) -> Ranked:
    """Tokens by source file."""
    return ranked([(source["path"], source["tokens"]) for source in report["sources"]], most)


def rejected_by_rule(report: Mapping[str, Any]) -> dict[str, int]:
    """What rules dropped, without duplicates."""
    return {reason: number for reason, number in report["dropped"].items() if not reason.endswith(_DUPLICATE)}


def duplicates_by_step(report: Mapping[str, Any]) -> dict[str, int]:
    """What was dropped as a duplicate, by the step that found it."""
    return {
        reason.removesuffix(_DUPLICATE): number
        for reason, number in report["dropped"].items()
        if reason.endswith(_DUPLICATE)
    }


def examples_of(report: Mapping[str, Any], reason: str) -> list[Mapping[str, Any]]:
    """Some of the records that were dropped for a reason, or by a step as duplicates."""
    kept = report["examples"]
    return list(kept.get(reason) or kept.get(reason + _DUPLICATE) or ())


def fates_of_records(report: Mapping[str, Any]) -> list[tuple[str, int]]:
    """What became of all records; duplicates, rejects and the like are left out if there were none."""
    all_fates = [
        ("kept", report["documents"]),
        ("duplicates", sum(duplicates_by_step(report).values())),
        ("rejected", sum(rejected_by_rule(report).values())),
        ("bad", sum(report["bad"].values())),
        ("skipped", sum(report["skipped"].values())),
    ]
    return [(fate, number) for fate, number in all_fates if number or fate == "kept"]


def length_bins(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """(bits of the length, documents), without the empty bins at both ends.

    >>> length_bins([0, 0, 3, 0, 1, 0])
    [(2, 3), (3, 0), (4, 1)]
    """
    used = [bits for bits, documents in enumerate(lengths) if documents]
    return [(bits, lengths[bits]) for bits in range(used[0], used[-1] + 1)] if used else []


def speed_over_time(pace: Sequence[Sequence[float]], most: int = MOST_INTERVALS) -> list[float]:
    """Source bytes per second in equal stretches of time; none if there are too few notes to tell.

    Parts arrive in bursts, so what was read between two notes is spread evenly over the time between them.

    >>> speed_over_time([(1.0, 10, 0), (2.0, 30, 0), (3.0, 40, 0), (4.0, 50, 0)])
    [10.0, 20.0, 10.0, 10.0]
    """
    notes = [(0.0, 0.0), *((float(seconds), float(read)) for seconds, read, _ in pace)]
    if len(notes) < 4 or notes[-1][0] < LEAST_SECONDS:
        return []
    stretches = min(most, len(notes) - 1)
    step = notes[-1][0] / stretches
    read = [0.0, *(_read_at(notes, step * place) for place in range(1, stretches)), notes[-1][1]]
    return [(after - before) / step for before, after in pairwise(read)]


def _read_at(notes: Sequence[tuple[float, float]], seconds: float) -> float:
    for (since, before), (until, after) in pairwise(notes):
        if seconds <= until and until > since:
            return before + (after - before) * (seconds - since) / (until - since)
    return notes[-1][1]


def main_figures(report: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The first numbers to look at, two rows of four: (name, value, remark)."""
    tokens, documents, read = report["tokens"], report["documents"], report["source_bytes"]
    seconds = report["seconds"] or 1e-3
    per_document = f"{count(tokens / documents)} tokens each" if documents else ""
    per_token = f"{report['text_bytes'] / tokens:.2f} bytes per token" if tokens else ""
    return [
        ("tokens", count(tokens), f"{tokens:,}" if tokens >= 1e6 else "in all"),
        *_trained(report),
        ("documents", count(documents), per_document),
        ("source", size(read), counted(len(report["sources"]), "file")),
        ("text kept", size(report["text_bytes"]), per_token),
        ("time", duration(report["seconds"]), f"{duration(report['cpu_seconds'])} of processor time"),
        *_speed(count(tokens / seconds), f"{size(read / seconds)}/s", report),
        ("memory", size(report["peak_memory_bytes"]), "at most"),
    ]


def _speed(tokens: str, source: str, report: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """How fast it went; in one tile, where what is learned takes the place of the other."""
    workers = counted(report["workers"], "worker")
    if report.get("chat") is not None:
        return [("tokens/s", tokens, f"{source} of source, {workers}")]
    return [("tokens/s", tokens, workers), ("speed", source, "of source")]


def _trained(report: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """How much of conversations is learned."""
    chat = report.get("chat")
    if chat is None:
        return []
    return [("trained", count(chat["trained_tokens"]), f"{share(chat['trained_tokens'], report['tokens'])} of tokens")]


def chat_template(report: Mapping[str, Any]) -> str:
    """How conversations were rendered and weighed.

    >>> train = {"train": "assistant", "train_reasoning": True}
    >>> chat = {"template": "chatml", "train": train, "max_length": 2048, "truncation": "turns", "boundary": "whole"}
    >>> chat_template({"chat": chat})
    'chatml, trains assistant, at most 2,048 tokens (else turns)'
    """
    chat = report.get("chat")
    if chat is None:
        return ""
    most = "" if chat["max_length"] is None else f", at most {chat['max_length']:,} tokens (else {chat['truncation']})"
    split = "" if chat["boundary"] == "whole" else ", encoded in parts"
    return f"{chat['template'] or 'no template'}, trains {chat['train']['train']}{most}{split}"


def how_it_was_made(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the run was made with: (name, value)."""
    tokenizer, parts, machine = report["tokenizer"] or {}, report["parts"], report["machine"]
    name, engine = tokenizer.get("name", "none"), report["tokenizer_engine"]
    ids = f" ({tokenizer['vocab_size']:,} ids)" if "vocab_size" in tokenizer else ""
    by = f", encoded by {engine}" if engine else ""
    made = f"{parts['made']:,} made, {parts['found']:,} found in the cache, {size(parts['bytes_written'])} written"
    told = chat_template(report)
    spent = [f"{duration(seconds)} {name}" for name, seconds in report.get("phases", {}).items()]
    return [
        ("tokenizer", f"{name}{ids}{by}"),
        *([("conversations", told)] if told else []),
        ("stored as", f"{report['dtype']}, {_storage(report['storage'])}"),
        ("parts", made),
        *([("time for", ", ".join(spent))] if spent else []),
        ("machine", f"{counted(machine['processors'], 'processor')}, {machine['system']}, Python {machine['python']}"),
        ("read from", report["root"]),
        ("fingerprint", report["fingerprint"]),
    ]


def _storage(storage: Mapping[str, Any]) -> str:
    """How large the tokens are on the disk, and what it cost to write them.

    >>> _storage({"token_bytes": 4_000_000, "file_bytes": 1_250_000, "ratio": 3.2, "cpu_seconds": 0.5})
    '1.2 MB (packed to 1/3.2), written in 500 ms of processor time'
    """
    packed = f" (packed to 1/{storage['ratio']:g})" if storage["ratio"] > 1 else ""
    return f"{size(storage['file_bytes'])}{packed}, written in {duration(storage['cpu_seconds'])} of processor time"


def steps_of_recipe(recipe: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The steps of a recipe: (name, settings).

    >>> steps_of_recipe([{"name": "language", "keep": ["en"]}])
    [('language', 'keep = ["en"]')]
    """
    told = []
    for step in recipe:
        settings = [f"{key} = {json.dumps(step[key], ensure_ascii=False)}" for key in step if key != "name"]
        told.append((str(step.get("name", "?")), ", ".join(settings)))
    return told


def was_all_cached(report: Mapping[str, Any]) -> bool:
    """Whether everything was found in the cache, so that speeds say nothing about the work."""
    return bool(report["parts"]["found"]) and not report["parts"]["made"]
