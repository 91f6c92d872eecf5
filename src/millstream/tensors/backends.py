"""Which framework a thing is of, and the backend of each framework.

A backend is a module with a few functions: `share` (a batch's own memory, without a copy where the framework allows),
`from_numpy` (any array), `to_numpy`, `to_device`, `place` (on the device of another tensor), `copied`, `floats` (of a
mask), `dtype_of` (a type of numbers; None for anything else) and `buffers` (address and bytes of the memory that a
tensor keeps); and `ID_BYTES`, the width of ids that the framework likes best.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from millstream.errors import LoaderError, MissingExtra

FRAMEWORKS = ("torch", "numpy", "jax", "mlx")


def default_framework() -> str:
    """Torch if it is installed, else numpy."""
    return "torch" if importlib.util.find_spec("torch") is not None else "numpy"


def inside_torch_worker() -> bool:
    """Whether this runs in a worker process of torch's DataLoader, whatever the framework of the batches."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def accept_as_torch_dataset(loader_class: type) -> None:
    """Let torch's DataLoader take our loaders, where a program uses torch, whatever the framework of the batches."""
    if sys.modules.get("torch") is not None:
        backend("torch").accept_as_dataset(loader_class)


def framework_of(thing: object) -> str | None:
    """The framework whose tensor this is, None if it is none.

    >>> framework_of(np.zeros(2)), framework_of([0, 0])
    ('numpy', None)
    """
    if isinstance(thing, np.ndarray):
        return "numpy"
    package = type(thing).__module__.partition(".")[0].removesuffix("lib")  # jax keeps its arrays in jaxlib
    return package if package in FRAMEWORKS and hasattr(thing, "nbytes") and hasattr(thing, "shape") else None


def first_row(part: Any, whole: Any) -> int | None:
    """The row of a tensor at which another one begins that is a view of some of its rows; None if it is none.

    >>> rows = np.zeros((5, 2))
    >>> first_row(rows[2:4], rows), first_row(rows[2:4].copy(), rows), first_row(rows[:, :1], rows)
    (2, None, None)
    """
    kind = framework_of(whole)
    if kind not in ("numpy", "torch") or framework_of(part) != kind or part.shape[1:] != whole.shape[1:]:
        return None
    if part.shape[0] == 0:
        return 0
    (here, step, row), (there, base_step, _) = backend(kind).layout(part), backend(kind).layout(whole)
    start, rest = divmod(here - there, row) if row and step == base_step == row and here and there else (-1, 0)
    return start if rest == 0 and 0 <= start <= whole.shape[0] - part.shape[0] else None


def framework_for(target: object) -> str | None:
    """The framework that a word names, or that a device or a sharding is an object of; None for words like "cuda:0".

    >>> framework_for("jax"), framework_for("cuda:0")
    ('jax', None)
    """
    if isinstance(target, str):
        return target if target in FRAMEWORKS else None
    package = type(target).__module__.partition(".")[0].removesuffix("lib")
    return package if package in ("torch", "jax", "mlx") else None


def is_dtype(thing: object) -> bool:
    """Whether something is a type of numbers, of any framework.

    >>> is_dtype(np.float16), is_dtype(np.dtype("int32")), is_dtype("cpu")
    (True, True, False)
    """
    if isinstance(thing, str):
        return False
    frameworks = ("numpy", *(name for name in FRAMEWORKS if (name if name != "mlx" else "mlx.core") in sys.modules))
    return any(backend(name).dtype_of(thing) is not None for name in frameworks)


def numbers_of(dtype: object) -> str:
    """What numbers a dtype is of: "float", "int", or, of any other kind, its name.

    >>> numbers_of(np.dtype("float16")), numbers_of(np.dtype("uint8")), numbers_of(np.dtype("bool"))
    ('float', 'int', 'bool')
    """
    name = str(dtype).rpartition(".")[2]  # "torch.int64"
    return next((kind for kind in ("float", "int") if kind in name), name)


def unknown_device(framework: str, device: object, hint: str) -> LoaderError:
    """Say that tensors cannot go there."""
    return LoaderError(
        f"{framework} arrays cannot be moved to {device!r}",
        hint=f"pass a device or a dtype of {framework}, or a framework ({', '.join(FRAMEWORKS)}); {hint}",
    )


@cache
def backend(framework: str) -> ModuleType:
    """Import the backend of a framework.

    >>> backend("numpy").NAME
    'numpy'
    """
    if framework not in FRAMEWORKS:
        raise LoaderError(
            f"unknown framework {framework!r}", hint=f"use one of {', '.join(FRAMEWORKS)}, or leave it out"
        )
    package = "mlx.core" if framework == "mlx" else framework
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise MissingExtra.of(framework, framework) from error
    return importlib.import_module(f"millstream.tensors.{framework}")
