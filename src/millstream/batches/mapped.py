"""A batch as a mapping of what a model takes: trainers move it, take it apart, and put it together again.

They rebuild a mapping as `type(batch)({name: f(tensor) for name, tensor in batch.items()})`, which names the model's
inputs alone. What else a batch knows is found by the keys: each batch has key objects of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Self
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from millstream.errors import BatchError
from millstream.tensors import FRAMEWORKS, backend, framework_for, framework_of, is_dtype, numbers_of

OWNERS: WeakValueDictionary[int, MappedBatch] = WeakValueDictionary()
"""The batch whose key an object is, by its id: a batch keeps its keys, so no other object has their ids."""


class MovableBatch:
    """What batches of every kind have in common: named tensors of one framework, that can go elsewhere."""

    __slots__ = ()
    framework: str

    def _first(self) -> Any:
        """The tensor whose rows and device are those of the batch."""
        raise NotImplementedError

    @property
    def unit(self) -> int:
        """Neighbouring rows that belong together."""
        raise NotImplementedError

    def rows_between(self, start: int, stop: int) -> Self:
        """Some neighbouring rows; tensors are views."""
        raise NotImplementedError

    def _with(self, field: Callable[[str], Any], framework: str) -> Self:
        """Make a batch of the same facts with every tensor made anew by `field`."""
        raise NotImplementedError

    def _each(self, field: Callable[[Any, str], Any], framework: str) -> Self:
        """Make one with every tensor made anew of batch and name."""
        return self._with(lambda name: field(self, name), framework)

    def to(
        self,
        target: Any = None,
        dtype: Any = None,
        non_blocking: bool | None = None,  # noqa: FBT001 - as torch takes it
        *,
        device: Any = None,
    ) -> Self:
        """Convert to another framework ("numpy", "torch", "jax", "mlx"), device ("cuda:0") or dtype (`torch.bfloat16`).

        A device or a sharding may also be an object of its framework, as `torch.device` and jax's `NamedSharding` are.

        >>> from millstream import TrainingBatch
        >>> batch = TrainingBatch.empty(2, 3, framework="torch")
        >>> batch.to(device="cpu", non_blocking=True).metadata == batch.to("numpy").metadata
        True
        >>> batch.to("numpy").to(np.int32).labels.dtype
        dtype('int32')

        Args:
            target: The framework, the device, or the dtype.
            dtype: What tensors of its kind become: one of floating-point numbers is for weights and advantages, one of
                whole numbers for ids, labels, positions and masks, which must fit. `cu_seqlens` stay as they are.
            non_blocking: Of torch: whether to return before the copies are made. By default yes, except to the
                processor, which would read what has not arrived.
            device: The device, by torch's name of it.
        """
        if is_dtype(target) and (dtype is None or isinstance(dtype, bool)):  # as torch takes them
            target, dtype, non_blocking = None, target, non_blocking if dtype is None else dtype
        named = target if isinstance(target, str) and target in FRAMEWORKS else None
        place = device if target is None or named else target
        if isinstance(place, bool):
            raise BatchError(f"{place} is no framework, device or dtype", hint="name it: non_blocking=True")
        if device is not None and place is not device:
            raise BatchError(f"a batch cannot go to {target!r} and to {device!r}", hint="pass one of them")
        framework = named or framework_for(place) or self.framework
        if framework != self.framework:
            make = backend(framework).from_numpy
            return self._each(lambda batch, name: make(batch._numpy(name)), framework).to(place, dtype, non_blocking)
        if dtype is not None:
            dtype = checked_dtype(framework, dtype, self._first())
        elif place is None:
            return self
        move, how = backend(framework).to_device, {} if non_blocking is None else {"non_blocking": non_blocking}

        def moved_field(batch: Any, name: str) -> Any:
            wanted = None if name == "cu_seqlens" else dtype
            if wanted is not None:
                check_fits(name, batch._tensor(name), wanted)
            return move(batch._tensor(name), place, wanted, **how)

        return self._each(moved_field, framework)

    def split(self, parts: int) -> list[Self]:
        """Cut the rows into `parts` neighbouring batches that differ by at most one row (or pair); tensors are views.

        >>> from millstream import TrainingBatch
        >>> [piece.metadata["rows"] for piece in TrainingBatch.empty(5, 2).split(2)]
        [3, 2]
        """
        if isinstance(parts, bool) or not isinstance(parts, int | np.integer) or parts < 1:
            raise BatchError(f"a batch is split into at least 1 part, not {parts!r}", hint="pass parts=1 or more")
        samples = int(self._first().shape[0]) // self.unit
        bounds = [part * (samples // parts) + min(part, samples % parts) for part in range(parts + 1)]
        return [self.rows_between(start * self.unit, stop * self.unit) for start, stop in pairwise(bounds)]

    def pin_memory(self, device: Any = None) -> Self:
        """Copy into memory that an accelerator reads by itself, as torch's `DataLoader(pin_memory=True)` asks for it.

        Batches of other frameworks are returned as they are.

        >>> from millstream import TrainingBatch
        >>> TrainingBatch.empty(2, 3).pin_memory().framework
        'numpy'
        """
        if self.framework != "torch":
            return self
        pin = backend("torch").pin
        return self._each(lambda batch, name: pin(batch._tensor(name), device), "torch")

    def copy(self) -> Self:
        """Copy everything into memory of its own, so that the loader may reuse its buffer."""
        copied = backend(self.framework).copied

        def field(batch: Any, name: str) -> Any:
            tensor = batch._tensor(name)
            return tensor if framework_of(tensor) is None else copied(tensor)  # trainers send shapes ahead of tensors

        return self._each(field, self.framework)

    def _beside(self, array: npt.NDArray[Any]) -> Any:
        """Make a tensor of an array, where the batch's other tensors are."""
        return backend(self.framework).place(array, self._first())

    def _numpy(self, name: str) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = backend(self.framework).to_numpy(self._tensor(name))
        return array

    def _tensor(self, name: str) -> Any:
        tensor = getattr(self, name)
        if tensor is None:
            raise BatchError("this batch was released", hint="use it before release(), or keep a batch.copy() of it")
        return tensor


