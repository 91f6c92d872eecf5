"""`millstream explain`: which documents a step trains on, which steps train on a document, and what it was made of."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from millstream.cli.games import explain_self_play
from millstream.cli.options import (
    Loader,
    add_run_arguments,
    open_loader,
    open_state,
    read_state,
    tokenizer_for,
    wanted_rows,
)
from millstream.cli.rollouts import explain_rollouts, hold_rollouts, refuse
from millstream.cli.stderr import say
from millstream.cli.terminal import one_line, print_json
from millstream.errors import LoaderError, StateError, StoreError
from millstream.loaders import RowOrigin, Span, are_games, journal_of, origins_of
from millstream.loaders.rollouts import FeedOrder, FeedPhase, FeedPlace, RecordedRun, StepSettings
from millstream.loaders.runs import FeedRun, RecordedSelfPlay
from millstream.order import CostModel
from millstream.preparation import RawRecord, raw_record
from millstream.stats import counted, visible
from millstream.storage import DAMAGED_STATE, read_count
from millstream.store import Origin, Tokens, TokenStore
from millstream.tokens import Tokenizer

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
  millstream explain corpus --document 17                 where document 17 is from, and the steps that use it
  millstream explain corpus --document 17 --raw           and the record it was made from, read again
  millstream explain corpus --step 100 --json | jq '.rows[0].spans'
  millstream explain rollouts.jsonl --step 41 --batch-size 64         the rollouts of a step
  millstream explain rollouts.jsonl --rollout-id 81-3                 the steps of a rollout
  millstream explain run/ --step 41 --state state.json                of a run over a feed, by its cache_dir
  millstream explain run/ --step 41                                   of a run over self-play games, by its cache_dir
"""

