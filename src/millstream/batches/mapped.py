"""A batch as a mapping of what a model takes: trainers move it, take it apart, and put it together again.

They rebuild a mapping as `type(batch)({name: f(tensor) for name, tensor in batch.items()})`, which names the model's
inputs alone. What else a batch knows is found by the keys: each batch has key objects of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self
from weakref import WeakValueDictionary

import numpy.typing as npt

from millstream.errors import BatchError
from millstream.tensors import backend, framework_for, framework_of

OWNERS: WeakValueDictionary[int, MappedBatch] = WeakValueDictionary()
"""The batch whose key an object is, by its id: a batch keeps its keys, so no other object has their ids."""


class MovableBatch:
    """What batches of every kind have in common: named tensors of one framework, that can go elsewhere."""

    __slots__ = ()
    framework: str

    def _first(self) -> Any:
        """The tensor whose rows and device are those of the batch."""
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
        """Convert to another framework ("numpy", "torch", "jax", "mlx"), or move to a device ("cuda:0").

        A device or a sharding may also be an object of its framework, as `torch.device` and jax's `NamedSharding` are.

        >>> from millstream import TrainingBatch
        >>> batch = TrainingBatch.empty(2, 3, framework="torch")
        >>> batch.to(device="cpu", non_blocking=True).metadata == batch.to("numpy").metadata
        True

        Args:
            target: The framework, or the device.
            dtype: What tensors of floating-point numbers become; ids and masks of whole numbers stay.
            non_blocking: Of torch: whether to return before the copies are made. By default yes, except to the
                processor, which would read what has not arrived.
            device: The device, by torch's name of it.
        """
        target = device if target is None else target
        if type(target).__name__ == "dtype":  # as torch takes it
            target, dtype = None, target
        framework = framework_for(target) or self.framework
        if framework != self.framework:
            make = backend(framework).from_numpy
            moved = self._each(lambda batch, name: make(batch._numpy(name)), framework)
            return moved.to(None if target == framework else target, dtype, non_blocking)
        target = None if target == framework else target
        if target is None and dtype is None:
            return self
        move, how = backend(framework).to_device, {} if non_blocking is None else {"non_blocking": non_blocking}
        return self._each(lambda batch, name: move(batch._tensor(name), target, dtype, **how), framework)

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