def no_name(found: object, first: str) -> BatchError:
    """Say how tensors and rows are asked for."""
    return BatchError(
        f"a batch has no {found!r}: its tensors have names",
        hint=f"batch[{first!r}] is a tensor; batch.split(n) cuts the rows into n batches, "
        "and batch.rows_between(start, stop) gives some of them as one",
    )


def checked_dtype(framework: str, dtype: Any, first: Any) -> Any:
    """Insist on a dtype of a framework that tensors like the first one of a batch can have."""
    found = backend(framework).dtype_of(dtype)
    if found is None:
        raise BatchError(
            f"{dtype!r} is no dtype of {framework}",
            hint=f"pass one, like {framework}'s float16 or int32; batch.to(framework, dtype) converts to both",
        )
    numbers = numbers_of(found)
    if numbers not in ("float", "int") or (numbers == "int" and numbers_of(first.dtype) != "int"):
        raise BatchError(
            f"the numbers of a batch of {first.dtype} do not become {dtype!r}",
            hint="pass a floating-point type, or for ids and labels int32 or int64",
        )
    return found


def check_fits(name: str, tensor: Any, dtype: Any) -> None:
    """Insist that whole numbers stay what they are as another type of them."""
    if numbers_of(dtype) != "int" or numbers_of(tensor.dtype) != "int" or getattr(tensor, "is_meta", False):
        return
    most, given = (np.iinfo(str(each).rpartition(".")[2]) for each in (dtype, tensor.dtype))
    if (most.min <= given.min and given.max <= most.max) or 0 in tensor.shape:
        return
    least, largest = int(tensor.min()), int(tensor.max())
    if not most.min <= least <= largest <= most.max:
        wrong = least if least < most.min else largest
        raise BatchError(f"{name} hold {wrong}, which {dtype} cannot hold", hint="pass int32 or int64")


class MappedBatch(MovableBatch, Mapping[str, Any]):
    """A batch that is a mapping of what a model takes."""

    __slots__ = ("__weakref__", "_keys")
    _keys: dict[str, str]
    """The names of what a model takes: objects of this batch alone."""

    def _inputs(self) -> Iterable[str]:
        """The names of what a model takes, as far as it is there."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[str]:
        try:
            keys = self._keys
        except AttributeError:
            keys = self._keys = {}
        for name in self._inputs():
            if name not in keys:
                keys[name] = name.encode().decode()  # equal, and another object
                OWNERS[id(keys[name])] = self
            yield keys[name]

    def __len__(self) -> int:
        """How many inputs of a model there are: a mapping's length. `metadata["rows"]` counts the rows."""
        return sum(1 for _ in self._inputs())

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)
