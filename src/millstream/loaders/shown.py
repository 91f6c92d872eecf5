"""Rows of a run as people read them: each conversation of a row with where it came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from millstream.chats import Supervised, show_row
from millstream.errors import LoaderError
from millstream.loaders.member import Member
from millstream.loaders.origin import RowOrigin
from millstream.stats import Shown, Styled, counted
from millstream.store import TokenStore
from millstream.tokens import kept_tokenizer


def show_document(member: Member, document: int) -> Shown:
    """A conversation of a store."""
    store = member.store
    if not 0 <= document < store.documents:
        raise LoaderError(
            f"{store.path}: there is no conversation {document} among {store.documents}",
            hint=f"they count from 0 to {store.documents - 1}; with step= rows of a batch are counted",
        )
    start, stop = store.document_span(document)
    return Shown(_shown(member, document, 0, stop - start))


def show_step(members: Mapping[str, Member], origins: Sequence[RowOrigin], step: int, row: int) -> Shown:
    """A row of this rank's batch at a step, with all conversations that are packed into it."""
    if not 0 <= row < len(origins):
        raise LoaderError(
            f"step {step} has no row {row}, only {counted(len(origins), 'row')}",
            hint=f"rows count from 0 to {len(origins) - 1}" if origins else "this rank has no rows in it",
        )
    spans = origins[row].spans
    inputs = sum(span.stop - span.start for span in spans)
    heading = f"step {step}, row {row}: {counted(len(spans), 'conversation')}, {counted(inputs, 'token')}\n"
    parts = [Styled(heading, "heading")]
    for span in spans:
        parts += _shown(members[span.source], span.document, span.start, span.stop)
    return Shown(parts)


def _shown(member: Member, document: int, start: int, stop: int) -> Iterator[Styled]:
    store = member.store
    tokenizer = member.text_tokenizer or kept_tokenizer(store.path, store.manifest.get("tokenizer"))  # says why not
    first, last = store.document_span(document)
    ids, weights = store.read(first + start, first + stop), store.weights(first + start, first + stop)
    row = Supervised(ids, weights, np.full(len(ids), -1, np.int32), truncated=start > 0 or first + stop < last)
    yield from show_row(row, tokenizer.decode, f"══ conversation {document}{_where(store, document)}")


def _where(store: TokenStore, document: int) -> str:
    """Where a conversation came from; a store that is still made does not say it yet."""
    origin = store.origin_of(document)
    if origin is not None:
        return f" ({origin.file}:{origin.row + 1})"
    return f" ({store.file_of(document)})" if store.manifest.get("sources") else ""
