"""Token ids from a caller: checked before any is kept, and the error says which one is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from millstream.errors import StoreError
from millstream.store.format import DTYPES, id_limit


def as_integers(ids: ArrayLike, document: int) -> NDArray[Any]:
    """Make a one-dimensional integer array of whatever the caller holds.

    >>> as_integers([1, 2], 0), as_integers([], 0).size
    (array([1, 2]), 0)
    """
    try:
        array = np.asarray(ids)
    except (TypeError, ValueError, OverflowError) as error:
        raise StoreError(
            f"document {document}: these are not token ids: {error}", hint="pass a list or an array of whole numbers"
        ) from None
    if array.ndim != 1:
        raise StoreError(
            f"document {document}: ids must lie in a row, not in shape {array.shape}",
            hint="append one document at a time, or flatten the array",
        )
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        raise StoreError(
            f"document {document}: ids must be whole numbers that fit 64 bits, not {array.dtype}",
            hint=f"the first one is {array[0]!r:.60}",
        )
    return array


def refuse_outside(ids: NDArray[Any], ends: NDArray[Any], *, first: int, dtype: str, limit: int) -> None:
    """Refuse ids that are negative or not below `limit`; name the document (the first one here is `first`).

    >>> refuse_outside(np.array([5, 70000]), np.array([1, 2]), first=8, dtype="uint16", limit=65536)
    Traceback (most recent call last):
    millstream.errors.StoreError: document 9: id 70000 does not fit uint16
      hint: write the store with dtype="uint32"
    """
    if ids.size == 0:
        return
    if ids.dtype.kind == "u" and np.iinfo(ids.dtype).max < limit:
        return
    if int(ids.max()) < limit and (ids.dtype.kind == "u" or int(ids.min()) >= 0):
        return
    place = int(((ids < 0) | (ids >= limit)).argmax())
    document = first + int(np.searchsorted(ends, place, side="right"))
    what, hint = explain(document, int(ids[place]), dtype, limit)
    raise StoreError(what, hint=hint)


def explain(document: int, found: int, dtype: str, limit: int) -> tuple[str, str]:
    """Say what is wrong with an id, and what would help."""
    if found < 0:
        return f"document {document}: id {found} is negative", "ids count from 0"
    if limit < id_limit(dtype):
        what = f"document {document}: id {found} is beyond the vocabulary of {limit}"
        return what, "the tokenizer that made it is not the one this store was given"
    fitting = [name for name in DTYPES if found < id_limit(name)]
    hint = f'write the store with dtype="{fitting[0]}"' if fitting else "no dtype holds it; ids end at 2^32 - 1"
    return f"document {document}: id {found} does not fit {dtype}", hint
