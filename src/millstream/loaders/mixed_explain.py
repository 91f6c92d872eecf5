"""(step of a mixture in lanes) -> where its rows come from, and (document of a source) -> the steps that use it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from millstream.errors import LoaderError
from millstream.loaders import explain
from millstream.loaders.lane_steps import samples_of, step_of
from millstream.loaders.mixed_run import MixedStreamRun
from millstream.loaders.origin import RowOrigin
from millstream.loaders.stream_explain import Explainer, not_in_the_log
from millstream.loaders.stream_lanes import StreamLanes


def origins_of(step: int, run: MixedStreamRun) -> list[RowOrigin]:
    """Name the origin of each row of this rank at a step; of all ranks where their number was another one then."""
    samples = samples_of(step, run.phases, run.settings.rank, run.settings.world_size, run.epochs)
    names, found = run.sources_of(samples)
    origins: list[RowOrigin | None] = [None] * len(names)
    for name in dict.fromkeys(names):
        rows = [row for row, each in enumerate(names) if each == name]
        if name in run.streams:
            named = _explainer(run.streams[name]).rows([int(found[row]) for row in rows])
        elif name in run.stores:
            store = run.stores[name]
            places = store.at(found[rows]).tolist()
            named = [explain.origins_in(store.member, name, place, run.length)[0] for place in places]
        else:
            raise explain.no_such_member(name)
        for row, origin in zip(rows, named, strict=True):
            origins[row] = replace(origin, row=row)
    return [origin for origin in origins if origin is not None]


def steps_of(document: int, source: str | None, run: MixedStreamRun) -> list[int]:
    """Name the steps of the present epoch whose rows hold tokens of a document.

    Of a store it is all steps, on any rank; of a stream those that the log knows. Without an epoch it is the steps so
    far.
    """
    names = [*run.streams, *run.stores]
    if source is None and len(names) == 1:
        source = names[0]
    if source not in names:
        what = "several sources have a document of this number" if source is None else f"there is no source {source!r}"
        raise LoaderError(what, hint=f"pass source=, one of {', '.join(names)}")
    first, in_stream = run.epoch * run.epochs.size, source in run.streams
    asked = range(first, run.sample if run.is_endless else first + run.epochs.size)
    uses = _in_stream(document, run.streams[source]) if in_stream else _in_store(document, source, run, asked)
    samples = (run.blends.run_sample(source, use) for use in uses)
    steps = {step_of(each, run.phases, run.epochs) for each in samples if each is not None and each in asked}
    if not steps and in_stream:
        raise not_in_the_log(document)
    return sorted(step for step in steps if step is not None)


def _in_stream(document: int, lanes: StreamLanes) -> set[int]:
    epochs = range(1 + max(map(lanes.epoch_of, lanes.own)))
    return _explainer(lanes).samples_with(document, epochs)


def _in_store(document: int, name: str, run: MixedStreamRun, asked: range) -> Iterator[int]:
    store, lanes = run.stores[name], run.blends.lanes
    first, last = run.blends.taken(name, asked.start).min(), run.blends.taken(name, asked.stop).max()
    for sample in explain.samples_with(document, store.member):
        yield from store.uses_of(sample, range(int(first) * lanes, int(last) * lanes))


def _explainer(lanes: StreamLanes) -> Explainer:
    return Explainer(lanes.stream, lanes.log, lanes.length)
