"""Rebuilds a batch from the mapping that a trainer gives back: its tensors by name, and what the batch knew of them.

Nothing that belongs to rows is lost or mixed up in silence: views of some rows take along what those rows have, and
tensors of other rows, or of the same in another order, are refused where something would be left behind. Tensors that
went to another device are not read, which would make it wait: they hold the rows that they held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from millstream.batches.columns import ROW_FACTS, SUMS
from millstream.batches.mapped import OWNERS, MappedBatch
from millstream.batches.masks import MASKS
from millstream.errors import BatchError
from millstream.tensors import backend, first_row, framework_of

if TYPE_CHECKING:
    from millstream.batches.batch import TrainingBatch

BatchT = TypeVar("BatchT", bound=MappedBatch)
GIVEN_FIELDS = ("input_ids", "labels", "position_ids", *MASKS, "loss_weights", "cu_seqlens", "max_seqlen")
"""What a mapping may name."""


class RemadeFrom(NamedTuple, Generic[BatchT]):
    """Where the tensors of a mapping come from."""

    batch: BatchT
    """The batch, or those of its rows that the tensors are views of."""
    same_rows: bool
    """Whether the tensors hold the rows of that batch in their order; else nothing says which rows they are."""


def origin_of(kind: type[BatchT], given: Mapping[str, Any], first: Any) -> RemadeFrom[BatchT] | None:
    """The batch whose `items()` a mapping was made of, None if it was made otherwise. `first` is its main tensor."""
    for key in given:
        owner = OWNERS.get(id(key))
        if isinstance(owner, kind) and owner._keys.get(key) is key:
            break
    else:
        return None
    whole = owner._first()
    if tuple(whole.shape) == tuple(first.shape):
        return RemadeFrom(owner, same_rows=_in_their_places(owner, given, first))
    start = first_row(first, whole)
    if start is None:
        return RemadeFrom(owner, same_rows=False)
    return RemadeFrom(owner.rows_between(start, start + int(first.shape[0])), same_rows=True)


def _in_their_places(batch: MappedBatch, given: Mapping[str, Any], first: Any) -> bool:
    """Whether tensors of a mapping hold the rows of a batch, each in its place. Either ids or labels may be others."""
    whole = batch._first()
    if first is whole or first_row(first, whole) == 0:
        return True
    old = {name: tensor for name in ("input_ids", "labels") if (tensor := getattr(batch, name, None)) is not None}
    if not all(_can_be_compared(given[name], tensor) for name, tensor in old.items()):
        return True
    rows = {name: _as_rows(tensor) for name, tensor in old.items()}
    same = {name: (_as_rows(given[name]) == rows[name]).all(axis=1) for name in rows}
    there = np.logical_and.reduce([*same.values()])
    for name in rows if not there.all() else ():
        _, kind, found = np.unique(rows[name], axis=0, return_inverse=True, return_counts=True)
        there |= same[name] & (found[kind.reshape(-1)] == 1)  # what other rows have too names none
    return bool(there.all())


def _can_be_compared(tensor: Any, other: Any) -> bool:
    """Whether both are at hand, or on one device, and hold numbers: trainers also send shapes instead of tensors."""
    if framework_of(tensor) is None or framework_of(other) is None or tuple(tensor.shape) != tuple(other.shape):
        return False
    here, there = (_device(each) for each in (tensor, other))
    return here == there != "meta"


def _device(tensor: Any) -> str:
    framework = framework_of(tensor)
    if framework == "jax":
        return ",".join(sorted({each.platform for each in tensor.devices()}))
    return str(tensor.device) if framework == "torch" else "cpu"


def _as_rows(tensor: Any) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = backend(str(framework_of(tensor))).to_numpy(tensor)
    return array


def checked_names(given: Mapping[str, Any], needed: tuple[str, ...], known: Iterable[str]) -> None:
    """Refuse a mapping that lacks what a batch needs, or holds what it has no place for."""
    found = [str(name) for name in given]
    if missing := [name for name in needed if given.get(name) is None]:
        raise BatchError(
            f"a batch has {' and '.join(needed)}, and there is no {missing[0]!r} in {found}", hint=_MAPPING
        )
    if foreign := [name for name in found if name not in (allowed := set(known))]:
        raise BatchError(f"a batch has no {foreign[0]!r}: it has {', '.join(sorted(allowed))}", hint=_MAPPING)


_MAPPING = "name the tensors as the batch does; anything else goes into metadata={…}"


def lost_rows(first: Any, origin: MappedBatch, losing: Iterable[str]) -> BatchError:
    """Say that rows were cut, joined or put into another order in a way that leaves behind what belongs to them."""
    return BatchError(
        f"tensors of shape {tuple(first.shape)} were made of a batch of shape {tuple(origin._first().shape)}, "
        f"and nothing says which rows they are, so {', '.join(losing)} cannot go with them",
        hint="use batch.split(n), batch.rows_between(a, b) or TrainingBatch.merge([…]); for the same rows with other "
        "ids dataclasses.replace(batch, input_ids=…); or train on dict(batch), which is the model's inputs alone",
    )


def alongside(tensor: Any, like: Any) -> Any:
    """A tensor in the framework and on the device of another one.

    >>> import numpy as np
    >>> alongside(np.zeros(2), np.zeros((3, 3))).shape
    (2,)
    """
    mine, framework = framework_of(tensor), framework_of(like)
    if mine is None or framework is None:
        return tensor
    same = tensor if mine == framework else backend(mine).to_numpy(tensor)
    return backend(framework).place(same, like)


def fields_of(
    kind: type[TrainingBatch], given: Mapping[str, Any], metadata: Mapping[str, Any] | None, *, alone: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a batch as a mapping gives them; and masks that were made, which no user gave."""
    if not alone:
        raise BatchError("tensors were given in a mapping and beside it", hint="name all of them in the mapping")
    checked_names(given, ("input_ids", "labels"), given)
    ids = given["input_ids"]
    shape = tuple(getattr(ids, "shape", ()))
    if len(shape) != 2:
        what = f"shape {shape}" if shape else type(ids).__name__
        raise BatchError(
            f"input_ids are of {what}, not of (rows, length)",
            hint="a loader gives whole batches: pass batch_size=None to torch's DataLoader; else pass arrays",
        )
    origin = origin_of(kind, given, ids)
    if origin is None:
        checked_names(given, (), GIVEN_FIELDS)
        return {**given, "metadata": metadata}, {}
    checked_names(given, (), (*GIVEN_FIELDS, *origin.batch.columns.tokens, *origin.batch.extras))
    fields, made = (_remade if origin.same_rows else _rest_of)(origin.batch, given)
    fields["metadata"] = {**fields["metadata"], **(metadata or {})}
    fields["extras"] = {name: fields.pop(name) for name in origin.batch.extras if name in fields}
    return fields, made


