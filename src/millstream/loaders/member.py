"""What a run goes over: stores, and how rows are cut from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from millstream.batches import Fill, Packing, packing_of
from millstream.order import UNKNOWN, Share, Shuffle, Windows
from millstream.store import TokenStore
from millstream.tokens import Tokenizer, find_tokenizer

Documents = Literal["attend", "isolate", "row", "packed"]
Answers = Literal["preference", "kto", "stepwise"]
Isolation = Literal["varlen", "block_mask", "none"]

WINDOW_DOCUMENTS = 4096
"""Documents that are packed together: more save hardly any room (a tenth of a percent), and make windows slower."""
BLOCK_ROWS = 32
"""Rows of about one length that change places in every epoch: fewer, and the same rows would always share a batch."""


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
class Member:
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
    def packed(cls, store: TokenStore, shape: RowShape, shuffle: Shuffle, key: int) -> Member:
        """Pack the documents of a store, or group them: which stand together follows from the key alone."""
        packing = _packing(store, shape, key if shuffle == "global" else None)
        return cls(store, Share(packing.samples, shuffle, packed=True), shape, packing=packing)

    @classmethod
    def following(
        cls, store: TokenStore, shape: RowShape, shuffle: Shuffle, identity: str, *, complete: bool
    ) -> Member:
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
