"""A row ready for a store: ids, and how much each token counts in the loss."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from millstream.tokens import Ids


@dataclass(frozen=True, slots=True, eq=False)
class Supervised:
    """Tokens, each with the weight of its own loss (not that of the next token) and its message (-1: none).

    `straddlers` are tokens that lie in parts of different weight and got the smaller one; `truncated` says that tokens
    of the row are missing.
    """

    ids: Ids
    weights: NDArray[np.float32]
    messages: NDArray[np.int32]
    straddlers: int = 0
    truncated: bool = False

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def trained(self) -> int:
        """How many tokens are trained. The first cannot be: nothing comes before it."""
        return int(np.count_nonzero(self.weights[1:]))

    def part(self, start: int, stop: int) -> Supervised:
        """The tokens [start, stop) as a row of their own."""
        span = slice(start, stop)
        return replace(self, ids=self.ids[span], weights=self.weights[span], messages=self.messages[span])

    def cut(self, start: int, stop: int) -> Supervised:
        """The tokens [start, stop) as a row that is marked as truncated."""
        return replace(self.part(start, stop), truncated=True)
