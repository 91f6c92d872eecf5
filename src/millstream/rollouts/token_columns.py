"""Fields with one number per token -> columns: the values of all records end to end, in one array.

The version of the policy may be given for a rollout, for its start and end, or token by token.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.rollouts.check import Fault, refuse_tokens, shown

Array: TypeAlias = npt.NDArray[Any]
Ints: TypeAlias = npt.NDArray[np.int64]
_MOST_U32 = (1 << 32) - 1
_PER_TOKEN = "give one number per token, as a list or an array"
_REASON = "impossible policy version"
_HINT = 'give one whole number, one per token, or {"start": …, "end": …}'


def arrays_of(values: Sequence[Any], name: str, code: str) -> list[Array]:
    """The values as arrays of numbers; those of lists have the type `code`, if all of them fit."""
    arrays = [
        value if type(value) is np.ndarray else _array(value, row, name, code) for row, value in enumerate(values)
    ]
    wanted = "fiub" if code in "dB" else "iu"
    for row, each in enumerate(arrays):
        if each.ndim != 1 or each.dtype.kind not in wanted:
            hint = "give whole numbers" if each.dtype.kind == "f" else _PER_TOKEN
            raise Fault(row, "wrong type", f"{name} holds {each.dtype} of shape {each.shape}", hint)
    return arrays


def _array(value: Any, row: int, name: str, code: str) -> Array:
    if isinstance(value, list | tuple):
        if not value:
            return np.empty(0, code)
        try:  # faster than numpy, and stricter: a fraction is no whole number, and a text no number at all
            return np.frombuffer(bytes(value) if code == "B" else struct.pack(f"{len(value)}{code}", *value), code)
        except (TypeError, ValueError, OverflowError, struct.error):
            pass
    if isinstance(value, str | bytes | Mapping | set) or not hasattr(value, "__len__"):
        raise Fault(row, "wrong type", f"{name} is {shown(value)}", _PER_TOKEN)
    try:
        made = np.asarray(value.float() if str(getattr(value, "dtype", "")) == "torch.bfloat16" else value)
        if code == "d" and made.dtype == object and not any(isinstance(each, str) for each in value):
            made = made.astype(np.float64)  # None becomes NaN
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise Fault(row, "wrong type", f"{name} is {shown(value)}", _PER_TOKEN) from None
    # numpy makes floats of whole numbers that need all of 64 bits, beside others
    is_large = made.dtype == object or (made.dtype.kind == "f" and all(isinstance(each, int) for each in value))
    if is_large and made.ndim == 1 and len(made) and code in "Iq":
        raise Fault(row, "wrong type", f"{name} is {shown(value)}", "give whole numbers of at most 32 bits")
    return made


def check_lengths(arrays: Sequence[Array], name: str, lengths: Ints) -> None:
    """Refuse the first array that has another length than the tokens of its record."""
    found_lengths, wanted_lengths = list(map(len, arrays)), lengths.tolist()
    if found_lengths != wanted_lengths:
        row = next(row for row, length in enumerate(wanted_lengths) if found_lengths[row] != length)
        tokens = wanted_lengths[row]
        wanted = f"the tokens and one more are {tokens:,}" if name == "kept_offsets" else f"token_ids has {tokens:,}"
        found = f"{name} has {len(arrays[row]):,} values, and {wanted}"
        raise Fault(
            row, "unequal lengths", found, "each column covers all tokens of a rollout, those of the prompt too"
        )


def joined_ids(arrays: Sequence[Array], name: str, reason: str = "impossible token id") -> npt.NDArray[np.uint32]:
    """Whole numbers of 32 bits."""
    whole = _joined_ints(arrays)
    if whole.dtype == np.uint32:
        return whole
    if whole.size and (whole.min() < 0 or whole.max() > _MOST_U32):
        wrong = (whole < 0) | (whole > _MOST_U32)
        refuse_tokens(wrong, _ends(arrays), reason, name, whole, f"it is a whole number from 0 to {_MOST_U32:,}")
    return whole.astype(np.uint32)


def _joined_ints(arrays: Sequence[Array]) -> Array:
    """Whole numbers end to end. What needs all of 64 bits becomes negative: numpy would join it as floats."""
    return np.concatenate([each.view(np.int64) if each.dtype == np.uint64 else each for each in arrays])


def joined_masks(arrays: Sequence[Array], name: str) -> npt.NDArray[np.bool_]:
    """Yes or no for each token."""
    whole = np.concatenate(arrays)
    if whole.dtype != np.bool_:
        wrong = (whole != 0) & (whole != 1)
        refuse_tokens(wrong, _ends(arrays), f"impossible {name}", name, whole, "it is 0 or 1 for each token")
    return whole.astype(np.bool_, copy=False)


def joined_floats(arrays: Sequence[Array]) -> npt.NDArray[np.float32]:
    """Numbers of 32 bits; what is too large for them is infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.concatenate(arrays, dtype=np.float32, casting="unsafe")


