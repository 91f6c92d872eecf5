"""A store in a run in lanes: use <-> sample. The uses go through its own order, epoch after epoch, for ever."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from millstream.loaders.member import Member
from millstream.order.phase import Recipe, first_phase

Numbers = npt.NDArray[np.int64]


class StoreOrder:
    """The order in which a source's samples are used, as a mixture of stores has it too."""

    def __init__(self, name: str, member: Member, seed: int) -> None:
        self.member, self.samples = member, member.share.samples
        windows = {} if member.windows is None else {name: member.windows}
        recipe = Recipe(seed, member.shape.length, global_rows=1, sources={name: replace(member.share, quota=1)})
        self._order, _ = first_phase(recipe).order(name, 0, seed, windows)

    def at(self, uses: Numbers) -> Numbers:
        """The sample of each use, counted from the beginning of the run."""
        epochs, places = np.divmod(uses, self.samples)
        found = np.empty(len(uses), np.uint64)
        for epoch in set(epochs.tolist()):
            here = epochs == epoch
            samples = np.empty(int(here.sum()), np.uint64)
            self._order.at(epoch, places[here].astype(np.uint64), samples)
            found[here] = samples
        return found.astype(np.int64)

    def uses_of(self, sample: int, uses: range) -> Iterator[int]:
        """Which of some uses are those of a sample: one in each epoch."""
        place = np.empty(1, np.uint64)
        for epoch in range(uses.start // self.samples, -(-uses.stop // self.samples)):
            self._order.inverse(epoch, np.array([sample], np.uint64), place)
            use = epoch * self.samples + int(place[0])
            if use in uses:
                yield use
