"""What is said of files while a folder is watched."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

SortKey = tuple[str, str, str]
_NUMBER = re.compile("0*([0-9]+)")


def sort_key(path: str) -> SortKey:
    """What files are sorted by: their names, which say when they were made, whatever folder they lie in. Numbers in
    names compare as such, so that `training.8.gz` is older than `training.40.gz`.

    >>> sorted(["b/1.tar", "a/10.tar", "a/2.tar", "a/1.tar", "a/1-b.tar"], key=sort_key)
    ['a/1-b.tar', 'a/1.tar', 'b/1.tar', 'a/2.tar', 'a/10.tar']
    """
    name = os.path.basename(path)
    return _NUMBER.sub(_by_size, name), name, path


def _by_size(number: re.Match[str]) -> str:
    """A number behind that of its digits; to whatever is no number it compares as a digit does."""
    return f"0{chr(len(number[1]))}{number[1]}"


@dataclass(frozen=True, slots=True)
class Found:
    """A file is there, and complete."""

    path: str
    size: int
    changed_ns: int

    @property
    def sort_key(self) -> SortKey:
        """Files come by their names."""
        return sort_key(self.path)


@dataclass(frozen=True, slots=True)
class Gone:
    """A file that was found is not there any more, or is not what it was."""

    path: str


@dataclass(frozen=True, slots=True)
class ScanComplete:
    """All files that were there at the start have been told; said once."""


Arrival = Found | Gone | ScanComplete
