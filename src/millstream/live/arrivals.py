"""What is said of files while a folder is watched."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    """A file is there, and complete."""

    path: str
    size: int
    changed_ns: int

    @property
    def sort_key(self) -> tuple[str, str]:
        """Files come by their names, which say when they were made, whatever folder they lie in."""
        return os.path.basename(self.path), self.path


@dataclass(frozen=True, slots=True)
class Gone:
    """A file that was found is not there any more, or is not what it was."""

    path: str


@dataclass(frozen=True, slots=True)
class ScanComplete:
    """All files that were there at the start have been told; said once."""


Arrival = Found | Gone | ScanComplete
