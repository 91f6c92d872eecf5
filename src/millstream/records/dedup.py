"""The two global steps: keys by which equal and similar records meet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millstream import _core
from millstream.errors import RecipeError
from millstream.records.processor import GlobalStep
from millstream.sources import RecordBlock


@dataclass(frozen=True)
class ExactDedup(GlobalStep):
    """Records with equal texts: the first stays. `folded` compares words only (see `fold`).

    The key is 128 bits wide: with 64, three false duplicates would be expected among 10^10 records.
    """

    name = "exact_dedup"
    key_words = 2

    folded: bool = False

    def keys(self, block: RecordBlock) -> NDArray[np.uint64]:
        """Two hashes of each text."""
        keys = np.zeros((len(block), 2), np.uint64)
        _core.exact_keys(block.text, block.ends, self.folded, keys.reshape(-1))
        return keys


@dataclass(frozen=True)
class MinhashDedup(GlobalStep):
    """Records whose sets of `words`-word runs are similar: the first stays.

    Similarity is Jaccard's, of folded texts. Two records with similarity s share a band, and so are duplicates, with
    probability 1 - (1 - s^rows)^bands: 0.77 at 0.75, 0.92 at 0.8, 0.9996 at 0.9 with the defaults, 0.05 at 0.5.
    """

    name = "minhash_dedup"

    words: int = 5
    bands: int = 14
    rows: int = 8
    seed: int = 1

    def __post_init__(self) -> None:
        if min(self.words, self.bands, self.rows) < 1 or self.seed < 0:
            raise RecipeError(
                "minhash_dedup: words, bands and rows start at 1, seed at 0", hint="the usual values are 5, 14, 8 and 1"
            )

    def keys(self, block: RecordBlock) -> NDArray[np.uint64]:
        """One key per band. 64 bits are enough here: a chance meeting is rarer than those the method itself has."""
        keys = np.zeros((len(block), self.bands), np.uint64)
        _core.minhash_keys(block.text, block.ends, self.words, self.bands, self.rows, self.seed, keys.reshape(-1))
        return keys
