"""What a caller asks of a writer, checked before anything is touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from millstream.errors import StoreError
from millstream.store.format import token_dtype
from millstream.store.manifest import digest, is_sources, plain


@dataclass
class Settings:
    """What the caller asked for; None means: as it was, or the default."""

    dtype: str | None
    shard_tokens: int | None
    resume: bool
    append: bool
    sources: list[Any]
    tokenizer: Any
    recipe: Any

    @property
    def made_from(self) -> str:
        """Digest of what the store is made from: a resumed writer must be given the same."""
        return digest([self.sources, self.tokenizer, self.recipe])


def checked_settings(
    dtype: str | None,
    shard_tokens: int | None,
    resume: bool,  # noqa: FBT001 - handed on by the constructor
    append: bool,  # noqa: FBT001
    sources: Iterable[Mapping[str, Any]],
    tokenizer: Mapping[str, Any] | None,
    recipe: Any,
) -> Settings:
    """Check what the caller asked for and bring it into plain JSON."""
    if dtype is not None:
        token_dtype(dtype)
    if shard_tokens is not None and (type(shard_tokens) is not int or shard_tokens < 1):
        raise StoreError(
            f"shard_tokens must be a whole number from 1 on, not {shard_tokens!r}",
            hint="leave it out for shards of 2^28 tokens",
        )
    listed = plain(list(sources), "sources")
    if not is_sources(listed):
        raise StoreError(
            "`sources` must be a list of {path, bytes, blake2b}",
            hint="path and blake2b are text, bytes is a whole number",
        )
    known = None if tokenizer is None else plain(dict(tokenizer), "tokenizer")
    return Settings(dtype, shard_tokens, resume, append, listed, known, plain(recipe, "recipe"))
