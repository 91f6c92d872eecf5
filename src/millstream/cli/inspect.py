"""`millstream inspect`: what a store holds and what it was made from, or what files of rollouts or games hold."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from millstream.cli.games import inspect_games
from millstream.cli.options import tokenizer_for
from millstream.cli.rollouts import hold_rollouts, inspect_rollouts
from millstream.cli.terminal import bars, histogram, one_line, print_json, sparkline, table
from millstream.errors import StoreError
from millstream.loaders import are_games
from millstream.preparation import (
    Ranked,
    duplicates_by_step,
    examples_of,
    fates_of_records,
    how_it_was_made,
    length_bins,
    main_figures,
    ranked,
    read_report,
    rejected_by_rule,
    speed_over_time,
    steps_of_recipe,
    tokens_by_source,
    was_all_cached,
)
from millstream.stats import bit_span, counted, duration, share, size
from millstream.store import TokenStore, token_dtype
from millstream.tokens import Tokenizer

DESCRIPTION = """\
Show counts, document lengths, sources, versions, the report of its making and a sample of a store.
Of rollouts, in files or in a spool: counts, lengths, rewards, groups, how they ended and which policies sampled them.
Of self-play games, a file or a folder: files, games, positions, versions, input formats, when they were written, and
files that cannot be used, by reason."""
EPILOG = """\
examples:
  millstream inspect corpus
  millstream inspect corpus --document 12           the text of one document
  millstream inspect train.bin --dtype uint16       a bare file of ids, as nanoGPT writes it
  millstream inspect corpus --json | jq .tokens
  millstream inspect rollouts.jsonl                 how many, how long, which rewards
  millstream inspect spool/ --json | jq .groups     what waits in the folder of a feed
  millstream inspect games/                         how many games and positions, of which versions
  millstream inspect games/ --kind games            the same, if there are none yet
"""

MOST_LENGTHS = 20_000
SAMPLE_TOKENS = 200
MOST_BARS = 12
BAR_LETTERS = 24
LABEL_LETTERS = 44


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument(
        "store", help="a store (a folder or a .bin file), rollouts (files, a pattern, a spool), or games"
    )
    parser.add_argument(
        "--kind", choices=("store", "rollouts", "games"), help="what it holds, where the files do not tell"
    )
    parser.add_argument("--dtype", choices=("uint16", "uint32", "int32"), help="for a bare file of ids")
    parser.add_argument("--version", help="an older version, by the first digits of its fingerprint")
    parser.add_argument("--document", type=int, default=0, help="the document to show (default: 0)")
    parser.add_argument("-t", "--tokenizer", help="to decode the sample, if none lies beside the store")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Look into a store, or at rollouts or games."""
    kind = arguments.kind or _detected_kind(arguments)
    if kind == "games":
        inspect_games(arguments.store, as_json=arguments.json)
        return 0
    if kind == "rollouts":
        inspect_rollouts(arguments.store, arguments.tokenizer, as_json=arguments.json)
        return 0
    with TokenStore(arguments.store, dtype=arguments.dtype, version=arguments.version) as store:
        tokenizer = tokenizer_for(store, arguments.store, arguments.tokenizer)
        facts = _facts(store)
        facts["sample"] = _sample(store, arguments.document, tokenizer)
        facts["report"] = _report(store)
    if arguments.json:
        print_json(facts)
    else:
        _print(facts)
    return 0


def _detected_kind(arguments: argparse.Namespace) -> str:
    if arguments.dtype is not None or arguments.version is not None:
        return "store"
    if are_games(arguments.store):
        return "games"
    return "rollouts" if hold_rollouts(arguments.store, arguments) else "store"


def _report(store: TokenStore) -> dict[str, Any] | None:
    """The report of the run that made this very version of a store, if there is one."""
    report = read_report(store.path)
    return report if report is not None and report.get("fingerprint") == store.fingerprint else None


