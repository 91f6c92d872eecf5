"""The loader of the run that the command line speaks of: its settings, or a saved state that knows them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeAlias

from millstream.errors import LoaderError, StateError
from millstream.loaders import PHASES_KIND, ConversationDataLoader, PretrainDataLoader, load_run
from millstream.storage import DAMAGED_STATE, STATE_FORMAT, StateFiles
from millstream.store import WEIGHTED, TokenStore

DEFAULTS = {"chunk_size": None, "packing": False, "batch_size": 8, "seed": 0, "shuffle": "global", "world_size": 1}
Loader: TypeAlias = PretrainDataLoader | ConversationDataLoader
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
