"""Examples in docstrings -> fenced code, so that the API reference shows them as code and not as quotations."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import griffe


class FenceDoctests(griffe.Extension):
    """Puts a fence around each paragraph that begins with a prompt."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Fence the examples of a docstring."""
    paragraphs = groupby(text.splitlines(), key=lambda line: bool(line.strip()))
    return "\n".join(_paragraph(list(lines)) for _, lines in paragraphs)


def _paragraph(lines: list[str]) -> str:
    if lines[0].lstrip().startswith(">>>"):
        lines = ["```pycon", *lines, "```"]
    return "\n".join(lines)
