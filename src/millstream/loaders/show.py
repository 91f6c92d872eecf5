"""Rows as people read them: one of raw conversations, and those of a run with where each came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from millstream.chats import Supervised, show_raw_row, show_row
from millstream.errors import LoaderError, SourceError
from millstream.loaders.chat_keywords import ChatKeywords, prepared_chat
from millstream.loaders.growing import RawSettings
from millstream.loaders.rows import RowOrigin, RowSource
from millstream.sources import Found, Reading, format_named
from millstream.stats import Shown, Styled, counted
from millstream.store import TokenStore, to_prepare
from millstream.tokens import kept_tokenizer, load_tokenizer


def show_chat(
    source: Any,
    row: int = 0,
    *,
    tokenizer: object,
    max_length: int | None = None,
    file_format: str | None = None,
    **keywords: Unpack[ChatKeywords],
) -> Shown:
    """Show what becomes of one row of raw conversations, counted from 0; `keywords` are those of the loader.

    >>> from millstream import BPETokenizer
    >>> tokenizer = BPETokenizer.train(["2+2? 4"], vocab_size=260)
    >>> chats = [{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}]
    >>> show_chat(chats, tokenizer=tokenizer, chat_template="chatml", add_control_tokens=True)
    rows:1  26 tokens, 2 trained (7.7 %)
    ── 0 user
    <|im_start|>user
    2+2?<|im_end|>
    ── 1 assistant
    <|im_start|>assistant
    ⟦4<|im_end|>⟧
    <BLANKLINE>
    """
    found = found_rows(source, file_format)
    settings = replace(prepared_chat(keywords, tokenizer, max_length), strict=False)
    encoder = settings.encoder(load_tokenizer(tokenizer))
    return show_raw_row(found, Reading(whole_rows=True), row, encoder, settings)


def show_document(member: RowSource, document: int) -> Shown:
    """A conversation of a store."""
    store = member.store
    if not 0 <= document < store.documents:
        raise LoaderError(
            f"{store.path}: there is no conversation {document} among {store.documents}",
            hint=f"they count from 0 to {store.documents - 1}; with step= rows of a batch are counted",
        )
    start, stop = store.document_span(document)
    return Shown(_shown(member, document, 0, stop - start))


def show_step(members: Mapping[str, RowSource], origins: Sequence[RowOrigin], step: int, row: int) -> Shown:
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


def _shown(member: RowSource, document: int, start: int, stop: int) -> Iterator[Styled]:
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


def found_rows(source: Any, file_format: str | None) -> Found:
    """The files of conversations; one that has no rows is no such file."""
    found = RawSettings(reading={"format": file_format}).found(source)
    for file in found.files:
        if not getattr(format_named(file.format), "gives_rows", False):
            raise SourceError(
                f"{file.path}: this is raw data ({file.format}), and has no rows of several fields",
                hint=to_prepare(file.path),
            )
    return found
