"""What a run goes over: stores, the rows that are cut from them, and what user, model and tokenizer say of those."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

from millstream.batches import Fill, Packing, packing_of
from millstream.errors import LoaderError
from millstream.loaders.settings import LoaderSettings, SharedKeywords, check_choice, positive, whole
from millstream.order import UNKNOWN, Share, Shuffle, Windows
from millstream.store import TokenStore
from millstream.tokens import Tokenizer, find_tokenizer

Documents = Literal["attend", "isolate", "row", "packed"]
Answers = Literal["preference", "kto", "stepwise"]
Isolation = Literal["varlen", "block_mask", "none"]

WINDOW_DOCUMENTS = 4096
"""Documents that are packed together: more save hardly any room (a tenth of a percent), and make windows slower."""
MOST_BATCH_TOKENS = 2**31
BLOCK_ROWS = 32
"""Rows of about one length that change places in every epoch: fewer, and the same rows would always share a batch."""
LONGEST_ROW = 2**30
USUAL_ROW = 2048
"""The length of a row unless given."""
ID_LIMIT = 2**31
"""Ids are signed in every framework, and 32 bits wide in some."""
PadTo = Literal["longest", "max_length"]


@dataclass(frozen=True)
class RowShape:
    """What a row is: how long, how documents meet in it, and what becomes of the rest at the end."""

    length: int
    documents: Documents = "attend"
    tail: Literal["drop", "pad"] = "drop"
    pad_id: int = 0
    pad_multiple: int = 0
    """Rows are as long as the longest of their batch, in multiples of this; 0: all have `length`."""
    by_length: bool = False
    """Whether rows of about one length follow each other."""
    max_tokens: int = 0
    """Places of a batch, padding too, where a step is as many rows as fit; 0: a step is a number of rows."""
    isolation: Isolation = "varlen"
    """How a batch says which of its packed documents see each other."""
    answers: Answers | None = None
    """Rows that are answers: neighbours that are preferred to each other, judged ones, or judged step by step."""

    @property
    def fill(self) -> Fill:
        """How documents become samples."""
        if self.documents == "packed":
            return "best_fit"
        return "by_length" if self.by_length or self.max_tokens else "alone"

    @property
    def unit(self) -> int:
        """Rows that make one sample."""
        return 2 if self.answers == "preference" else 1

    def batch_rows(self, batch_size: int) -> int:
        """Rows of so many samples, if a batch has room for them."""
        rows = batch_size * self.unit
        if rows * self.length >= MOST_BATCH_TOKENS:
            raise LoaderError("a batch has at most 2**31 tokens", hint="use a smaller batch_size or chunk_size")
        return rows

    def filled_labels(self, wanted: Literal["next", "same"]) -> Literal["next", "same"]:
        """How the engine writes labels: where they are marks, on the token that they mark."""
        return "same" if self.answers in ("kto", "stepwise") else wanted

    @property
    def whole_documents(self) -> bool:
        """Whether rows hold whole documents, as far as they fit."""
        return self.documents in ("row", "packed")

    def samples(self, store: TokenStore) -> int:
        """Count the rows of a store that is not packed."""
        if self.documents == "row":
            return store.documents
        inputs = max(0, len(store) - 1)
        return -(-inputs // self.length) if self.tail == "pad" else inputs // self.length

    def samples_of(self, store: TokenStore, length: int, split: int) -> int | None:
        """Count the rows that were cut into `split` rows of another length; None where a row cannot be cut."""
        whole = self.whole_documents and split != 1
        return None if whole else replace(self, length=length * split).samples(store)


@dataclass(frozen=True)
class RowSource:
    """A store that takes part in a run, and how it is cut into rows."""

    store: TokenStore
    share: Share
    shape: RowShape
    id_limit: int = 0
    tokenizer: Tokenizer | None = None
    packing: Packing | None = None
    first_in_order: bool = False
    given_facts: Mapping[str, Any] | None = None
    """What the store is made from, where that names it better than what it holds so far."""
    given_windows: Windows | None = None
    """Of rows that are not packed, and come in windows."""
    given_samples: Callable[[int, int], int | None] | None = None
    """Counts rows of some length, where the store does not hold all of them."""
    tokens: int | None = None
    """Of an epoch, where the store does not hold all of them and they have been counted."""

    @classmethod
    def packed(cls, store: TokenStore, shape: RowShape, shuffle: Shuffle, key: int) -> RowSource:
        """Pack the documents of a store, or group them: which stand together follows from the key alone."""
        packing = _packing(store, shape, key if shuffle == "global" else None)
        return cls(store, Share(packing.samples, shuffle, packed=True), shape, packing=packing)

    @classmethod
    def following(
        cls, store: TokenStore, shape: RowShape, shuffle: Shuffle, identity: str, *, complete: bool
    ) -> RowSource:
        """Follow a store whose documents lie in a keyed order already, and which may still be made, window by window.

        Rows are packed, or hold a document each, as their shape says.
        """
        known = store.documents if complete else store.documents // WINDOW_DOCUMENTS * WINDOW_DOCUMENTS
        packing = _packing(store, shape, None, known)
        share = Share(packing.samples if complete else UNKNOWN, shuffle, packed=True, unit=shape.unit)
        return cls(store, share, shape, packing=packing, first_in_order=True, given_facts={"fingerprint": identity})

    @property
    def facts(self) -> dict[str, Any]:
        """Which data this is, as a state says it."""
        if self.given_facts is not None:
            return dict(self.given_facts)
        store = self.store
        return {"fingerprint": store.fingerprint, "tokens": len(store), "documents": store.documents}

    def samples_of(self, length: int, split: int) -> int | None:
        """Count the rows that were cut into `split` rows of another length; None where that cannot be."""
        if self.given_samples is not None:
            return self.given_samples(length, split)
        if self.packing is None:
            return self.shape.samples_of(self.store, length, split)
        return self.share.samples if (length, split) == (self.shape.length, 1) else None

    @property
    def tail_tokens(self) -> int:
        """Inputs after the last whole row of an epoch, which no row holds, as far as they are known."""
        samples = self.share.samples
        if self.shape.whole_documents or samples == UNKNOWN:
            return 0
        tokens = len(self.store) if self.tokens is None else self.tokens
        return max(0, tokens - 1 - samples * self.shape.length)

    @cached_property
    def windows(self) -> Windows | None:
        """The rows of each window, where they come in windows."""
        if self.packing is None:
            return self.given_windows
        packing, shape = self.packing, self.shape
        by_length = shape.fill == "by_length"
        return Windows(
            tuple(packing.bins),
            packing.window_documents,
            shape.length,
            self.first_in_order,
            block=BLOCK_ROWS if by_length and not shape.max_tokens else 0,
            foremost=packing.longest if by_length and not self.first_in_order else None,
        )

    @cached_property
    def text_tokenizer(self) -> Tokenizer | None:
        """The tokenizer that was given, else the one that lies in the store, if it does."""
        return self.tokenizer or find_tokenizer(self.store.path, self.store.manifest.get("tokenizer"))


def row_facts(shape: RowShape, members: Mapping[str, RowSource]) -> dict[str, Any]:
    """What rows a run has, as a state says it."""
    facts: dict[str, Any] = {"documents": shape.documents, "tail": shape.tail}
    grouped = [name for name, member in members.items() if member.shape.by_length]
    facts["group_by_length"] = grouped or None
    facts["max_tokens"] = shape.max_tokens or None
    if shape.max_tokens:
        facts["pad_to_multiple_of"] = shape.pad_multiple
    if shape.answers is not None:
        facts["answers"] = shape.answers
    others = {name: member.shape.documents for name, member in members.items()}
    return facts if set(others.values()) == {shape.documents} else {**facts, "documents": others}


def _packing(store: TokenStore, shape: RowShape, key: int | None, documents: int | None = None) -> Packing:
    return packing_of(
        store.layout,
        WINDOW_DOCUMENTS,
        shape.length,
        key,
        fill=shape.fill,
        documents=documents,
        budget=shape.max_tokens,
        unit=shape.pad_multiple,
    )


def row_length(chunk_size: int | None, seq_len: int | None, settings: LoaderSettings, name: str = "chunk_size") -> int:
    """Settle the length of a row, which the user calls `name`, and check that the model can take it."""
    if chunk_size is not None and seq_len is not None and chunk_size != seq_len:
        raise LoaderError(f"chunk_size={chunk_size} and seq_len={seq_len} mean the same thing", hint="pass one of them")
    wanted = chunk_size if chunk_size is not None else seq_len
    longest = settings.limits.longest_row
    if wanted is None:
        wanted = longest or USUAL_ROW
    length = positive(name, wanted, LONGEST_ROW)
    if longest is not None and length > longest:
        raise LoaderError(
            f"{name}={length} is longer than the model's longest row ({longest})",
            hint=f"pass {name}={longest} or less",
        )
    return length


def padding_id(given: int | None, tokenizer: Tokenizer | None, settings: LoaderSettings) -> int:
    """Settle what padding is filled with; the model must have an embedding for it."""
    choices = (given, None if tokenizer is None else tokenizer.pad_id, settings.limits.pad_id, 0)
    chosen = next(choice for choice in choices if choice is not None)
    most = settings.limits.vocab_size or ID_LIMIT
    if whole(chosen) is None or not 0 <= chosen < most:
        raise LoaderError(f"pad_id={chosen!r} is no id", hint=f"pass an integer from 0 to {most - 1}")
    return chosen


def id_limit(store: TokenStore, tokenizer: Tokenizer | None, settings: LoaderSettings) -> int:
    """Check ids against the vocabulary, now where the store knows its largest id, else row by row in the engine."""
    vocabulary, owner = settings.limits.vocab_size, "the model's vocabulary"
    if vocabulary is None and tokenizer is not None:
        vocabulary, owner = tokenizer.vocab_size, f"the vocabulary of {tokenizer.name}"
    limit = ID_LIMIT if vocabulary is None else min(vocabulary, ID_LIMIT)
    if not store.id_bound:
        return 0 if store.dtype == "uint16" and limit >= 2**16 else limit
    if store.id_bound > limit:
        raise LoaderError(
            f"{store.path}: holds the id {store.id_bound - 1}, but {owner} has {limit} ids",
            hint="the store was made with another tokenizer: prepare it again, or enlarge the model's embedding",
        )
    return 0


def pad_multiple(pad_to: PadTo, multiple: int, length: int) -> int:
    """What rows are padded to a multiple of; 0: all have the longest length.

    >>> pad_multiple("longest", 8, 1024), pad_multiple("max_length", 1, 1024)
    (8, 0)
    """
    check_choice("pad_to", pad_to, get_args(PadTo))
    if length % positive("pad_to_multiple_of", multiple):
        raise LoaderError(
            f"rows of at most {length} tokens cannot all be padded to a multiple of {multiple}",
            hint=f"use max_length={max(1, length // multiple) * multiple}, or another pad_to_multiple_of",
        )
    return multiple if pad_to == "longest" else 0


def grouped(shape: RowShape, max_tokens: int | None, *, by_length: bool) -> RowShape:
    """Let rows of about one length share a batch: so many rows, or as many as fit."""
    if not by_length and max_tokens is None:
        return shape
    if shape.documents == "packed":
        raise LoaderError(
            "packed rows are all of one length, and are not grouped by it",
            hint="leave out group_by_length and max_tokens, or packing; batch_size * max_length is what a batch takes",
        )
    if max_tokens is None:
        return replace(shape, by_length=True)
    if positive("max_tokens", max_tokens) < shape.length or max_tokens >= MOST_BATCH_TOKENS:
        raise LoaderError(
            f"max_tokens={max_tokens} has no room for a row of max_length={shape.length}, or room for 2**31 tokens",
            hint=f"use max_tokens={shape.length} or more, or a smaller max_length",
        )
    return replace(shape, by_length=True, max_tokens=max_tokens)


def one_group(shared: SharedKeywords) -> SharedKeywords:
    """A step takes one group of rows per rank."""
    if "batch_size" in shared:
        raise LoaderError("batch_size and max_tokens both say how many rows a batch has", hint="pass one of them")
    return {**shared, "batch_size": 1}


@dataclass(frozen=True)
class Span:
    """Input tokens [start, stop) of a document, counted inside that document.

    >>> from millstream.loaders.pretrain import example_loader
    >>> with example_loader(shuffle=False) as loader:
    ...     loader.explain(0)[0].spans
    (Span(source='data', document=0, start=0, stop=4, file='...'),)
    """

    source: str
    document: int
    start: int
    stop: int
    file: str
    """Empty where there is none: rollouts of a feed are in the journal by their ids."""
    id: int | str | None = field(default=None, kw_only=True, repr=False)
    """That of the rollout; None for what has none."""


@dataclass(frozen=True)
class RowOrigin:
    """One row of a batch: its source and sample, the documents it was cut from and, with a tokenizer, its text.

    >>> from millstream.loaders.pretrain import example_loader
    >>> with example_loader(shuffle=False) as loader:
    ...     origin = loader.explain(0)[1]
    >>> origin.row, origin.source, origin.sample, [span.document for span in origin.spans]
    (1, 'data', 1, [0, 1])
    """

    row: int
    source: str
    sample: int
    spans: tuple[Span, ...]
    text: str | None = None
    use: int | None = None
    """Of a self-play game: how often it was used before."""
