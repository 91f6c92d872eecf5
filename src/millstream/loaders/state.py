"""Does the state of a run over stores fit the data that is here? Nothing in it is trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millstream.errors import FingerprintError, StateError
from millstream.loaders.member import Member
from millstream.order import Phase, StepPlace
from millstream.storage import DAMAGED_STATE, read_count
from millstream.store import TokenStore


def check_data(data: Mapping[str, Any], phases: Sequence[Phase], members: Mapping[str, Member]) -> None:
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
            hint=f"pass name={before} to go on with that run",
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
