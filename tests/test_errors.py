"""An error says where, what was found and what to try."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import millstream
from millstream import errors
from millstream.errors import LoaderError
from millstream.loaders.settings import positive

SOURCES = Path(millstream.__file__).parent
NAMES = {name for name, each in vars(errors).items() if inspect.isclass(each)} - {"MissingExtra"}


def without_hint(path: Path) -> Iterator[str]:
    """The lines of a file that make an error of ours without a hint."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in NAMES:
            continue
        third = node.func.id == "RecordError" and len(node.args) > 2
        if not third and not any(keyword.arg == "hint" for keyword in node.keywords):
            yield f"{path.relative_to(SOURCES)}:{node.lineno}"


@pytest.mark.parametrize("part", sorted(path.name for path in SOURCES.iterdir() if path.suffix in ("", ".py")))
def test_every_error_that_is_raised_has_a_hint(part: str) -> None:
    files = [SOURCES / part] if part.endswith(".py") else sorted((SOURCES / part).rglob("*.py"))

    assert [line for file in files for line in without_hint(file)] == []


def test_a_number_below_1_is_answered_with_a_hint_about_that_very_argument() -> None:
    hints = set()
    names = ["batch_size", "chunk_size", "threads", "prefetch", "memory_budget", "epoch_size", "mix_block"]
    for name in names:
        with pytest.raises(LoaderError, match=f"{name} must be an integer of at least 1") as caught:
            positive(name, 0)
        hints.add(caught.value.hint)

    assert len(hints) == len(names)