def _remade(batch: TrainingBatch, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a batch with the tensors of a mapping of its items; and the masks that the batch itself made."""
    framework = framework_of(given["input_ids"]) or batch.framework  # trainers also send shapes instead of tensors
    ids, made = given["input_ids"], {name: given[name] for name in MASKS if name in given and name not in batch._given}
    metadata = {**batch.metadata, **{name: alongside(batch._tensor(name), ids) for name in batch.columns.tokens}}
    fields = {
        "lengths": batch.lengths,
        "framework": framework,
        "dense_mask": batch.dense_mask,
        "max_seqlen": batch.max_seqlen,
        "columns": batch.columns,
        "cu_seqlens": alongside(batch.cu_seqlens, ids),
        "loss_weights": alongside(batch.loss_weights, ids),
        "kl": batch.kl and batch.kl._each(lambda each, name: alongside(each._tensor(name), ids), framework),
        "metadata": metadata,
        "masks": {name: given.get(name, alongside(mask, ids)) for name, mask in batch.masks.items()},
    }
    metadata.update({name: given[name] for name in batch.columns.tokens if name in given})
    fields |= {name: given[name] for name in given if name not in (*MASKS, *batch.columns.tokens)}
    return fields, made


def _rest_of(batch: TrainingBatch, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a mapping, and what the batch whose items it was knows of itself, not of its rows."""
    losing = [name for name in ("cu_seqlens", "loss_weights", "kl") if getattr(batch, name) is not None]
    losing += ["lengths"] if batch.lengths is not None and given.get("attention_mask") is None else []
    losing += ["pairs"] if batch.unit > 1 else []
    losing += [name for name in (*ROW_FACTS, *batch.columns.tokens, *batch.columns.samples) if name in batch.metadata]
    if losing:
        raise lost_rows(given["input_ids"], batch, losing)
    facts = {key: value for key, value in batch.metadata.items() if key not in (*SUMS, "sequence_length")}
    return {**given, "metadata": facts}, {}
