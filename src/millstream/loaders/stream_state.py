"""The state of a stream as readable JSON: how many samples were delivered, and where each lane stands.

A cursor may lie behind the token it leads to: reading from it gives the same tokens, only later. A rank knows its own
lanes to the chunk, those of the others as they were when the run began; `merge_states` joins the states of all ranks,
and a log in `cache_dir` needs no state at all to find a place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.errors import FingerprintError, StateError
from millstream.loaders.lane import Place
from millstream.loaders.lane_steps import LaneSteps
from millstream.order.steps import StepPhase
from millstream.storage.state import DAMAGED, read_count


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place of a lane, and the number of the lane's token that begins there."""

    place: Place
    start: int


@dataclass(frozen=True, slots=True)
class LaneState:
    """Where the lanes of a stream stand, read and checked."""

    cursors: dict[int, Cursor]
    lane_tokens: dict[int, int]


@dataclass(frozen=True, slots=True)
class StreamState:
    """What a state says, read and checked."""

    step: int
    sample: int
    phases: list[LaneSteps]
    lanes: LaneState


def delivered(sample: int, lane: int, lanes: int) -> int:
    """How many of the first `sample` samples came from a lane.

    >>> [delivered(70, lane, 64) for lane in (0, 5, 6, 63)]
    [2, 2, 1, 1]
    """
    return -(-(sample - lane) // lanes) if sample > lane else 0


def dump_lanes(cursors: Sequence[Cursor], tokens: Sequence[int], lane_tokens: Mapping[int, int]) -> dict[str, Any]:
    """Write down, for each lane, [epoch, range, chunk, tokens from there to its next], and the tokens of an epoch."""
    behind = [[*cursor.place, token - cursor.start] for cursor, token in zip(cursors, tokens, strict=True)]
    return {"cursors": behind, "lane_tokens": [lane_tokens.get(lane) for lane in range(len(cursors))]}


def read_state(state: Mapping[str, Any], lanes: int, length: int, data: Mapping[str, Any]) -> StreamState:
    """Read what a state says about this data; nothing in it is trusted."""
    check_data(state.get("data"), data)
    step, sample, phases = read_steps(state)
    return StreamState(
        step, sample, phases, read_lanes(state, lanes, length, lambda lane: delivered(sample, lane, lanes))
    )


def read_steps(state: Mapping[str, Any]) -> tuple[int, int, list[LaneSteps]]:
    """Read how far a state is, and how its steps were cut."""
    step, sample = read_count(state.get("step"), "step"), read_count(state.get("sample"), "sample")
    found = state.get("steps")
    counted = [_counts(each, 4) for each in found] if isinstance(found, list) else []
    phases = [StepPhase(first, place, rows, ranks) for first, place, rows, ranks in counted]
    if not phases or any(phase.rows < 1 or phase.ranks < 1 for phase in phases) or phases[0].step > step:
        raise StateError("the state has no steps", hint=DAMAGED)
    return step, sample, phases


def read_lanes(part: Any, lanes: int, length: int, taken: Callable[[int], int]) -> LaneState:
    """Read where the lanes of a stream stand; `taken` says how many samples of a lane were delivered by then."""
    cursors, tokens = (part.get(key) if isinstance(part, Mapping) else None for key in ("cursors", "lane_tokens"))
    if not (isinstance(cursors, list) and isinstance(tokens, list)):
        raise StateError("the state has no cursors", hint=DAMAGED)
    if len(cursors) != lanes or len(tokens) != lanes:
        raise StateError(f"the state has {len(cursors)} lanes, this data {lanes}", hint=DAMAGED)
    read = LaneState({}, {})
    for lane, (place, count) in enumerate(zip(cursors, tokens, strict=True)):
        *where, used = _counts(place, 4)
        start = taken(lane) * length - used
        if start < 0:
            raise StateError(f"lane {lane} stands before its beginning", hint=DAMAGED)
        read.cursors[lane] = Cursor(Place(*where), start)
        if count is not None:
            read.lane_tokens[lane] = read_count(count, "lane_tokens") or 1
    return read


def check_data(saved: Any, found: Mapping[str, Any], what: str = "this") -> None:
    """Refuse to go on over other data, or with another way from the data to its tokens."""
    if not isinstance(saved, Mapping):
        raise StateError("the state does not say which data it is about", hint=DAMAGED)
    changed = [f"{key}: {saved.get(key)} then, {value} now" for key, value in found.items() if saved.get(key) != value]
    if changed:
        raise FingerprintError(
            f"{what} is not what the state was saved for ({'; '.join(changed)})",
            hint="stream the same files with the same tokenizer, recipe and settings, or start a new run on these",
        )


def merge_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the states of all ranks of a stream, or of a mixture that has one, at one step, so that any number of ranks
    goes on without reading again.

    >>> one = {"sample": 2, "cursors": [[0, 1, 0, 7], [0, 0, 0, 96]], "lane_tokens": [None, None]}
    >>> other = {"sample": 2, "cursors": [[0, 0, 0, 96], [0, 2, 0, 9]], "lane_tokens": [None, 40]}
    >>> merge_states([one, other])["cursors"]
    [[0, 1, 0, 7], [0, 2, 0, 9]]
    """
    if not states:
        raise StateError("there are no states to merge", hint="pass the state_dict() of every rank")
    first, own = states[0], ("cursors", "lane_tokens", "streams")
    for state in states:
        differing = [key for key in first if key not in own and first[key] != state.get(key)]
        if differing:
            raise StateError(
                f"these states differ in {', '.join(differing)}", hint="merge the states of all ranks at the same step"
            )
    if not isinstance(first.get("streams"), Mapping):
        return {**first, **_merge_lanes(states)}
    parts = {name: [_part(state, name) for state in states] for name in first["streams"]}
    return {**first, "streams": {name: _merge_lanes(lanes) for name, lanes in parts.items()}}


def _part(state: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    streams = state.get("streams")
    part = streams.get(name) if isinstance(streams, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def _merge_lanes(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of each lane, the place that lies nearest, and the tokens of an epoch if one of them knows."""
    first, own = parts[0], ("cursors", "lane_tokens")
    for part in parts:
        if not all(isinstance(each.get(key), list) for each in (first, part) for key in own) or any(
            len(part[key]) != len(first[key]) for key in own
        ):
            raise StateError("only the states of a stream are merged", hint="states of stores are equal on all ranks")
    places = zip(*(part["cursors"] for part in parts), strict=True)
    counted = zip(*(part["lane_tokens"] for part in parts), strict=True)
    return {
        "cursors": [min(lane, key=lambda cursor: cursor[-1]) for lane in places],
        "lane_tokens": [next((count for count in lane if count is not None), None) for lane in counted],
    }


def _counts(value: Any, length: int) -> list[int]:
    if not isinstance(value, list) or len(value) != length:
        raise StateError(f"the state holds {value!r} where {length} numbers belong", hint=DAMAGED)
    return [read_count(each, "number") for each in value]