SHOWN_TOKENS = 40
SHOWN_OF_DOCUMENT = 200
SHOWN_CHARACTERS = 2000
NAME = "rollouts"
"""The default name of a loader of rollouts."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of this verb."""
    parser.add_argument(
        "store",
        help="a store (a folder or a .bin file), files of rollouts, or the cache_dir of a run over a feed or games",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--step", type=int, help="the step to explain")
    what.add_argument("--document", type=int, help="the document to look for; of rollouts, the number of one")
    what.add_argument("--rollout-id", metavar="ID", help="of rollouts: the one to look for")
    parser.add_argument(
        "--state", help="a JSON file with what state_dict() gave: the run, and by default its next step"
    )
    add_run_arguments(parser)
    parser.add_argument("--row", type=int, help="only this row, with its text")
    parser.add_argument("--raw", action="store_true", help="with --document: read its raw record again and show it")
    parser.add_argument("--root", help="the folder of the source files, if they are no longer where they were")
    parser.add_argument("-t", "--tokenizer", help="to show the text, if none lies beside the store")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Explain a step, or find the steps of a document."""
    if arguments.step is arguments.document is arguments.state is arguments.rollout_id is None:
        raise LoaderError("there is nothing to explain", hint="pass --step, --document or --state")
    if RecordedSelfPlay.lies_in(Path(arguments.store)):
        explain_self_play(Path(arguments.store), arguments)
        return 0
    if arguments.dtype is None and are_games(arguments.store):
        raise LoaderError(
            f"{arguments.store}: which games a run took depends on when they came",
            hint="give the folder that the run had as cache_dir: it has written everything down",
        )
    journal = journal_of(arguments.store)
    if journal is not None:
        explain_run(journal, arguments)
        return 0
    if arguments.dtype is None and hold_rollouts(arguments.store, arguments):
        explain_rollouts(arguments)
        return 0
    below = [each for each in _folders_in(arguments.store) if RecordedSelfPlay.lies_in(each)]
    if below and not Path(arguments.store, "manifest.json").exists():
        raise LoaderError(f"{arguments.store}: a run lies in a folder below", hint=f"did you mean {below[0]}?")
    if arguments.raw and arguments.document is None:
        raise LoaderError("--raw shows the record of one document", hint="pass --document too")
    opened = open_loader if arguments.state is None else open_state
    with TokenStore(arguments.store, dtype=arguments.dtype) as store, opened(store, arguments) as loader:
        if arguments.document is not None:
            return _document(loader, store, arguments)
        step = loader.step if arguments.step is None else arguments.step
        origins = wanted_rows(loader.explain(step), step, arguments.row)
        tokenizer = tokenizer_for(store, arguments.store, arguments.tokenizer)
        most = SHOWN_TOKENS if arguments.row is None else None
        rows = [_described(origin, store, tokenizer, most) for origin in origins]
    if arguments.json:
        print_json({"step": step, "rows": rows})
        return 0
    print(f"step {step}: {counted(len(rows), 'row')} of {loader.shape.length} tokens")
    for row in rows:
        for span in row["spans"]:
            tokens = f"{span['start']:,}-{span['stop']:,}"
            file = f"{span['file']}{_line(span['origin'])}"
            print(f"row {row['row']:<4} {file}  document {span['document']}  tokens {tokens}  {_preview(span)}")
    return 0


def _described(origin: RowOrigin, store: TokenStore, tokenizer: Tokenizer | None, most: int | None) -> dict[str, Any]:
    spans = []
    for span in origin.spans:
        text = None if tokenizer is None else tokenizer.decode(tokens_of(store, span)[:most].tolist())
        spans.append({**asdict(span), "origin": _plain(store.origin_of(span.document)), "text": text})
    return {"row": origin.row, "spans": spans}


def tokens_of(store: TokenStore, span: Span) -> Tokens:
    """The tokens of a span."""
    first, _ = store.document_span(span.document)
    return store.read(first + span.start, first + span.stop)


def _preview(span: dict[str, Any]) -> str:
    return "" if span["text"] is None else one_line(span["text"], width=48)


def _document(loader: Loader, store: TokenStore, arguments: argparse.Namespace) -> int:
    document = arguments.document
    if not 0 <= document < store.documents:
        raise StoreError(
            f"{store.path}: there is no document {document} among {store.documents}",
            hint=f"documents count from 0 to {store.documents - 1}",
        )
    raw = raw_record(store, document, arguments.root) if arguments.raw else None
    facts = {
        "document": document,
        "file": store.file_of(document),
        "origin": _plain(store.origin_of(document)),
        "text": _text(store, document, tokenizer_for(store, arguments.store, arguments.tokenizer)),
        "steps": [int(step) for step in loader.steps_of(document)],
    }
    if arguments.json:
        print_json(facts | ({} if raw is None else {"raw": {"path": str(raw.path), "text": raw.text}}))
        return 0
    used = counted(len(facts["steps"]), "step")
    print(f"document {document} ({_where(facts['file'], facts['origin'])}) is used in {used} of this epoch:")
    print(" ".join(map(str, facts["steps"])))
    if facts["text"] is not None:
        print(f"\nit begins in the store:\n{_shortened(facts['text'])}")
    if raw is not None:
        print(f"\nraw record in {raw.path} ({_checked(raw)}):\n{_shortened(raw.text)}")
    return 0


def _text(store: TokenStore, document: int, tokenizer: Tokenizer | None) -> str | None:
    start, stop = store.document_span(document)
    ids = store.read(start, min(stop, start + SHOWN_OF_DOCUMENT)).tolist()
    return None if tokenizer is None else tokenizer.decode(ids)


def _plain(origin: Origin | None) -> dict[str, Any] | None:
    return None if origin is None else asdict(origin)


def _where(file: str, origin: dict[str, Any] | None) -> str:
    """A place as people count it: `a.jsonl:4, bytes 120-340`."""
    if origin is None or origin["start"] is None:
        return f"{file}{_line(origin)}"
    return f"{file}{_line(origin)}, bytes {origin['start']:,}-{origin['stop']:,}"


def _line(origin: dict[str, Any] | None) -> str:
    return "" if origin is None else f":{origin['row'] + 1}"


def _checked(raw: RawRecord) -> str:
    return "the file is unchanged" if raw.hashed else "the file has the size it had; its bytes were not compared"


def _shortened(text: str) -> str:
    """The beginning of a text, without what a terminal would obey."""
    left = len(text) - SHOWN_CHARACTERS
    shown = visible(text[:SHOWN_CHARACTERS], keep="\n")
    return shown if left <= 0 else f"{shown}… and {counted(left, 'more character')}"


def _folders_in(path: str) -> list[Path]:
    return sorted(each for each in Path(path).iterdir() if each.is_dir()) if Path(path).is_dir() else []


def explain_run(journal: Path, arguments: argparse.Namespace) -> None:
    """Explain a step, or find the steps of a rollout."""
    refuse(arguments, ("document", "root", "chunk_size", "dtype", "tokenizer"), "stores or files")
    if arguments.state is None:
        run, step = _run_of_flags(journal, arguments), arguments.step
        say("note", f"steps are as --batch-size {arguments.batch_size} cuts them; --state knows how")
    else:
        state = read_state(Path(arguments.state), {FeedRun.kind})
        run = _run_of_state(journal, state, arguments)
        step = state["step"] if arguments.step is None else arguments.step
    if arguments.rollout_id is not None:
        _steps(run, arguments.rollout_id, as_json=arguments.json)
    else:
        _step(run, step, arguments.row, as_json=arguments.json)


def _run_of_flags(journal: Path, arguments: argparse.Namespace) -> RecordedRun:
    ranks = arguments.world_size
    order = FeedOrder(NAME, arguments.seed, arguments.shuffle, arguments.rank, ranks, passes=1)
    return RecordedRun(journal, [FeedPhase(0, FeedPlace(), arguments.batch_size * ranks, ranks)], order, StepSettings())


def _run_of_state(journal: Path, state: Mapping[str, Any], arguments: argparse.Namespace) -> RecordedRun:
    """The run that saved a state; the flags decide what the state does not hold."""
    rows, phases = state.get("rows"), [FeedPhase.from_json(each) for each in state.get("phases") or ()]
    cost = rows.get("cost", []) if isinstance(rows, Mapping) else None
    if not isinstance(rows, Mapping) or not phases or not isinstance(cost, list) or len(cost) not in (0, 2):
        raise StateError(f"{arguments.state}: the state does not say how steps were cut", hint=DAMAGED_STATE)
    passes, seed = read_count(rows.get("passes"), "passes"), read_count(state.get("seed"), "seed")
    steps = StepSettings(
        keep_groups=rows.get("keep_groups", False),
        balance=rows.get("balance"),
        cost=CostModel(*(read_count(each, "cost") for each in cost)),
    )
    order = FeedOrder(NAME, seed, arguments.shuffle, arguments.rank, phases[-1].ranks, passes)
    return RecordedRun(journal, phases, order, steps)


def _steps(run: RecordedRun, rollout: str, *, as_json: bool) -> None:
    steps = run.steps_of(rollout)
    if not steps and rollout.lstrip("-").isdecimal():
        steps = run.steps_of(int(rollout))
    if as_json:
        print_json({"rollout_id": rollout, "steps": steps})
        return
    print(f"rollout {rollout!r} was in {counted(len(steps), 'step')} of this run:")
    print(" ".join(map(str, steps)))


def _step(run: RecordedRun, step: int, row: int | None, *, as_json: bool) -> None:
    place, batch = run.batch_of(step)
    origins = wanted_rows(origins_of(run.rows(step)), step, row)
    rows = [
        {
            "row": origin.row,
            "rollout_id": batch.rollout_ids[origin.sample],
            "group_id": batch.group_ids[int(batch.groups[origin.sample])],
            "tokens": int(batch.tokens[origin.sample]),
        }
        for origin in origins
    ]
    facts = {"rollout_batch": place.batch, "pass": place.number, "policy_version": batch.policy_version}
    if as_json:
        print_json({"step": step, **facts, "dropped": batch.dropped, "rows": rows})
        return
    facts_of_batch = f"rollout batch {place.batch}, pass {place.number}, policy version {batch.policy_version}"
    print(f"step {step}: {counted(len(rows), 'rollout')} of {facts_of_batch}")
    for each in rows:
        named = f"rollout {each['rollout_id']!r} of group {each['group_id']!r}"
        print(f"row {each['row']:<4} {named}  {each['tokens']:,} tokens")
    if batch.dropped:
        dropped = ", ".join(f"{number:,} {reason}" for reason, number in batch.dropped.items())
        print(f"dropped before this rollout batch: {dropped}")
