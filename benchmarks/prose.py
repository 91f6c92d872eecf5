"""Real documents that every machine has: the text files and long docstrings of the installed Python packages."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from millstream.sources import Record

SUFFIXES = {".md", ".rst", ".txt"}
SHORTEST, LONGEST = 400, 200_000


def documents(megabytes: float) -> list[str]:
    """Different documents, in the order of their paths, until there are so many megabytes of them."""
    paths = sysconfig.get_paths()
    seen: set[str] = set()
    found: list[str] = []
    size = 0
    library, packages = Path(paths["stdlib"]), Path(paths["purelib"])
    for text in chain(_docstrings(library), _files(packages), _docstrings(packages)):
        if SHORTEST <= len(text) <= LONGEST and text not in seen:
            seen.add(text)
            found.append(text)
            size += len(text.encode())
            if size >= megabytes * 1e6:
                break
    return found


def records(texts: list[str]) -> list[Record]:
    """Documents as a source would give them."""
    return [Record(text, "bench", row, 0, 0) for row, text in enumerate(texts)]


def _files(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in SUFFIXES or path.name == "METADATA":
            try:
                yield path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue


def _docstrings(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, SyntaxError, ValueError, RecursionError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield text
