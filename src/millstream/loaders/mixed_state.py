"""The state of a mixture in lanes as readable JSON: samples delivered, how they were mixed, where each stream stands.

A source that was taken out keeps its place in the state, for when it returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millstream.errors import OrderError, StateError
from millstream.loaders.lane_steps import Epochs, LaneSteps, span_of
from millstream.loaders.member import Member
from millstream.loaders.ranges import MOST_LANES
from millstream.loaders.stream import Stream
from millstream.loaders.stream_lanes import Taken
from millstream.loaders.stream_state import LaneState, check_data, read_lanes, read_steps
from millstream.order.blends import MOST_BLENDS, Blend, Blends
from millstream.order.mix import MOST_PLACES
from millstream.storage.state import DAMAGED, read_count

KIND = "mixed stream"


@dataclass(frozen=True)
class Kept:
    """What a state says of its sources: which data they are, and where the lanes of streams stand."""

    data: Mapping[str, Any]
    streams: Mapping[str, Any]

    def joined(self, data: Mapping[str, Any], streams: Mapping[str, Any]) -> Kept:
        """What is known of sources now goes before what was known."""
        return Kept({**self.data, **data}, {**self.streams, **streams})


NOTHING = Kept({}, {})


@dataclass(frozen=True)
class MixedState:
    """What a state says, read and checked as far as that can be done without its data."""

    step: int
    sample: int
    phases: list[LaneSteps]
    blends: Blends
    kept: Kept

    def check_sources(self, streams: Mapping[str, Stream], stores: Mapping[str, Member]) -> None:
        """Refuse to go on over other data. A source that is new has none in the state."""
        facts = {name: stream.data for name, stream in streams.items()}
        for name, found in {**facts, **{name: store_facts(member) for name, member in stores.items()}}.items():
            if self._has(name) or name in self.kept.data:
                check_data(self.kept.data.get(name), found, f"the data of {name!r}")
        for name, stream in streams.items():
            if stream.lanes % self.blends.lanes:
                raise StateError(
                    f"{name!r} has {stream.lanes} lanes, and this run goes in {self.blends.lanes}",
                    hint="cut it into more files or smaller chunks (reading={'chunk_bytes': …}), or prepare it",
                )

    def lanes_of(self, name: str, stream: Stream, length: int, taken: Taken) -> LaneState:
        """Where the lanes of a stream stand; at their beginning if it is new."""
        if not self._has(name) and name not in self.kept.streams:
            return LaneState({}, {})
        return read_lanes(self.kept.streams.get(name), stream.lanes, length, taken)

    def _has(self, name: str) -> bool:
        return any(name in blend.names for blend in self.blends.all)


def store_facts(member: Member) -> dict[str, Any]:
    """What decides the rows of a store, as a state keeps it."""
    how = {"samples": member.share.samples, "shuffle": member.share.shuffle, "rows": member.shape.documents}
    return {**member.facts, **how}


def dump(blends: Blends, kept: Kept) -> dict[str, Any]:
    """Write down how samples are mixed, and what is known of the sources."""
    listed = [[blend.start, *map(list, blend.quotas)] for blend in blends.all]
    return {"lanes": blends.lanes, "blends": listed, "data": dict(kept.data), "streams": dict(kept.streams)}


def read(state: Mapping[str, Any], seed: int, epochs: Epochs) -> MixedState:
    """Read what a state says; nothing in it is trusted."""
    step, sample, phases = read_steps(state)
    if span_of(step, phases, epochs).start != sample:
        raise StateError(f"the state says sample {sample}, but its step {step} begins elsewhere", hint=DAMAGED)
    lanes, listed = read_count(state.get("lanes"), "lanes"), state.get("blends")
    if not 1 <= lanes <= MOST_LANES or lanes & (lanes - 1):
        raise StateError(f"the state has {lanes} lanes", hint=DAMAGED)
    if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_BLENDS + 1:
        raise StateError("the state does not say how its sources are mixed", hint=DAMAGED)
    blends = [_blend(each) for each in listed]
    starts = [blend.start for blend in blends]
    if starts[0] != 0 or starts != sorted(set(starts)) or starts[-1] > sample:
        raise StateError("the mixtures of the state are not in order", hint=DAMAGED)
    data, streams = state.get("data"), state.get("streams")
    if not isinstance(data, Mapping) or not isinstance(streams, Mapping):
        raise StateError("the state does not say which data it is about", hint=DAMAGED)
    try:
        mixed = Blends(lanes, seed, tuple(blends))
    except OrderError as error:
        raise StateError(f"a mixture of the state is impossible: {error}", hint=DAMAGED) from None
    return MixedState(step, sample, phases, mixed, Kept(dict(data), dict(streams)))


def _blend(found: Any) -> Blend:
    if not isinstance(found, list) or len(found) < 2:
        raise StateError("a mixture of the state cannot be read", hint=DAMAGED)
    start, *quotas = found
    shares: dict[str, int] = {}
    for each in quotas:
        if not isinstance(each, list) or len(each) != 2 or not isinstance(each[0], str) or each[0] in shares:
            raise StateError(f"a mixture of the state holds {each!r} where a source belongs", hint=DAMAGED)
        shares[each[0]] = read_count(each[1], "quota")
    if min(shares.values()) < 1 or sum(shares.values()) > MOST_PLACES:
        raise StateError("a mixture of the state has too few or too many places", hint=DAMAGED)
    return Blend.of(read_count(start, "start"), shares)
