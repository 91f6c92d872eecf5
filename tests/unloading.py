"""A module as if it had never been imported: it is gone, and what doors keep of it too."""

from __future__ import annotations

import sys

import pytest

from door_stubs import doors, homes_of, package_of


def unload(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Unload a module, so that the next import of it runs it anew."""
    monkeypatch.delitem(sys.modules, module, raising=False)
    for door in doors():
        for name, home in homes_of(door).items():
            if home == module and (package := sys.modules.get(package_of(door))) is not None:
                monkeypatch.delattr(package, name, raising=False)
