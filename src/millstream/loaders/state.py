"""States of runs over stores: their phases and data as JSON and back, and whether they fit the data that is here.

Nothing in a state is trusted. Phases that outgrow a state lie in a sidecar beside the checkpoint (`cache_dir`). The
state names the sidecar and holds, if that fits, the present phase: then resuming does not need the file, and explaining
the past does. `commit` removes the files of older states. Without a folder the state holds the present phase, and says
that the past is not kept.

A change of nothing but the rows of a step, as `get_batch(k)` makes it, is written as [its first step, rows of a step]:
the rest follows from the phase before it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import Any, TypeVar, get_args, get_type_hints

from millstream.errors import FingerprintError, OrderError, StateError
from millstream.loaders.rows import RowSource
from millstream.order import LONGEST_RUN, MOST_PLACES, Phase, Schedule, Shuffle, Standing, StepPlace, next_phase
from millstream.storage import DAMAGED_STATE, MOST_BYTES, StateFiles, read_count, state_fits
from millstream.store import TokenStore
from millstream.streams import STREAM_ORDER

logger = logging.getLogger("millstream.loaders")
OF_STREAM_ORDER_1 = ("stream", "mixed stream")
"""Loaders of which there are states, and no more runs."""
LEAST_BYTES = 8
"""Of a change of the rows of a step in a state: `[9, 8], `."""
NOT_KEPT = {"past": "not kept: pass cache_dir= to keep it"}
"""What a state says that has no room for its earlier phases, and no folder for them."""
PHASES_KIND = "phases"
"""Of the files beside a state."""
APART = ("sources", "resized")
"""Fields of a phase that are written otherwise than by their value."""
Kind = TypeVar("Kind", Phase, Standing)


def check_data(data: Mapping[str, Any], phases: Sequence[Phase], members: Mapping[str, RowSource]) -> None:
    """Compare the data that a state was saved for with the stores that are here; a new source has none."""
    for name, member in members.items():
        if name not in data and any(name in phase.sources for phase in phases):
            raise StateError(f"the state does not say which data {name!r} was", hint=DAMAGED_STATE)
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
    if store.kind == "stream":
        return "read the files of then with the same tokenizer, recipe, reading and eos, or start a new run"
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
            raise StateError(f"the state counts other samples of {name!r} than its data has", hint=DAMAGED_STATE)


def check_unit(phases: Sequence[Phase], name: str, unit: int) -> None:
    """Check that the rows of a source stay together as they do here."""
    if any(name in phase.sources and phase.sources[name].unit != unit for phase in phases):
        raise StateError(f"the state keeps other rows of {name!r} together than its data does", hint=DAMAGED_STATE)


def check_source(phases: Sequence[Phase], name: str) -> None:
    """Check that a run over one source is a run over this one."""
    if name not in phases[-1].active:
        before = ", ".join(map(repr, phases[-1].active))
        raise StateError(
            f"the state was saved with name={before}, this loader has name={name!r}",
            hint=f"pass name={before} to resume that run",
        )


def check_stream_order(state: Any) -> None:
    """Refuse the state of a run over streams whose order was version 1."""
    if isinstance(state, Mapping) and state.get("loader") in OF_STREAM_ORDER_1:
        raise StateError(
            f"this is the state of a {state['loader']!r} loader, whose streams came in their order version 1",
            hint=f"the order of streams is version {STREAM_ORDER} now: start a new run, or end this one with the "
            "Millstream that wrote the state",
        )


def check_place(state: Mapping[str, Any], place: StepPlace) -> None:
    """Check that a state stands where its phases say that its step lies."""
    for key, found in (("epoch", place.epoch), ("offset", place.offset)):
        if read_count(state.get(key), key) != found:
            raise StateError(
                f"the state says {key} {state.get(key)}, but its step {place.step} lies at {key} {found}",
                hint=DAMAGED_STATE,
            )


def merge_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compare the states of all ranks at a step, and give the one that they share.

    The state of any rank is enough to resume on any number of them; this insists that no rank was elsewhere.

    >>> merge_states([{"step": 2}, {"step": 2}])
    {'step': 2}
    """
    if not states:
        raise StateError("there are no states to merge", hint="pass the state_dict() of every rank")
    first = dict(states[0])
    for state in states:
        differing = [key for key in {**first, **state} if first.get(key) != state.get(key)]
        if differing:
            raise StateError(
                f"these states differ in {', '.join(differing)}", hint="merge the states of all ranks at the same step"
            )
    return first


