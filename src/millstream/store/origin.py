"""Which source file a document of a store came from: read out of the manifest, never guessed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class Origins:
    """Document -> source file, for stores whose manifest says how many documents each source gave.

    >>> sources = [{"path": "a.txt"}, {"path": "b.txt"}, {"path": "c.txt"}]
    >>> origins = Origins({"sources": sources, "documents": 5, "recipe": {"documents_per_source": [2, 0, 3]}})
    >>> origins.file_of(1), origins.file_of(2), Origins({"documents": 5}).file_of(1)
    ('a.txt', 'c.txt', None)
    """

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        self._paths = [source["path"] for source in manifest.get("sources") or ()]
        recipe = manifest.get("recipe")
        counts = recipe.get("documents_per_source") if isinstance(recipe, Mapping) else None
        self._ends = np.cumsum(_checked(counts), dtype=np.int64)
        self.known = len(self._ends) == len(self._paths) > 0 and int(self._ends[-1]) == manifest.get("documents")

    def file_of(self, document: int) -> str | None:
        """Name the source file of a document, or None where the manifest does not say."""
        if not self.known or not 0 <= document < int(self._ends[-1]):
            return None
        return str(self._paths[int(np.searchsorted(self._ends, document, side="right"))])


def _checked(counts: object) -> list[int]:
    if not isinstance(counts, list) or not all(type(count) is int and 0 <= count < 1 << 40 for count in counts):
        return []
    return counts