def _facts(store: TokenStore) -> dict[str, Any]:
    manifest = store.manifest
    sources = manifest.get("sources") or []
    step = max(1, -(-store.documents // MOST_LENGTHS))
    spans = [store.document_span(document) for document in range(0, store.documents, step)]
    lengths = [stop - start for start, stop in spans]
    return {
        "path": str(store.path),
        "kind": store.kind,
        "fingerprint": store.fingerprint,
        "dtype": store.dtype,
        "tokens": len(store),
        "documents": store.documents,
        "shards": len(store.layout.table),
        "bytes": sum(store.layout.path_of(shard).stat().st_size for shard in range(len(store.layout.table))),
        "id_bound": store.id_bound,
        "tokenizer": manifest.get("tokenizer"),
        "recipe": manifest.get("recipe"),
        "sources": {"files": len(sources), "bytes": sum(source["bytes"] for source in sources)},
        "versions": [
            {"fingerprint": version.fingerprint, "tokens": version.tokens, "documents": version.documents}
            for version in store.log()
        ],
        "lengths": {"of_documents": len(lengths), "lengths": lengths},
    }


def _sample(store: TokenStore, document: int, tokenizer: Tokenizer | None) -> dict[str, Any] | None:
    if not store.documents:
        return None
    if not 0 <= document < store.documents:
        raise StoreError(
            f"{store.path}: there is no document {document} among {store.documents}",
            hint=f"documents count from 0 to {store.documents - 1}",
        )
    start, stop = store.document_span(document)
    ids = store.read(start, min(stop, start + SAMPLE_TOKENS)).tolist()
    return {
        "document": document,
        "file": store.file_of(document),
        "ids": ids,
        "text": None if tokenizer is None else tokenizer.decode(ids),
    }


def _print(facts: dict[str, Any]) -> None:
    lengths = sorted(facts["lengths"]["lengths"])
    middle = statistics.median_low(lengths) if lengths else 0
    tokenizer, versions, sources = facts["tokenizer"], facts["versions"], facts["sources"]
    rows = [
        ("store", f"{facts['path']}  ({facts['kind']}, {facts['fingerprint']})"),
        ("tokens", f"{facts['tokens']:,}  ({facts['dtype']}, {_bound(facts['id_bound'])})"),
        ("documents", f"{facts['documents']:,}" + (f"  (median {middle:,} tokens)" if lengths else "")),
        ("shards", f"{facts['shards']:,}  ({size(facts['bytes'])}{_packed(facts)})"),
        ("tokenizer", f"{tokenizer['name']}  ({tokenizer['vocab_size']:,} ids)" if tokenizer else ""),
        (
            "made from",
            f"{counted(sources['files'], 'file')}, {size(sources['bytes'])}" if sources["files"] else "",
        ),
        ("left out", _left_out(facts["recipe"])),
        ("versions", ", ".join(version["fingerprint"][:8] for version in versions) if versions[1:] else ""),
    ]
    print(table(rows))
    report = _report_text(facts["report"])
    if report:
        print(f"\n{report}")
    elif lengths:
        of = "" if len(lengths) == facts["documents"] else f", of every {facts['documents'] // len(lengths)}th"
        print(f"\ntokens per document{of}:\n{histogram(lengths)}")
    sample = facts["sample"]
    if sample is not None:
        source = f" ({Path(sample['file']).as_posix()})" if sample["file"] else ""
        print(f"\ndocument {sample['document']}{source} begins:")
        print(sample["text"] if sample["text"] is not None else " ".join(map(str, sample["ids"])))


def _packed(facts: dict[str, Any]) -> str:
    """By how much the tokens are packed, if they are."""
    plain = facts["tokens"] * token_dtype(facts["dtype"]).itemsize
    return f", packed to 1/{plain / facts['bytes']:.1f}" if 0 < facts["bytes"] < plain else ""


def _report_text(report: dict[str, Any] | None) -> str:
    """The report as text; nothing if it is not one, since any program may have written that file."""
    try:
        return "" if report is None else show_report(report)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return ""


def _bound(id_bound: int | None) -> str:
    return "ids not checked yet" if id_bound is None else f"ids below {id_bound:,}"


def _left_out(recipe: object) -> str:
    left_out = recipe.get("left_out") if isinstance(recipe, dict) else None
    return ", ".join(f"{number} {reason}" for reason, number in (left_out or {}).items())


def show_report(report: Mapping[str, Any]) -> str:
    """Everything that a run counted; what did not happen is not mentioned."""
    blocks = [
        _run(report),
        _ranked("records", Ranked(fates_of_records(report), 0, 0)),
        _lengths(report),
        _pace(report),
        _ranked("tokens per source", tokens_by_source(report, MOST_BARS)),
        _dropped("rejected by rule", rejected_by_rule(report), report),
        _dropped("duplicates", duplicates_by_step(report), report),
        _ranked("bad records", ranked(report["bad"], MOST_BARS)),
        _ranked("skipped", ranked(report["skipped"], MOST_BARS)),
        _ranked("changed", ranked(report["changed"], MOST_BARS)),
        _recipe(report["recipe"]),
    ]
    return "\n\n".join(filter(None, blocks))


def _run(report: Mapping[str, Any]) -> str:
    numbers = [(name, f"{value}  ({remark})" if remark else value) for name, value, remark in main_figures(report)]
    cached = "everything was found in the cache: times are those of reading it" if was_all_cached(report) else ""
    made_with = [(name, one_line(value, 100)) for name, value in how_it_was_made(report)]
    return table([*numbers, *made_with, ("note", cached)])


def _lengths(report: Mapping[str, Any]) -> str:
    bins = length_bins(report["lengths"])
    return f"tokens per document:\n{bars([(bit_span(bits), n) for bits, n in bins])}" if bins else ""


def _pace(report: Mapping[str, Any]) -> str:
    speeds = speed_over_time(report["pace"])
    if not speeds:
        return ""
    least, most = size(min(speeds)), size(max(speeds))
    return f"speed over {duration(report['pace'][-1][0])}, {least}/s to {most}/s:\n {sparkline(speeds)}"


def _ranked(title: str, top: Ranked, below: Sequence[str] = ()) -> str:
    """Bars with a title; `below` has a line to put under each."""
    if not top.shown:
        return ""
    labels = [one_line(label, LABEL_LETTERS) for label, _ in top.shown]
    room = max(5, *map(len, labels))
    rows = [(f"{label:<{room}}", number) for label, (_, number) in zip(labels, top.shown, strict=True)]
    lines = [f"{title}:"]
    for place, bar in enumerate(bars(rows, BAR_LETTERS).splitlines()):
        part = share(top.shown[place][1], top.total)
        lines += [f"{bar}  {part}", *below[place : place + 1]]
    if top.others:
        lines.append(f" and {top.others:,} more with {top.others_sum:,}  {share(top.others_sum, top.total)}")
    return "\n".join(filter(None, lines))


def _dropped(title: str, counts: Mapping[str, int], report: Mapping[str, Any]) -> str:
    top = ranked(counts, MOST_BARS)
    return _ranked(title, top, [_example(examples_of(report, reason)) for reason, _ in top.shown])


def _example(examples: Sequence[Mapping[str, Any]]) -> str:
    if not examples:
        return ""
    origin = f"{one_line(examples[0]['file'], LABEL_LETTERS)}:{examples[0]['row']}"
    return f"     {origin}  {one_line(examples[0]['text'], 60)}"


def _recipe(steps: Sequence[Mapping[str, Any]]) -> str:
    if not steps:
        return ""
    rows = [
        (f" {place}  {one_line(name, LABEL_LETTERS)}", one_line(settings) or "-")
        for place, (name, settings) in enumerate(steps_of_recipe(steps), 1)
    ]
    return f"recipe:\n{table(rows)}"
