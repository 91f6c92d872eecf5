"""Which version of the policy sampled each token: said for a rollout, for its start and end, or token by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.rollouts.faults import Fault, shown
from millstream.rollouts.ragged import MOST_U32, Ints, arrays_of, check_lengths, joined_ids

_REASON = "impossible policy version"
_HINT = 'give one whole number, one per token, or {"start": …, "end": …}'


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
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(0 <= value <= MOST_U32)
