"""Options that several verbs share: the run over a store, how conversations become tokens; and what they open."""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeAlias, get_args

from millstream.chats import Boundary, Choice, Media, Truncation, Untrained
from millstream.chats.templates import HistoryReasoning, Variant
from millstream.errors import LoaderError, StateError
from millstream.loaders import (
    PHASES_KIND,
    ChatKeywords,
    ConversationDataLoader,
    PretrainDataLoader,
    RowOrigin,
    load_run,
)
from millstream.stats import counted
from millstream.storage import DAMAGED_STATE, STATE_FORMAT, StateFiles
from millstream.store import WEIGHTED, TokenStore
from millstream.tokens import Tokenizer, check_tokenizer, find_tokenizer, load_tokenizer

DEFAULTS = {"chunk_size": None, "packing": False, "batch_size": 8, "seed": 0, "shuffle": "global", "world_size": 1}
Loader: TypeAlias = PretrainDataLoader | ConversationDataLoader
TEMPLATES = """\
A template is the name of a format (chatml, llama3.1, qwen3, gemma3, mistral-v3, …), a jinja file, or a model's folder.
Left out, it is the one that the tokenizer's folder brings."""
HOW_TO_SAVE = "save it with json.dump(loader.state_dict(), file)"


def add_run_arguments(parser: argparse._ActionsContainer) -> None:
    """Declare the settings that decide which row comes when."""
    parser.add_argument("--chunk-size", type=int, help="tokens per row (default: 2048, or what chats were made for)")
    parser.add_argument("--packing", action="store_true", help="chats: several in a row")
    parser.add_argument("--batch-size", type=int, help="rows per rank (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="of the shuffle (default: %(default)s)")
    parser.add_argument("--shuffle", choices=("global", "local", "none"), help="default: %(default)s")
    parser.add_argument("--rank", type=int, default=0, help="data-parallel rank (default: %(default)s)")
    parser.add_argument("--world-size", type=int, help="ranks in all (default: %(default)s)")
    parser.add_argument("--dtype", choices=("uint16", "uint32", "int32"), help="for a bare file of ids")
    parser.set_defaults(**DEFAULTS)


def open_loader(store: TokenStore, arguments: argparse.Namespace, **settings: Any) -> Loader:
    """The loader of the run that the arguments describe."""
    settings |= {
        "batch_size": arguments.batch_size,
        "seed": arguments.seed,
        "shuffle": False if arguments.shuffle == "none" else arguments.shuffle,
        "rank": arguments.rank,
        "world_size": arguments.world_size,
        "framework": "numpy",
    }
    return _opened(store, arguments.chunk_size, "packed" if arguments.packing else None, settings)


def _opened(store: TokenStore, length: int | None, documents: str | None, settings: dict[str, Any]) -> Loader:
    """The loader that fits a store."""
    if store.dtype == WEIGHTED:
        return ConversationDataLoader(store, max_length=length, packing=documents == "packed", **settings)
    if documents == "packed":
        raise LoaderError(f"{store.path}: only conversations are packed", hint="leave out --packing")
    return PretrainDataLoader(store, chunk_size=length, **settings)


def open_state(store: TokenStore, arguments: argparse.Namespace) -> Loader:
    """The loader of the run that saved a state, at the step where it stood."""
    for name, default in DEFAULTS.items():
        if getattr(arguments, name) != default:
            flag = f"--{name.replace('_', '-')}"
            raise LoaderError(f"{flag} and --state exclude each other", hint=f"leave out {flag}: the state knows it")
    path = Path(arguments.state)
    state = read_state(path, {"pretrain", "conversation"})
    phase = load_run(state, StateFiles(path.parent, PHASES_KIND), state.get("seed", 0)).phases[-1]
    if not phase.active:
        raise StateError(f"{path}: the state names no source", hint=DAMAGED_STATE)
    name = phase.active[0]
    shuffle = phase.sources[name].shuffle
    rows = _rows(state)
    settings = {
        "name": name,
        "batch_size": phase.steps.rows // phase.ranks,
        "seed": state.get("seed", 0),
        "shuffle": False if shuffle == "none" else shuffle,
        "rank": arguments.rank,
        "world_size": phase.ranks,
        "drop_last": phase.drop_last,
        "cache_dir": path.parent,
        "framework": "numpy",
    }
    if state["loader"] == "conversation":
        loader = _opened(store, phase.row_length, rows.get("documents"), settings)
    else:
        loader = PretrainDataLoader(store, chunk_size=phase.row_length, **settings, **rows)
    loader.load_state_dict(state)
    return loader


def tokenizer_for(store: TokenStore, path: str, wanted: str | None) -> Tokenizer | None:
    """The given tokenizer, checked against the store; else the one beside the store, or None."""
    description = store.manifest.get("tokenizer")
    if wanted is None:
        return find_tokenizer(path, description)
    tokenizer = load_tokenizer(wanted, special_tokens=(description or {}).get("special_in_text"))
    check_tokenizer(tokenizer, path, description)
    return tokenizer


def wanted_rows(origins: list[RowOrigin], step: int, row: int | None) -> list[RowOrigin]:
    """All rows, or the one with the given number."""
    if row is None:
        return origins
    if not 0 <= row < len(origins):
        hint = f"rows count from 0 to {len(origins) - 1}" if origins else "this rank has no rows in it; pass --rank"
        raise LoaderError(f"step {step} has no row {row}, only {counted(len(origins), 'row')}", hint=hint)
    return [origins[row]]


def read_state(path: Path, loaders: Collection[str]) -> dict[str, Any]:
    """A state that one of some kinds of loaders saved."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StateError(f"{path}: cannot be read: {error.strerror}", hint=HOW_TO_SAVE) from error
    except ValueError as error:
        raise StateError(f"{path}: this is not JSON: {error}", hint=HOW_TO_SAVE) from error
    if not isinstance(state, dict) or state.get("format") != STATE_FORMAT:
        raise StateError(f"{path}: this is not the state of a loader", hint=HOW_TO_SAVE)
    if state.get("loader") not in loaders:
        raise StateError(
            f"{path}: this is the state of a {state.get('loader')!r} loader",
            hint="the command explains runs over one store, and over a feed by its cache_dir; ask loader.explain(step) "
            "in Python",
        )
    return state


def _rows(state: dict[str, Any]) -> dict[str, Any]:
    """What the state says of its rows; the loader checks it."""
    rows = state.get("rows")
    return {key: rows[key] for key in ("documents", "tail") if key in rows} if isinstance(rows, dict) else {}


def add_chat_arguments(parser: argparse._ActionsContainer) -> None:
    """Declare them; what is not given is not passed on."""
    switch: dict[str, Any] = {"action": argparse.BooleanOptionalAction, "default": None}
    pair: dict[str, Any] = {"type": _pair, "action": "append", "metavar": "OURS=THEIRS", "default": None}
    add = parser.add_argument
    add("--chat-template", "--template", metavar="T", help="how a conversation is written, see below")
    add("--max-length", type=int, metavar="N", help="the most tokens of a conversation (default: any number)")
    add("--truncation", choices=get_args(Truncation), help="what becomes of longer ones (default: error)")
    add("--train", choices=get_args(Choice), help="whose words are learned (default: assistant)")
    add("--train-reasoning", help="learn the reasoning too (default: yes)", **switch)
    add("--train-tool-calls", help="learn calls of tools too (default: yes)", **switch)
    add("--mask-empty-think", help="do not learn empty think blocks (default: yes)", **switch)
    add("--untrained", choices=get_args(Untrained), help="conversations with nothing to learn (default: error)")
    add(
        "--boundary", choices=get_args(Boundary), help="encode as a whole, or split what the model writes from the rest"
    )
    add("--columns", help="fields with other names, e.g. messages=dialog; text= hides one; repeatable", **pair)
    add("--roles", help="other names of roles, e.g. bot=assistant; repeatable", **pair | {"metavar": "THEIRS=OURS"})
    add("--inline-think", help="<think>…</think> in a content is reasoning", **switch)
    add("--calls-in-text", help="calls of tools may be spelled in the content", **switch)
    add("--trust-content", help="control strings in the data are control tokens", **switch)
    add("--strict", help="refuse tokens that lie half in what is learned", **switch)
    add("--add-control-tokens", help="add the template's control tokens to the tokenizer", **switch)
    add("--check-template", help="refuse a template that would train wrong (default: yes)", **switch)
    add("--variant", choices=get_args(Variant), help="of the template: for generating, or for training")
    add("--media", choices=get_args(Media), help="rows with pictures, films or sounds (default: refuse)")
    add(
        "--media-tokens",
        help="with keep: what stands for one, e.g. image=<|image_pad|>; repeatable",
        **pair | {"metavar": "KIND=TOKEN"},
    )
    add(
        "--history-reasoning",
        choices=(*get_args(HistoryReasoning), "explode"),
        help="the reasoning of earlier turns; explode: a row for each answer",
    )
    add("--date", type=_date, metavar="YYYY-MM-DD", help="what the template prints as today")
    add("--bos-token", help="what begins a text (default: the template's)")
    add("--eos-token", help="what ends a text (default: the template's)")


def given_chat_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    """Those that were given, as keywords."""
    named = {name: getattr(arguments, name, None) for name in ChatKeywords.__annotations__}
    given = {name: value for name, value in named.items() if value is not None}
    for name in given.keys() & {"columns", "roles", "media_tokens"}:
        given[name] = {one: other or None for one, other in given[name]}
    return given


def _pair(text: str) -> tuple[str, str]:
    """Two names.

    >>> _pair("messages=dialog"), _pair("text=")
    (('messages', 'dialog'), ('text', ''))
    """
    one, equals, other = text.partition("=")
    if not equals or not one:
        raise argparse.ArgumentTypeError(f"{text!r}: write two names, such as messages=dialog")
    return one, other


def _date(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: write a day as 2026-01-31") from None