def dump_run(
    schedule: Schedule,
    data: Mapping[str, Any],
    files: StateFiles,
    missing: Mapping[str, Any],
    *,
    header: Mapping[str, Any],
) -> dict[str, Any]:
    """Write phases and data after the header of a state, or most of them beside it.

    `missing` names what could not be read back.
    """
    begun = dict(header)
    known = {"data": dict(data)}
    last = schedule.phases[-1]
    present = {**known, "phases": [_phase_to_json(last.begun_at(last.steps.step, schedule.seed))]}
    changes = sum(phase.steps.number for phase in schedule.phases)
    if files.folder is None and changes * LEAST_BYTES > MOST_BYTES:
        return _without_past({**begun, **present}, changes, files)
    whole = {**known, "phases": _phases_to_json(schedule), **missing}
    if state_fits(state := {**begun, **whole}):
        return state
    if files.folder is None:
        return _without_past({**begun, **present}, len(whole["phases"]), files)
    whose = {key: begun[key] for key in ("loader", "seed", "rows") if key in begun}  # other runs have other files
    text = json.dumps({**whose, **whole}, sort_keys=True).encode()
    reference = {"earlier_phases": files.save(text, begun["step"])}
    nothing: dict[str, Any] = {"data": {}, "phases": []}
    for held in (present, nothing):
        if state_fits(state := {**begun, **held, **reference}):
            return state
    raise StateError(
        f"how the rows of {len(data)} sources are made is too much for a state of 4 KB",
        hint="give the sources shorter names, or mix fewer of them",
    )


def _without_past(state: dict[str, Any], phases: int, files: StateFiles) -> dict[str, Any]:
    """A state of the present phase alone."""
    state |= NOT_KEPT
    if not state_fits(state):
        raise StateError(
            f"this run has had {phases} phases and {len(state['data'])} sources, too many for a state of 4 KB",
            hint="pass cache_dir= (a folder beside the checkpoints): the phases are kept there",
        )
    files.warn_of_no_past(phases)
    return state


@dataclass(frozen=True)
class LoadedRun:
    """What a state says of its run."""

    phases: tuple[Phase, ...]
    data: dict[str, Any]
    missing: dict[str, Any]
    """A reference to earlier phases that are not here, or that they were not kept."""
    files: tuple[str, ...]
    """The files beside the state that were read."""


def load_run(state: Mapping[str, Any], files: StateFiles, seed: int) -> LoadedRun:
    """Read phases and data back, from the state and from beside it."""
    phases, data = _read_part(state, seed)
    part: Mapping[str, Any] | None = state
    missing: dict[str, Any] = {}
    names: list[str] = []
    while part is not None and "earlier_phases" in part:
        missing = {"earlier_phases": part["earlier_phases"]}
        name = files.name_in(part["earlier_phases"])
        part = files.read(name, needed=not phases)
        if part is not None:
            names.append(name)
            earlier, data_then = _read_part(part, seed)
            first = phases[0].step if phases else LONGEST_RUN
            phases = [*(phase.until(first) for phase in earlier if phase.step < first), *phases]
            data, missing = {**data_then, **data}, {}
    if part is not None and part.keys() & NOT_KEPT:
        missing = dict(NOT_KEPT)
    steps = [phase.step for phase in phases]
    if not phases or steps != sorted(set(steps)):
        raise StateError("the phases of the state are not in order", hint=DAMAGED_STATE)
    return LoadedRun(tuple(phases), data, missing, tuple(names))


def _read_part(part: Mapping[str, Any], seed: int) -> tuple[list[Phase], dict[str, Any]]:
    """Read what a state, or a file beside it, holds itself."""
    listed, data = part.get("phases"), part.get("data")
    if not isinstance(listed, list):
        raise StateError("the state has no phases", hint="it may be cut off, or the state of something else")
    if not isinstance(data, Mapping) or not all(isinstance(saved, Mapping) for saved in data.values()):
        raise StateError("the state does not say which data it was saved for", hint=DAMAGED_STATE)
    phases: list[Phase] = []
    for found in listed:
        if phases and isinstance(found, list) and len(found) == 2:
            phases[-1:] = _resized(phases[-1], found, seed)
        else:
            phases.append(_phase_from_json(found))
    return phases, dict(data)


def _phases_to_json(schedule: Schedule) -> list[Any]:
    found: list[Any] = []
    previous: Phase | None = None
    for phase in schedule.phases:
        if previous is not None and _only_resized(previous, phase, schedule.seed):
            found.append([phase.step, phase.global_rows])
        else:
            found.append(_phase_to_json(phase))
        found += [[steps.step, steps.rows] for steps in phase.changes]
        previous = phase
    return found


def _only_resized(previous: Phase, phase: Phase, seed: int) -> bool:
    same = next_phase(previous, previous.settings(seed, phase.global_rows), phase.step)
    return same == replace(phase, resized=None) and list(same.sources) == list(phase.sources)  # the mixture's order


def _phase_to_json(phase: Phase) -> dict[str, Any]:
    return {
        **{
            field.name: getattr(phase, field.name)
            for field in fields(phase)
            if field.name not in ("sources", "resized")
        },
        "sources": {name: _standing_to_json(standing) for name, standing in phase.sources.items()},
        "order": list(
            phase.sources
        ),  # the mixture depends on it, and a checkpoint library may sort the keys of a state
    }


