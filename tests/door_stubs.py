"""The stubs of doors: what type checkers read in the place of the tables in `__init__.py`. `make stub` runs this.

The imports stand under `TYPE_CHECKING`, so that mypy does not order modules by them: doors name each other in circles.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"


def doors() -> list[Path]:
    """The `__init__.py` of every folder from which others take something."""
    return sorted(path for path in SOURCE.rglob("__init__.py") if _calls(path))


def package_of(door: Path) -> str:
    return ".".join(door.parent.relative_to(SOURCE).parts)


def homes_of(door: Path) -> dict[str, str]:
    """The names of a door's table, sorted as ruff sorts them, and the module where each lives."""
    (call,) = _calls(door)
    homes = ast.literal_eval(call.args[1])
    found = [(name, f"{package_of(door)}.{home}") for home, names in homes.items() for name in names.split()]
    return dict(sorted(found, key=lambda each: _order(each[0])))


def stub_of(door: Path) -> str:
    """What the stub beside a door says: the same names as plain imports."""
    homes = homes_of(door)
    lines = [f"    from {home} import {name} as {name}" for name, home in sorted(homes.items(), key=_place)]
    head = ["from typing import TYPE_CHECKING", "", "if TYPE_CHECKING:", *lines, ""]
    said = [f"{name}: str" for name in _assigned(door)]
    names = [f'    "{name}",' for name in homes]
    return "\n".join([*head, *said, *([""] if said else []), "__all__ = [", *names, "]", ""])


def _calls(door: Path) -> list[ast.Call]:
    nodes = ast.walk(ast.parse(door.read_text()))
    return [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy"]


def _assigned(door: Path) -> Iterator[str]:
    """What a door says itself: its version."""
    for node in ast.parse(door.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id


def _place(item: tuple[str, str]) -> tuple[str, int, str]:
    return item[1], _order(item[0])[0], item[0].lower()


def _order(name: str) -> tuple[int, str]:
    """Constants, then types, then functions."""
    return 0 if len(name) > 1 and name.isupper() else 1 if name[0].isupper() else 2, name


if __name__ == "__main__":
    for each in doors():
        each.with_suffix(".pyi").write_text(stub_of(each))
