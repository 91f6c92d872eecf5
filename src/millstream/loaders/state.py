"""The state of a run as readable JSON under 4 KB, and back. Nothing in a state is trusted.

When a run has had so many phases that they would not fit, they lie in a file beside the checkpoint (`cache_dir`) and
the state holds its digest and the present phase: resuming never needs the file, explaining the past does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from millstream._core import order_version
from millstream.errors import OrderError, StateError
from millstream.order.phase import Phase, Standing
from millstream.order.schedule import Schedule

FORMAT = "millstream state"
VERSION = 1
MOST_PHASE_BYTES = 3000
MOST_COUNT = 2**63
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
        part = path.with_suffix(".part")
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
        raise StateError(
            "the phases of the state are not in order", hint="the state is damaged; use another checkpoint"
        )
    return phases


def _read_earlier(reference: Any, present: list[Any], cache_dir: Path | None) -> list[Any]:
    name, digest = (reference.get(key) for key in ("file", "blake2b")) if isinstance(reference, Mapping) else ("", "")
    if not isinstance(name, str) or name != f"phases-{digest}.json" or not str(digest).isalnum():
        raise StateError("the state names its earlier phases in a way that cannot be read")
    path = None if cache_dir is None else cache_dir / name
    if path is not None and path.exists():
        text = path.read_text("utf-8")
        if hashlib.blake2b(text.encode(), digest_size=16).hexdigest() != digest:
            raise StateError(f"{path}: does not hold the phases that the state names", hint="restore the file")
        earlier: list[Any] = json.loads(text)
        return earlier
    if not present:
        raise StateError(
            f"the phases of this run lie in {name}, which is not here",
            hint="pass the cache_dir= it was saved with",
        )
    return present  # enough to go on; explaining the past will say what is missing


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
        raise StateError(f"this is the state of a {state.get('loader')!r} loader, not of a {loader!r} one")
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
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MOST_COUNT:
        raise StateError(
            f"{what} in the state is {value!r}, not a count",
            hint="the state is damaged; use another checkpoint",
        )
    return value


def _phase_to_json(phase: Phase) -> dict[str, Any]:
    return {
        **{field.name: getattr(phase, field.name) for field in fields(phase) if field.name != "sources"},
        "sources": {name: asdict(standing) for name, standing in phase.sources.items()},
    }


def _phase_from_json(found: Any) -> Phase:
    if not isinstance(found, Mapping) or not isinstance(found.get("sources"), Mapping):
        raise StateError("a phase of the state cannot be read", hint="the state is damaged; use another checkpoint")
    sources = {str(name): _read(Standing, standing) for name, standing in found["sources"].items()}
    phase = _read(Phase, {**found, "sources": sources})
    try:
        for name in phase.active:
            if phase.sources[name].left <= 0:
                raise StateError(f"source {name!r} stands behind the end of its epoch in the state")
        phase.clock()
        phase.plan(seed=0)
    except (ValueError, OrderError) as error:
        raise StateError(f"a phase of the state is impossible: {error}") from None
    return phase


def _read(kind: type[Kind], found: Any) -> Kind:
    hints = get_type_hints(kind)
    if not isinstance(found, Mapping) or set(found) != set(hints):
        raise StateError(f"a {kind.__name__.lower()} of the state cannot be read", hint="the state is damaged")
    for name, hint in hints.items():
        value = found[name]
        if hint is int or (hint == int | None and value is not None):
            _count(value, name)
        if hint is bool and not isinstance(value, bool):
            raise StateError(f"{name} in the state is {value!r}, not true or false")
    return kind(**found)