def _standing_to_json(standing: Standing) -> dict[str, Any]:
    """Only pairs say how many samples stay together."""
    written = asdict(standing)
    return written if standing.unit != 1 else {key: value for key, value in written.items() if key != "unit"}


def _standing_from_json(found: Any) -> Standing:
    return _read(Standing, {"unit": 1, **found} if isinstance(found, Mapping) else found)


def _resized(phase: Phase, found: list[Any], seed: int) -> list[Phase]:
    """Continue a phase in steps of another size; a new one begins where that needs one."""
    step, rows = (read_count(value, name) for value, name in zip(found, ("step", "rows"), strict=True))
    if step <= phase.steps.step or rows < 1:
        raise StateError("the phases of the state are not in order", hint=DAMAGED_STATE)
    try:
        resized = phase.resize(rows, step)
        if resized is None:
            return [phase, _checked(lambda: next_phase(phase, phase.settings(seed, rows), step))]
        _check_steps(resized)
    except (ValueError, IndexError, OrderError) as error:
        raise _impossible(error) from None
    return [resized]


def _phase_from_json(found: Any) -> Phase:
    if not isinstance(found, Mapping) or not isinstance(found.get("sources"), Mapping):
        raise StateError("a phase of the state cannot be read", hint=DAMAGED_STATE)
    named, order = found["sources"], found.get("order")
    if not isinstance(order, list) or list(map(str, order)) != order or sorted(order) != sorted(map(str, named)):
        raise StateError("a phase of the state does not say in which order its sources are mixed", hint=DAMAGED_STATE)
    sources = {name: _standing_from_json(named.get(name)) for name in order}
    values = {key: value for key, value in found.items() if key != "order"}
    return _checked(partial(_read, Phase, {**values, "sources": sources}))


def _checked(make: Callable[[], Phase]) -> Phase:
    """Make a phase, and insist that a run could have it."""
    try:
        phase = make()
        _check_possible(phase)
        phase.plan(seed=0)
    except (ValueError, IndexError, OrderError) as error:
        raise _impossible(error) from None
    return phase


def _impossible(error: Exception) -> StateError:
    return StateError(f"a phase of the state is impossible: {error}", hint=DAMAGED_STATE)


def _check_steps(phase: Phase) -> None:
    """Check the last steps of a phase."""
    steps = phase.steps
    _, offset, _ = phase.place_of(steps.place)
    if steps.rows % phase.ranks != 0:
        raise StateError("a phase of the state has rows that its ranks cannot share", hint=DAMAGED_STATE)
    for name, standing in phase.sources.items():
        if standing.unit < 1 or any(count % standing.unit for count in (offset, steps.rows // phase.ranks)):
            raise StateError(f"the state cuts between rows of {name!r} that stay together", hint=DAMAGED_STATE)
    phase.clock(None, steps)


def _check_possible(phase: Phase) -> None:
    """Check what no run could have led to, and what would overflow the native arithmetic."""
    counts = (phase.size, phase.left, phase.global_rows, phase.ranks, phase.row_length)
    if min(counts) < 1:
        raise StateError("a phase of the state has no rows, ranks or samples", hint=DAMAGED_STATE)
    places = sum(standing.quota for standing in phase.sources.values())
    longest = max((standing.begun * standing.split for standing in phase.sources.values()), default=0)
    if places > MOST_PLACES or longest * phase.row_length >= LONGEST_RUN:
        raise StateError("a phase of the state is larger than any run", hint=DAMAGED_STATE)
    for name, standing in phase.sources.items():
        if standing.shuffle not in get_args(Shuffle):
            raise StateError(f"the state shuffles {name!r} by {standing.shuffle!r}", hint=DAMAGED_STATE)
        if standing.left <= 0 or standing.samples < 1:
            raise StateError(f"source {name!r} stands after the end of its epoch in the state", hint=DAMAGED_STATE)
        if standing.unit > 0 and standing.offset % standing.unit:
            raise StateError(f"the state cuts between rows of {name!r} that stay together", hint=DAMAGED_STATE)
    _check_steps(phase)


def _read(kind: type[Kind], found: Any) -> Kind:
    hints = {name: hint for name, hint in get_type_hints(kind).items() if name != "resized"}
    if not isinstance(found, Mapping) or set(found) != set(hints):
        raise StateError(f"a {kind.__name__.lower()} of the state cannot be read", hint=DAMAGED_STATE)
    for name, hint in hints.items():
        value = found[name]
        if hint is int or (hint == int | None and value is not None):
            read_count(value, name)
        if hint is bool and not isinstance(value, bool):
            raise StateError(f"{name} in the state is {value!r}, not true or false", hint=DAMAGED_STATE)
    return kind(**found)
