"""Where an entry stands in a file, so that a message can say it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.errors import RecipeError
from millstream.settings import yaml_module

Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Places:
    """The lines of a file's entries, as far as they are known.

    >>> Places("mill.toml").where(("stages", 2, "threads"))
    'mill.toml: stages[2].threads:'
    >>> Places("mill.yaml", {("stages", 2): 7}).where(("stages", 2, "threads"))
    'mill.yaml, line 7:'
    """

    name: str
    lines: Mapping[Place, int] = field(default_factory=dict)

    @classmethod
    def of_file(cls, path: Path) -> Places:
        """Look where things stand; a key that stands twice in one place is refused."""
        if path.suffix not in (".yaml", ".yml"):
            return cls(str(path))
        yaml = yaml_module()
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        lines: dict[Place, int] = {}
        for place, line in _lines(root, ()):
            if place in lines:
                raise RecipeError(f"{path}, line {line}: {place[-1]!r} stands here twice", hint="remove one of them")
            lines[place] = line
        return cls(str(path), lines)

    def where(self, place: Place) -> str:
        """The name of the file and the line of an entry, or of what it stands in; else its path."""
        for length in range(len(place), 0, -1):
            if line := self.lines.get(place[:length]):
                return f"{self.name}, line {line}:"
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
        return f"{self.name}: {path.lstrip('.')}:" if path else f"{self.name}:"


def _lines(node: Any, place: Place) -> Iterator[tuple[Place, int]]:
    if node is None:
        return
    if node.id == "mapping":
        for key, value in node.value:
            inner = (*place, str(key.value))
            yield inner, key.start_mark.line + 1
            yield from _lines(value, inner)
    elif node.id == "sequence":
        for number, value in enumerate(node.value):
            inner = (*place, number)
            yield inner, value.start_mark.line + 1
            yield from _lines(value, inner)
