"""Arrays of a batch -> tensors of a framework. One file per framework, imported when asked for.

A backend is a module with four functions: `share` (a batch's own memory, without a copy where the framework allows),
`from_numpy` (any array), `to_numpy` and `to_device`; and `ID_BYTES`, the width of ids that the framework likes best.
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache
from types import ModuleType

from millstream.errors import LoaderError, MissingExtra

FRAMEWORKS = ("torch", "numpy", "jax", "mlx")


def default_framework() -> str:
    """Torch if it is installed, else numpy."""
    return "torch" if importlib.util.find_spec("torch") is not None else "numpy"


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
