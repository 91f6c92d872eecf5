"""The state of a run as readable JSON under 4 KB: does it fit the loader that loads it? Nothing in it is trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millstream._core import order_version
from millstream.errors import FingerprintError, StateError
from millstream.loaders.member import Member
from millstream.loaders.phases import DAMAGED, read_count
from millstream.order import Phase, StepPlace
from millstream.store import TokenStore

FORMAT = "millstream state"
VERSION = 1


def check_data(data: Mapping[str, Any], phases: Sequence[Phase], members: Mapping[str, Member]) -> None:
    """Compare the data that a state was saved for with the stores that are here; a new source has none."""
    for name, member in members.items():
        if name not in data and any(name in phase.sources for phase in phases):
            raise StateError(f"the state does not say which data {name!r} was", hint=DAMAGED)
        store, found = member.store, member.facts
        saved = data.get(name, found)
        if saved == found:
            continue
        changed = [key for key in found if saved.get(key) != found[key]]
        differences = [f"{key}: {saved.get(key)} then, {found[key]} now" for key in changed]
        raise FingerprintError(
            f"{store.path}: the data of {name!r} is not the data that the state was saved for "
            f"({'; '.join(differences) or 'other facts'})",
            hint=_way_back(store, saved.get("fingerprint")),
        )


def _way_back(store: TokenStore, fingerprint: Any) -> str:
    if store.kind == "directory" and any(version.fingerprint == fingerprint for version in store.log()):
        return f"the store was appended to and still has its old version: TokenStore(path, version={fingerprint!r})"
    return "open the store that the state was saved for, or start a new run on this one"


def check_samples(phases: Sequence[Phase], name: str, samples: Callable[[int, int], int | None]) -> None:
    """Check that a source has as many samples as the phases say; `samples` counts those of (row length, split)."""
    for phase in phases:
        if name not in phase.sources:
            continue
        standing = phase.sources[name]
        begun = standing.quota == 0 == standing.offset or standing.begun == samples(phase.row_length, standing.split)
        later = standing.quota == 0 or standing.samples == samples(phase.row_length, 1)
        if not begun or not later:
            raise StateError(f"the state counts other samples of {name!r} than its data has", hint=DAMAGED)


def check_unit(phases: Sequence[Phase], name: str, unit: int) -> None:
    """Check that the rows of a source stay together as they do here."""
    if any(name in phase.sources and phase.sources[name].unit != unit for phase in phases):
        raise StateError(f"the state keeps other rows of {name!r} together than its data does", hint=DAMAGED)


def check_source(phases: Sequence[Phase], name: str) -> None:
    """Check that a run over one source is a run over this one."""
    if name not in phases[-1].active:
        before = ", ".join(map(repr, phases[-1].active))
        raise StateError(
            f"the state was saved with name={before}, this loader has name={name!r}",
            hint=f"pass name={before} to go on with that run",
        )


def check_place(state: Mapping[str, Any], place: StepPlace) -> None:
    """Check that a state stands where its phases say that its step lies."""
    for key, found in (("epoch", place.epoch), ("offset", place.offset)):
        if read_count(state.get(key), key) != found:
            raise StateError(
                f"the state says {key} {state.get(key)}, but its step {place.step} lies at {key} {found}", hint=DAMAGED
            )


def header(loader: str, step: int, seed: int, rows: Mapping[str, Any]) -> dict[str, Any]:
    """What every state begins with; `check_header` reads it."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "order_version": order_version,
        "loader": loader,
        "step": step,
        "seed": seed,
        "rows": dict(rows),
    }


def _as_it_was(fact: str, saved: Any) -> str:
    return f"pass {fact}={saved!r} to go on with that run"


def check_header(
    state: Mapping[str, Any],
    loader: str,
    seed: int,
    rows: Mapping[str, Any],
    hint: Callable[[str, Any], str] = _as_it_was,
) -> int:
    """Check that a state fits a loader; gives its step. `hint` says how to have again what a fact of its rows was."""
    if not isinstance(state, Mapping) or state.get("format") != FORMAT:
        raise StateError("this is not the state of a Millstream loader", hint="give what state_dict() returned")
    if state.get("version") != VERSION or state.get("order_version") != order_version:
        raise StateError(
            f"the state has version {state.get('version')} and order version {state.get('order_version')}; "
            f"this Millstream reads version {VERSION} and order version {order_version}",
            hint="use the Millstream that wrote it",
        )
    if state.get("loader") != loader:
        raise StateError(
            f"this is the state of a {state.get('loader')!r} loader, not of a {loader!r} one",
            hint="load it into a loader of the kind that saved it",
        )
    if state.get("seed") != seed:
        raise StateError(
            f"the state was saved with seed={state.get('seed')}, this loader has seed={seed}",
            hint=f"pass seed={state.get('seed')} to go on with that run",
        )
    saved = state.get("rows")
    for key, value in rows.items():
        found = saved.get(key) if isinstance(saved, Mapping) else None
        if found != value:
            raise StateError(
                f"the state was saved with {key}={found!r}, this loader has {key}={value!r}",
                hint=hint(key, found),
            )
    return read_count(state.get("step"), "step")
