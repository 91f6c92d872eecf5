"""What rows have besides tokens and labels: entries of a batch's metadata that are cut and joined with its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SUMS = ("rows", "tokens", "pairs", "loss_tokens")
"""Entries that add up when batches are joined."""
ROW_FACTS = ("source", "filler", "cut_tokens", "label", "kl_document", "media", "segments")
"""Entries that hold one value per row."""


@dataclass(frozen=True)
class Columns:
    """Which entries those are, besides those that hold one value per row.

    >>> Columns(samples=("name",)).cut({"segments": [2, 0, 1], "name": ["a", "b", "c"]}, 1, 3)
    {'segments': [0, 1], 'name': ['c']}
    """

    tokens: tuple[str, ...] = ()
    """Tensors of shape (rows, length, ...), aligned with the labels."""
    samples: tuple[str, ...] = ()
    """Lists with one value per sample: of packed rows, of which `segments` counts the samples, else of rows."""

    def cut(self, metadata: Mapping[str, Any], start: int, stop: int) -> dict[str, Any]:
        """The entries of some neighbouring rows; tensors are views."""
        cut = {name: metadata[name][start:stop] for name in (*ROW_FACTS, *self.tokens) if name in metadata}
        if (segments := metadata.get("segments")) is not None:
            start, stop = sum(segments[:start]), sum(segments[:stop])
        return {**cut, **{name: metadata[name][start:stop] for name in self.samples}}

    def joined(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
        """The lists of several batches, one behind the other."""
        names = (*ROW_FACTS, *self.samples)
        return {name: [value for part in parts for value in part[name]] for name in names if name in parts[0]}


NO_COLUMNS = Columns()
