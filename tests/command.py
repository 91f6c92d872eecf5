"""How tests run the command line."""

from __future__ import annotations

from typing import Protocol


class Run(Protocol):
    """Run the command in this process: (exit code, stdout, stderr)."""

    def __call__(self, *arguments: object) -> tuple[int, str, str]: ...
