"""Where the rows of a step come from: a run names source and sample of each row, a source the origin of a sample.

Everything is computed or read from a log, without replaying the run. Stores are sources here; each other kind of data
has its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from millstream.errors import LoaderError, StoreError
from millstream.loaders.growing import stream_of
from millstream.loaders.rows import RowOrigin, RowSource, Span
from millstream.loaders.settings import whole

if TYPE_CHECKING:
    from millstream.loaders.growing import StreamSource
    from millstream.loaders.runs import StoreRun


class Source(Protocol):
    """Data that rows come from."""

    def origins(self, sample: Any) -> Iterable[RowOrigin]:
        """Name the origin of each row of a sample; a sample is whatever the run names to this source."""
        ...


def origins_of(rows: Iterable[tuple[Source, Any]]) -> list[RowOrigin]:
    """Name the origin of each row of a step, given source and sample of each."""
    found = [origin for source, sample in rows for origin in source.origins(sample)]
    return [replace(origin, row=row) for row, origin in enumerate(found)]


def no_such_member(name: str) -> LoaderError:
    """Say that a row came from a source that is gone."""
    return LoaderError(
        f"this row comes from the source {name!r}, which this loader does not have",
        hint="explain it with a loader that has the sources of that time",
    )


@dataclass(frozen=True)
class StoreSource:
    """A store of a run, cut into rows of a length."""

    run: StoreRun
    name: str
    length: int

    def origins(self, sample: int) -> list[RowOrigin]:
        """Name the origin of each row of a sample. A store that was moved meanwhile is looked for again."""
        try:
            return origins_in(self._member, self.name, sample, self.length)
        except StoreError:
            if not self.run.finds_files_again():
                raise
        return self.origins(sample)

    @property
    def _member(self) -> RowSource:
        if self.name not in self.run.members:
            raise no_such_member(self.name)
        return self.run.members[self.name]


@dataclass(frozen=True)
class StreamRows:
    """A stream of a run, cut into rows of a length."""

    run: StoreRun
    source: StreamSource
    length: int

    def origins(self, sample: int) -> list[RowOrigin]:
        """Name the origin of a row. Its window is made again, if it was dropped."""
        with self.run.locks.asking:
            return [self.source.origin(sample, self.length)]


def origins_in(member: RowSource, name: str, sample: int, length: int) -> list[RowOrigin]:
    """Name the origin of each row of a sample of a store."""
    rows = _rows(member, sample, length)
    return [RowOrigin(0, name, sample, *_spans_and_text(member, name, stretches)) for stretches in rows]


def _rows(member: RowSource, sample: int, length: int) -> list[list[tuple[int, int]]]:
    """Where the inputs of each row of a sample lie in the store; only a group of rows has more than one."""
    stretches = [(start, min(stop, start + length)) for start, stop in _stretches(member, sample, length)]
    return [[stretch] for stretch in stretches] if member.shape.documents == "row" else [stretches]


def _spans_and_text(
    member: RowSource, name: str, stretches: list[tuple[int, int]]
) -> tuple[tuple[Span, ...], str | None]:
    store, tokenizer = member.store, member.text_tokenizer
    spans = tuple(
        Span(name, int(document), int(first), int(last), store.file_of(int(document)))
        for start, stop in stretches
        for document, first, last in zip(*store.spans_of(start, stop), strict=True)
    )
    if tokenizer is None:
        return spans, None
    return spans, tokenizer.decode([token for start, stop in stretches for token in store.read(start, stop).tolist()])


def _stretches(member: RowSource, sample: int, length: int) -> list[tuple[int, int]]:
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
    member, stream = members[source], stream_of(run.growing.sources.get(source))
    if stream is not None:
        with run.locks.asking:
            start, stop = stream.tokens_of(document)
            return run.schedule.steps_of(source, (start, stop), range(0), run.epoch) if start < stop else []
    run.growing.check_counted("which steps use a document")
    start, stop = _tokens_of(document, member)
    if start == stop:
        return []
    if member.shape.whole_documents:
        return run.schedule.steps_of(source, None, samples_with(document, member), run.epoch)
    return run.schedule.steps_of(source, (start, stop), range(0), run.epoch)


def samples_with(document: int, member: RowSource) -> range:
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


def _tokens_of(document: int, member: RowSource) -> tuple[int, int]:
    store = member.store
    number = whole(document)
    if number is None or not 0 <= number < store.documents:
        raise LoaderError(
            f"{store.path}: there is no document {document!r} among {store.documents}",
            hint=f"documents are numbered from 0 to {store.documents - 1}",
        )
    return store.document_span(number)
