"""(step) -> where its rows come from, and (document) -> the steps that use it. Computed, without replaying the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import LoaderError
from millstream.loaders.member import Member
from millstream.loaders.origin import RowOrigin, Span

if TYPE_CHECKING:
    from millstream.loaders.runs.store import StoreRun


def origins_of(step: int, run: StoreRun) -> list[RowOrigin]:
    """Name the origin of each row of this rank at a step; of all ranks where their number was another one then."""
    phase, _ = run.schedule.steps_at(step)
    rank = run.settings.rank if phase.ranks == run.settings.world_size else None
    names, samples = run.schedule.rows(step, rank)
    rows = [
        (name, sample, stretches)
        for name, sample in zip(names, samples.tolist(), strict=True)
        for stretches in _rows(_member(name, run), sample, phase.row_length)
    ]
    return [
        RowOrigin(row, name, sample, *_spans_and_text(_member(name, run), name, stretches))
        for row, (name, sample, stretches) in enumerate(rows)
    ]


def _member(name: str, run: StoreRun) -> Member:
    if name not in run.members:
        raise no_such_member(name)
    return run.members[name]


def no_such_member(name: str) -> LoaderError:
    """Say that a row came from a source that is gone."""
    return LoaderError(
        f"this row comes from the source {name!r}, which this loader does not have",
        hint="explain it with a loader that has the sources of that time",
    )


def origin_of(name: str, member: Member, sample: int, length: int) -> RowOrigin:
    """Name the origin of a sample that is one row."""
    (stretches,) = _rows(member, sample, length)
    return RowOrigin(0, name, sample, *_spans_and_text(member, name, stretches))


def _rows(member: Member, sample: int, length: int) -> list[list[tuple[int, int]]]:
    """Where the inputs of each row of a sample lie in the store; only a group of rows has more than one."""
    stretches = [(start, min(stop, start + length)) for start, stop in _stretches(member, sample, length)]
    return [[stretch] for stretch in stretches] if member.shape.documents == "row" else [stretches]


def _spans_and_text(member: Member, name: str, stretches: list[tuple[int, int]]) -> tuple[tuple[Span, ...], str | None]:
    store, tokenizer = member.store, member.text_tokenizer
    spans = tuple(
        Span(name, int(document), int(first), int(last), store.file_of(int(document)))
        for start, stop in stretches
        for document, first, last in zip(*store.spans_of(start, stop), strict=True)
    )
    if tokenizer is None:
        return spans, None
    return spans, tokenizer.decode([token for start, stop in stretches for token in store.read(start, stop).tolist()])


def _stretches(member: Member, sample: int, length: int) -> list[tuple[int, int]]:
    """Where the inputs of a row lie in the store: [start, stop) each, before they are cut to the length of the row."""
    store = member.store
    if member.packing is not None:
        return [store.document_span(document) for document in member.packing.documents(sample)]
    if member.shape.documents == "row":
        return [store.document_span(sample)]
    return [(sample * length, len(store))]


def steps_of(document: int, source: str | None, run: StoreRun) -> list[int]:
    """Name the steps of the present epoch whose rows, on any rank, hold input tokens of a document."""
    members = run.members
    if source is None:
        if len(members) > 1:
            raise LoaderError(
                "several sources have a document of this number", hint=f"pass source=, one of {', '.join(members)}"
            )
        source = next(iter(members))
    if source not in members:
        raise LoaderError(f"there is no source {source!r}", hint=f"there are {', '.join(members)}")
    member = members[source]
    start, stop = _tokens_of(document, member)
    if start == stop:
        return []
    if member.shape.whole_documents:
        return run.schedule.steps_of(source, None, samples_with(document, member), run.epoch)
    return run.schedule.steps_of(source, (start, stop), range(0), run.epoch)


def samples_with(document: int, member: Member) -> range:
    """The samples of a store that hold input tokens of a document, in rows of the present length."""
    start, stop = _tokens_of(document, member)
    if start == stop:
        return range(0)
    if member.packing is not None:
        document = member.packing.sample_of(document) or 0  # it has tokens, so it lies in a bin
    if member.shape.whole_documents:
        return range(document, document + 1)
    rows = range(start // member.shape.length, (stop - 1) // member.shape.length + 1)
    return range(rows.start, min(rows.stop, member.share.samples))  # the tail has no row


def _tokens_of(document: int, member: Member) -> tuple[int, int]:
    store = member.store
    if not 0 <= document < store.documents:
        raise LoaderError(
            f"{store.path}: there is no document {document} among {store.documents}",
            hint=f"documents are numbered from 0 to {store.documents - 1}",
        )
    return store.document_span(document)