def _ends(arrays: Sequence[Array]) -> Ints:
    return np.cumsum([len(each) for each in arrays], dtype=np.int64)


def joined_experts(values: Sequence[Any], lengths: Ints) -> Array:
    """The experts that each token went to, in as few bytes as hold them."""
    hint = "give whole numbers from 0 to 65,535 of shape (tokens, layers, experts), of one shape but for the tokens"
    arrays: list[Array] = []
    for row, value in enumerate(values):
        try:
            each = np.asarray(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            raise Fault(row, "wrong type", f"routed_experts is {shown(value)}", hint) from None
        if each.ndim != 3 or each.dtype.kind not in "iu" or (arrays and each.shape[1:] != arrays[0].shape[1:]):
            raise Fault(row, "impossible experts", f"routed_experts is {each.dtype} of shape {each.shape}", hint)
        if each.dtype.itemsize > 1 and each.size and not 0 <= int(each.min()) <= int(each.max()) < 1 << 16:
            raise Fault(row, "impossible experts", f"routed_experts holds {each.min()} to {each.max()}", hint)
        arrays.append(each)
    check_lengths(arrays, "routed_experts", lengths)
    if all(each.dtype in (np.uint8, np.uint16) for each in arrays):
        return np.concatenate(arrays)
    most = max((int(each.max()) for each in arrays if each.size), default=0)
    return np.concatenate(arrays, dtype=np.uint8 if most < 1 << 8 else np.uint16, casting="unsafe")


def joined_kept(
    kept_ids: Sequence[Any], kept_offsets: Sequence[Any], lengths: Ints
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """The ids that top-p kept, and how many there are for each token."""
    ids, offsets = arrays_of(kept_ids, "kept_ids", "I"), arrays_of(kept_offsets, "kept_offsets", "q")
    check_lengths(offsets, "kept_offsets", lengths + 1)
    counts = []
    for row, (own, places) in enumerate(zip(ids, offsets, strict=True)):
        counts.append(np.diff(places.astype(np.int64)))
        if places[0] != 0 or places[-1] != len(own) or (counts[row] < 0).any():
            found = f"kept_offsets goes from {places[0]} to {places[-1]}, and there are {len(own):,} kept_ids"
            raise Fault(row, "impossible kept ids", found, "it starts at 0, never falls, and ends at their number")
    return joined_ids(ids, "kept_ids"), np.concatenate(counts).astype(np.uint32)


def joined_versions(values: Sequence[Any], lengths: Ints, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """The version of each token.

    Of a rollout that only says with which version it began and ended, the tokens up to the last one that was sampled
    have the first: it is not known where the policy changed, and so nothing counts as younger than it is.

    >>> mask = np.array([0, 1, 1, 0, 1, 1, 1], bool)
    >>> joined_versions([7, {"start": 3, "end": 5}], np.array([3, 4]), mask).tolist()
    [7, 7, 7, 3, 3, 3, 5]
    """
    if all(type(value) is int for value in values):
        for row, value in enumerate(values):
            if not _is_version(value):
                raise Fault(row, _REASON, f"policy_version is {shown(value)}", _HINT)
        return np.repeat(np.array(values, np.uint32), lengths)
    ends = np.cumsum(lengths).tolist()
    spread = [
        value if type(value) is np.ndarray and value.ndim else _spread(value, row, mask[end - length : end])
        for row, (value, length, end) in enumerate(zip(values, lengths.tolist(), ends, strict=True))
    ]
    arrays = arrays_of(spread, "policy_version", "I")
    check_lengths(arrays, "policy_version", lengths)
    return joined_ids(arrays, "policy_version", _REASON)


def _spread(value: Any, row: int, mask: npt.NDArray[np.bool_]) -> Any:
    """What was said of one rollout, for each of its tokens."""
    if isinstance(value, Mapping):
        if value.keys() != {"start", "end"}:
            raise Fault(row, _REASON, f"policy_version is {shown(value)}", _HINT)
        return _between(value["start"], value["end"], row, mask)
    if not hasattr(value, "__len__"):
        return _between(value, value, row, mask)
    if isinstance(value, list | tuple) and len(value) == 2:
        versions = _between(value[0], value[1], row, mask)
        if len(mask) == 2 and value[0] != value[1]:
            found = f"policy_version is {shown(value)}, and there are two tokens"
            raise Fault(row, "ambiguous policy version", found, 'write {"start": …, "end": …}, or an array')
        return versions
    return value


def _between(start: Any, end: Any, row: int, mask: npt.NDArray[np.bool_]) -> Ints:
    """The first version up to the last token that was sampled, and the last version from there on."""
    if not (_is_version(start) and _is_version(end)) or end < start:
        raise Fault(row, _REASON, f"policy_version is {shown(start)} to {shown(end)}", _HINT)
    versions = np.full(len(mask), start, np.int64)
    sampled = np.flatnonzero(mask)
    if len(sampled) > 1:
        versions[sampled[-1] :] = end
    return versions


def _is_version(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(0 <= value <= _MOST_U32)
