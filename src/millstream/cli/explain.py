"""`millstream explain`: which documents a step trains on, and which steps train on a document."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from millstream.cli import show
from millstream.cli.inspect import tokenizer_for
from millstream.cli.loader import add_run_arguments, open_loader, open_state
from millstream.errors import LoaderError, StoreError
from millstream.loaders import PretrainDataLoader, RowOrigin, Span
from millstream.store import TokenStore
from millstream.store.format import Tokens
from millstream.tokens import Tokenizer

SUMMARY = "name the documents behind a step, or the steps of a document"
DESCRIPTION = """\
Say where every row of a training step comes from, or in which steps a document is used. Nothing is replayed:
the answer is computed, for any step, in a moment. Give the settings of the run that you ask about, or a state that it
saved."""
EPILOG = """\
examples:
  millstream explain corpus --step 41870 --chunk-size 2048 --batch-size 64 --seed 0
  millstream explain corpus --step 41870 --row 3          one row, with its text
  millstream explain corpus --state state.json            the step at which a state was saved
  millstream explain corpus --state state.json --step 7   another step of that run
  millstream explain corpus --document 17                 the steps that use document 17
  millstream explain corpus --step 100 --json | jq '.rows[0].spans'
"""

SHOWN_TOKENS = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument("store", help="a store: a folder or a .bin file")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--step", type=int, help="the step to explain")
    what.add_argument("--document", type=int, help="the document to look for")
    parser.add_argument(
        "--state", help="a JSON file with what state_dict() gave: the run, and by default its next step"
    )
    add_run_arguments(parser)
    parser.add_argument("--row", type=int, help="only this row, with its text")
    parser.add_argument("-t", "--tokenizer", help="to show the text, if none lies beside the store")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Explain a step, or find the steps of a document."""
    if arguments.step is arguments.document is arguments.state is None:
        raise LoaderError("there is nothing to explain", hint="pass --step, --document or --state")
    opened = open_loader if arguments.state is None else open_state
    with TokenStore(arguments.store, dtype=arguments.dtype) as store, opened(store, arguments) as loader:
        if arguments.document is not None:
            return _steps(loader, store, arguments)
        step = loader.step if arguments.step is None else arguments.step
        origins = _wanted(loader.explain(step), step, arguments.row)
        tokenizer = tokenizer_for(store, arguments.store, arguments.tokenizer)
        most = SHOWN_TOKENS if arguments.row is None else None
        rows = [_described(origin, store, tokenizer, most) for origin in origins]
    if arguments.json:
        show.print_json({"step": step, "rows": rows})
        return 0
    print(f"step {step}: {show.counted(len(rows), 'row')} of {loader.shape.length} tokens")
    for row in rows:
        for span in row["spans"]:
            tokens = f"{span['start']:,}-{span['stop']:,}"
            print(f"row {row['row']:<4} {span['file']}  document {span['document']}  tokens {tokens}  {_preview(span)}")
    return 0


def _wanted(origins: list[RowOrigin], step: int, row: int | None) -> list[RowOrigin]:
    """All rows, or the one that was asked for."""
    if row is None:
        return origins
    if not 0 <= row < len(origins):
        hint = f"rows count from 0 to {len(origins) - 1}" if origins else "this rank has no rows in it; pass --rank"
        raise LoaderError(f"step {step} has no row {row}, only {show.counted(len(origins), 'row')}", hint=hint)
    return [origins[row]]


def _described(origin: RowOrigin, store: TokenStore, tokenizer: Tokenizer | None, most: int | None) -> dict[str, Any]:
    spans = []
    for span in origin.spans:
        text = None if tokenizer is None else tokenizer.decode(tokens_of(store, span)[:most].tolist())
        spans.append({**asdict(span), "text": text})
    return {"row": origin.row, "spans": spans}


def tokens_of(store: TokenStore, span: Span) -> Tokens:
    """The tokens of a span."""
    first, _ = store.document_span(span.document)
    return store.read(first + span.start, first + span.stop)


def _preview(span: dict[str, Any]) -> str:
    return "" if span["text"] is None else show.one_line(span["text"], width=48)


def _steps(loader: PretrainDataLoader, store: TokenStore, arguments: argparse.Namespace) -> int:
    if not 0 <= arguments.document < store.documents:
        raise StoreError(
            f"{store.path}: there is no document {arguments.document} among {store.documents}",
            hint=f"documents count from 0 to {store.documents - 1}",
        )
    steps = [int(step) for step in loader.steps_of(arguments.document)]
    file = store.file_of(arguments.document)
    if arguments.json:
        show.print_json({"document": arguments.document, "file": file, "steps": steps})
        return 0
    used = show.counted(len(steps), "step")
    print(f"document {arguments.document} ({file}) is used in {used} of this epoch:")
    print(" ".join(map(str, steps)))
    return 0
