"""Names of a package that are imported when they are first used.

A program pays for what it uses: one that reads stores does not load chess. The `__init__.py` of a folder is its door: a
table of what other folders may use, and where it lives. Type checkers read the stub beside it, which `make stub` writes
from the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package; `homes` gives the names in each of its modules.

    Modules of the package are found too, as if they had been imported. A name that is also a module of the package
    cannot be here, since importing that module puts it in the name's place.

    >>> find, names, public = lazy("millstream", {"errors": "StoreError LoaderError"})
    >>> public
    ['LoaderError', 'StoreError']
    >>> find("LoaderError"), find("tokens").__name__, "StoreError" in names()
    (<class 'millstream.errors.LoaderError'>, 'millstream.tokens', True)
    >>> find("nothing")
    Traceback (most recent call last):
    AttributeError: module 'millstream' has no attribute 'nothing'
    """
    home_of = {name: f"{package}.{home}" for home, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name in home_of:
            found = getattr(import_module(home_of[name]), name)
            vars(sys.modules[package])[name] = found  # the next time it is a plain attribute
            return found
        missing = AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        if name.startswith("_"):  # what inspect, doctest and copy look for in everything
            raise missing
        try:
            return import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{package}.{name}":
                raise
            raise missing from None

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return find, names, sorted(home_of)
