"""What the user, the model and the tokenizer say of rows -> their length, their padding and the ids they may hold."""

from __future__ import annotations

from millstream.errors import LoaderError
from millstream.loaders.settings import LoaderSettings, positive, whole
from millstream.store import TokenStore
from millstream.tokens import Tokenizer

LONGEST_ROW = 2**30
USUAL_ROW = 2048
"""The length of a row unless told otherwise."""
ID_LIMIT = 2**31
"""Ids are signed in every framework, and 32 bits wide in some."""


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
