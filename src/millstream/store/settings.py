"""What a caller asks of a writer, checked before anything is touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from millstream.errors import StoreError
from millstream.storage import ZSTD_LEVEL, digest, need_zstd
from millstream.store.format import token_dtype
from millstream.store.manifest import is_sources, plain

MOST_LEVEL = 19


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
    compress: int | None = None
    """A level of zstd; 0 is none."""

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
    compress: bool | int | None = None,  # noqa: FBT001
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
    return Settings(
        dtype, shard_tokens, resume, append, listed, known, plain(recipe, "recipe"), checked_level(compress)
    )


def checked_level(compress: bool | int | None) -> int | None:  # noqa: FBT001 - a level, or whether to have one
    """Turn what the caller asked for into a level of zstd.

    >>> checked_level(True), checked_level(False), checked_level(9)
    (1, 0, 9)
    """
    if compress is None or (isinstance(compress, int) and 0 <= compress <= MOST_LEVEL):
        if compress:
            need_zstd()
        return ZSTD_LEVEL if compress is True else None if compress is None else int(compress)
    raise StoreError(
        f"compress must be True, False or a level from 1 to {MOST_LEVEL}, not {compress!r}",
        hint="True is the level that costs least",
    )
