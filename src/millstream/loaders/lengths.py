"""How long the rows of a batch are, and which rows share one: what users say, as the shape of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

from millstream.errors import LoaderError
from millstream.loaders.member import RowShape
from millstream.loaders.runs import MOST_BATCH_TOKENS
from millstream.loaders.settings import SharedKeywords, check_choice, positive

PadTo = Literal["longest", "max_length"]


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
