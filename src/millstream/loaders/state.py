"""The state of a run as readable JSON under 4 KB, and back. Nothing in a state is trusted.

When a run has had so many phases that they would not fit, they lie in a file beside the checkpoint (`cache_dir`) and
the state holds its digest and the present phase: resuming never needs the file, explaining the past does.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from millstream._core import order_version
from millstream.errors import FingerprintError, OrderError, StateError
from millstream.order import Phase, Schedule, StepPlace
from millstream.order.mix import MOST_PLACES
from millstream.order.phase import MOST_POSITIONS, Standing
from millstream.order.shuffle import Shuffle
from millstream.store import TokenStore

FORMAT = "millstream state"
VERSION = 1
MOST_PHASE_BYTES = 3000
DAMAGED = "the state is damaged; use another checkpoint"
Kind = TypeVar("Kind", Phase, Standing)


def dump_phases(schedule: Schedule, cache_dir: Path | None) -> dict[str, Any]:
    """Write the phases into the state, or most of them beside it."""
    phases = [_phase_to_json(phase) for phase in schedule.phases]
    text = json.dumps(phases, sort_keys=True)
    if len(text) <= MOST_PHASE_BYTES:
        return {"phases": phases}
    if cache_dir is None:
        raise StateError(
            f"this run has had {len(phases)} phases, too many for a state of 4 KB",
            hint="pass cache_dir= (a folder beside the checkpoints): the phases are kept there",
        )
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    path = cache_dir / f"phases-{digest}.json"
    if not path.exists():
        cache_dir.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.urandom(8).hex()}.part")  # of this rank: others may be writing the same file
        part.write_text(text, "utf-8")
        part.rename(path)
    present = phases[-1:] if len(json.dumps(phases[-1])) <= MOST_PHASE_BYTES else []
    return {"phases": present, "earlier_phases": {"file": path.name, "blake2b": digest}}


def load_phases(state: Mapping[str, Any], cache_dir: Path | None) -> tuple[Phase, ...]:
    """Read the phases back, from the state and from beside it."""
    listed = state.get("phases")
    if not isinstance(listed, list):
        raise StateError("the state has no phases", hint="it may be cut off, or the state of something else")
    if "earlier_phases" in state:
        listed = _read_earlier(state["earlier_phases"], listed, cache_dir)
    phases = tuple(_phase_from_json(phase) for phase in listed)
    steps = [phase.step for phase in phases]
    if not phases or steps != sorted(set(steps)):
        raise StateError("the phases of the state are not in order", hint=DAMAGED)
    return phases


def _read_earlier(reference: Any, present: list[Any], cache_dir: Path | None) -> list[Any]:
    name, digest = (reference.get(key) for key in ("file", "blake2b")) if isinstance(reference, Mapping) else ("", "")
    if not isinstance(name, str) or name != f"phases-{digest}.json" or not str(digest).isalnum():
        raise StateError("the state names its earlier phases in a way that cannot be read", hint=DAMAGED)
    path = None if cache_dir is None else cache_dir / name
    if path is not None and path.exists():
        return _read_phases(path, digest)
    if not present:
        raise StateError(
            f"the phases of this run lie in {name}, which is not here",
            hint="pass the cache_dir= it was saved with",
        )
    return present  # enough to go on; explaining the past will say what is missing


def _read_phases(path: Path, digest: object) -> list[Any]:
    try:
        found = path.read_bytes()
    except OSError as error:
        raise StateError(f"{path}: cannot be read ({error.strerror})", hint="restore the file") from None
    if hashlib.blake2b(found, digest_size=16).hexdigest() != digest:
        raise StateError(f"{path}: does not hold the phases that the state names", hint="restore the file")
    earlier: list[Any] = json.loads(found)
    return earlier


def describe_data(store: TokenStore) -> dict[str, Any]:
    """Say which data a run is over."""
    return {"fingerprint": store.fingerprint, "tokens": len(store), "documents": store.documents}


def check_data(state: Mapping[str, Any], stores: Mapping[str, TokenStore]) -> dict[str, Any]:
    """Compare the data of a state with the stores that are here; gives what the state says of all its sources."""
    data = state.get("data")
    if not isinstance(data, Mapping) or not all(isinstance(saved, Mapping) for saved in data.values()):
        raise StateError("the state does not say which data it was saved for", hint=DAMAGED)
    for name, store in stores.items():
        found = describe_data(store)
        saved = data.get(name, found)
        if saved == found:
            continue
        differences = [
            f"{key}: {saved.get(key)} then, {found[key]} now" for key in found if saved.get(key) != found[key]
        ]
        raise FingerprintError(
            f"{store.path}: the data of {name!r} is not the data that the state was saved for "
            f"({'; '.join(differences) or 'other facts'})",
            hint="a store that was appended to still has its old version: "
            f"TokenStore(path, version={saved.get('fingerprint')!r})",
        )
    return dict(data)


def check_samples(phases: Sequence[Phase], name: str, samples: Callable[[int], int], *, known: bool) -> None:
    """Check that a source has as many samples as the phases say; `samples` counts those of a row length."""
    for phase in phases:
        if name not in phase.sources:
            continue
        if not known:
            raise StateError(f"the state does not say which data {name!r} was", hint=DAMAGED)
        standing = phase.sources[name]
        begun = standing.quota == 0 == standing.offset or standing.begun == samples(phase.row_length * standing.split)
        later = standing.quota == 0 or standing.samples == samples(phase.row_length)
        if not begun or not later:
            raise StateError(f"the state counts other samples of {name!r} than its data has", hint=DAMAGED)


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
        if _count(state.get(key), key) != found:
            raise StateError(
                f"the state says {key} {state.get(key)}, but its step {place.step} lies at {key} {found}", hint=DAMAGED
            )


def check_header(state: Mapping[str, Any], loader: str, seed: int, rows: Mapping[str, Any]) -> int:
    """Check that a state fits a loader; gives its step."""
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
                hint=f"pass {key}={found!r} to go on with that run",
            )
    return _count(state.get("step"), "step")


def _count(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MOST_POSITIONS:
        raise StateError(
            f"{what} in the state is {value!r}, not a count",
            hint=DAMAGED,
        )
    return value


def _phase_to_json(phase: Phase) -> dict[str, Any]:
    return {
        **{field.name: getattr(phase, field.name) for field in fields(phase) if field.name != "sources"},
        "sources": {name: asdict(standing) for name, standing in phase.sources.items()},
    }


def _phase_from_json(found: Any) -> Phase:
    if not isinstance(found, Mapping) or not isinstance(found.get("sources"), Mapping):
        raise StateError("a phase of the state cannot be read", hint=DAMAGED)
    sources = {str(name): _read(Standing, standing) for name, standing in found["sources"].items()}
    phase = _read(Phase, {**found, "sources": sources})
    _check_possible(phase)
    try:
        phase.clock()
        phase.plan(seed=0)
    except (ValueError, OrderError) as error:
        raise StateError(f"a phase of the state is impossible: {error}", hint=DAMAGED) from None
    return phase


def _check_possible(phase: Phase) -> None:
    """Check what no run could have led to, and what would overflow the native arithmetic."""
    counts = (phase.size, phase.left, phase.global_rows, phase.ranks, phase.row_length)
    if min(counts) < 1 or phase.global_rows % phase.ranks != 0:
        raise StateError("a phase of the state has no rows, ranks or samples", hint=DAMAGED)
    places = sum(standing.quota for standing in phase.sources.values())
    longest = max((standing.begun * standing.split for standing in phase.sources.values()), default=0)
    if places > MOST_PLACES or longest * phase.row_length >= MOST_POSITIONS:
        raise StateError("a phase of the state is larger than any run", hint=DAMAGED)
    for name, standing in phase.sources.items():
        if standing.shuffle not in get_args(Shuffle):
            raise StateError(f"the state shuffles {name!r} by {standing.shuffle!r}", hint=DAMAGED)
        if standing.left <= 0 or standing.samples < 1:
            raise StateError(f"source {name!r} stands behind the end of its epoch in the state", hint=DAMAGED)


def _read(kind: type[Kind], found: Any) -> Kind:
    hints = get_type_hints(kind)
    if not isinstance(found, Mapping) or set(found) != set(hints):
        raise StateError(f"a {kind.__name__.lower()} of the state cannot be read", hint=DAMAGED)
    for name, hint in hints.items():
        value = found[name]
        if hint is int or (hint == int | None and value is not None):
            _count(value, name)
        if hint is bool and not isinstance(value, bool):
            raise StateError(f"{name} in the state is {value!r}, not true or false", hint=DAMAGED)
    return kind(**found)
