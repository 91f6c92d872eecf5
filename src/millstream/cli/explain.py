"""`millstream explain`: which documents a step trains on, and which steps train on a document."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from millstream.cli import show
from millstream.cli.inspect import tokenizer_for
from millstream.errors import StoreError
from millstream.loaders import PretrainDataLoader, Span
from millstream.store import TokenStore
from millstream.store.format import Tokens
from millstream.tokens import Tokenizer

SUMMARY = "name the documents behind a step, or the steps of a document"
DESCRIPTION = """\
Say where every row of a training step comes from, or in which steps a document is used. Nothing is replayed:
the answer is computed, for any step, in a moment. Give the settings of the run that you ask about."""
EPILOG = """\
examples:
  millstream explain corpus --step 41870 --chunk-size 2048 --batch-size 64 --seed 0
  millstream explain corpus --step 41870 --row 3          one row, with its text
  millstream explain corpus --document 17                 the steps that use document 17
  millstream explain corpus --step 100 --json | jq '.rows[0].spans'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("store", help="a store: a folder or a .bin file")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--step", type=int, help="the step to explain")
    what.add_argument("--document", type=int, help="the document to look for")
    add_run_arguments(parser)
    parser.add_argument("--row", type=int, help="only this row, with its text")
    parser.add_argument("-t", "--tokenizer", help="to show the text, if none lies beside the store")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the settings that decide which row comes when."""
    parser.add_argument("--chunk-size", type=int, default=2048, help="tokens per row (default: 2048)")
    parser.add_argument("--batch-size", type=int, default=8, help="rows per rank (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the shuffle (default: 0)")
    parser.add_argument("--shuffle", choices=("global", "local", "none"), default="global", help="default: global")
    parser.add_argument("--rank", type=int, default=0, help="data-parallel rank (default: 0)")
    parser.add_argument("--world-size", type=int, default=1, help="ranks in all (default: 1)")
    parser.add_argument("--dtype", choices=("uint16", "uint32", "int32"), help="for a bare file of ids")


def open_loader(store: TokenStore, arguments: argparse.Namespace, **settings: Any) -> PretrainDataLoader:
    """The loader of the run that the arguments describe."""
    return PretrainDataLoader(
        store,
        chunk_size=arguments.chunk_size,
        batch_size=arguments.batch_size,
        seed=arguments.seed,
        shuffle=False if arguments.shuffle == "none" else arguments.shuffle,
        rank=arguments.rank,
        world_size=arguments.world_size,
        framework="numpy",
        **settings,
    )


def run(arguments: argparse.Namespace) -> int:
    """Explain a step, or find the steps of a document."""
    with TokenStore(arguments.store, dtype=arguments.dtype) as store, open_loader(store, arguments) as loader:
        if arguments.document is not None:
            return _steps(loader, store, arguments)
        tokenizer = tokenizer_for(store, arguments.store, arguments.tokenizer)
        rows = list(_rows(loader, store, arguments, tokenizer))
    if arguments.json:
        json.dump({"step": arguments.step, "rows": rows}, sys.stdout, default=str)
        print()
        return 0
    print(f"step {arguments.step}: {len(rows)} rows of {arguments.chunk_size} tokens")
    for row in rows:
        for span in row["spans"]:
            tokens = f"{span['start']:,}-{span['stop']:,}"
            print(f"row {row['row']:<4} {span['file']}  document {span['document']}  tokens {tokens}  {_preview(span)}")
    return 0


def _rows(
    loader: PretrainDataLoader, store: TokenStore, arguments: argparse.Namespace, tokenizer: Tokenizer | None
) -> Iterator[dict[str, Any]]:
    for place, row in enumerate(loader.explain(arguments.step)):
        if arguments.row is not None and arguments.row != place:
            continue
        spans = []
        for span in row.spans:
            ids = tokens_of(store, span).tolist()
            text = None if tokenizer is None else tokenizer.decode(ids if arguments.row is not None else ids[:40])
            spans.append({**asdict(span), "text": text})
        yield {"row": place, "spans": spans}


def tokens_of(store: TokenStore, span: Span) -> Tokens:
    """The tokens of a span."""
    first, _ = store.document_span(span.document)
    return store.read(first + span.start, first + span.stop)


def _preview(span: dict[str, Any]) -> str:
    return "" if span["text"] is None else show.one_line(span["text"], width=48)


def _steps(loader: PretrainDataLoader, store: TokenStore, arguments: argparse.Namespace) -> int:
    if not 0 <= arguments.document < store.documents:
        raise StoreError(f"{store.path}: there is no document {arguments.document} among {store.documents}")
    steps = [int(step) for step in loader.steps_of(arguments.document)]
    file = store.file_of(arguments.document)
    if arguments.json:
        json.dump({"document": arguments.document, "file": file, "steps": steps}, sys.stdout)
        print()
        return 0
    print(f"document {arguments.document} ({file}) is used in {len(steps)} steps of this epoch:")
    print(" ".join(map(str, steps)))
    return 0
