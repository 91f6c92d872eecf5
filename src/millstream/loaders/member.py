"""What a run goes over: stores, and how rows are cut from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from millstream.order import Share
from millstream.store import TokenStore
from millstream.tokens import Tokenizer
from millstream.tokens.keep import find_tokenizer

Documents = Literal["attend", "isolate", "row"]


@dataclass(frozen=True)
class RowShape:
    """What a row is: how long, how documents meet in it, and what becomes of the rest at the end."""

    length: int
    documents: Documents = "attend"
    tail: Literal["drop", "pad"] = "drop"
    pad_id: int = 0

    def samples(self, store: TokenStore) -> int:
        """Count the rows of a store."""
        if self.documents == "row":
            return store.documents
        inputs = max(0, len(store) - 1)
        return -(-inputs // self.length) if self.tail == "pad" else inputs // self.length

    def samples_of(self, store: TokenStore, length: int, split: int) -> int | None:
        """Count the rows that were cut into `split` rows of another length; None where a row cannot be cut."""
        whole = self.documents == "row" and split != 1
        return None if whole else replace(self, length=length * split).samples(store)

    def tail_tokens(self, store: TokenStore, samples: int) -> int:
        """Count the inputs behind the last whole row, which no row holds."""
        return 0 if self.documents == "row" else max(0, len(store) - 1 - samples * self.length)


@dataclass(frozen=True)
class Member:
    """A store that takes part in a run."""

    store: TokenStore
    share: Share
    id_limit: int = 0
    tokenizer: Tokenizer | None = None

    @cached_property
    def text_tokenizer(self) -> Tokenizer | None:
        """The tokenizer that was given, else the one that lies in the store, if it does."""
        return self.tokenizer or find_tokenizer(self.store.path, self.store.manifest.get("tokenizer"))
