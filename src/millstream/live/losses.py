"""What did not come since its file was gone, as the journal has it: so that it does not come when a run is made again.

A journal says what was lost, and not that a file was gone at some time: two runs over the same journal leave out the
same positions, whichever files each of them finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.errors import StoreError


@dataclass(frozen=True, slots=True)
class LostUse:
    """A use of a game that could not be read, or not to its end."""

    draw: int
    """The number of the draw."""
    name: str
    """The source."""
    game: int
    use: int
    came: int = 0
    """Chosen positions of it that came before."""
    unseen: bool = False
    """Nobody could look at it when it was drawn: what depends on it, as its weight, was not known either."""

    def to_json(self) -> dict[str, Any]:
        """As a line of the journal."""
        said = {"lost": self.name, "draw": self.draw, "game": self.game, "use": self.use, "came": self.came}
        return {**said, "unseen": self.unseen}


@dataclass(frozen=True, slots=True)
class LostSlots:
    """Positions of a source that waited in the reservoir when a run was gone on with, and could not be read again."""

    counter: int
    """That of the reservoir: what had left before came."""
    name: str
    first: int
    stop: int

    def to_json(self) -> dict[str, Any]:
        """As a line of the journal."""
        return {"lost": self.name, "counter": self.counter, "games": [self.first, self.stop]}


Loss = LostUse | LostSlots


def is_loss(said: Mapping[str, Any]) -> bool:
    """Whether a line of a journal says that something was lost."""
    return "lost" in said


def read_loss(said: Mapping[str, Any]) -> Loss:
    """Read a line back.

    >>> read_loss(LostUse(7, "a.tar", 3, use=1).to_json())
    LostUse(draw=7, name='a.tar', game=3, use=1, came=0, unseen=False)
    """
    try:
        if "draw" in said:
            draw, game, use, came = (int(said[key]) for key in ("draw", "game", "use", "came"))
            return LostUse(draw, str(said["lost"]), game, use, came, bool(said["unseen"]))
        first, stop = said["games"]
        return LostSlots(int(said["counter"]), str(said["lost"]), int(first), int(stop))
    except (KeyError, TypeError, ValueError):
        raise StoreError(f"this is no loss: {said}", hint="the journal belongs to something else") from None


class Losses:
    """All that was lost.

    >>> losses = Losses([LostUse(7, "a.tar", 3, use=1), LostSlots(100, "a.tar", 0, 8)])
    >>> losses.came(7), losses.came(8)
    (0, None)
    >>> losses.in_slots(np.array([3, 3, 8]), counter=99)
    array([False,  True, False])
    """

    def __init__(self, losses: Iterable[Loss] = ()) -> None:
        self._uses: dict[int, int] = {}
        self.unseen: set[int] = set()
        """Draws of games that nobody could look at."""
        self._slots: list[LostSlots] = []
        for loss in losses:
            self.add(loss)

    def add(self, loss: Loss) -> None:
        """Remember one more; of two that speak of one use, the later one holds."""
        if isinstance(loss, LostUse):
            self._uses[loss.draw] = loss.came
            (self.unseen.add if loss.unseen else self.unseen.discard)(loss.draw)
        else:
            self._slots.append(loss)

    def came(self, draw: int) -> int | None:
        """How many positions of a use came, if the others were lost."""
        return self._uses.get(draw)

    def in_slots(self, chunks: npt.NDArray[Any], counter: int) -> npt.NDArray[np.bool_]:
        """Which of the positions were lost that leave the reservoir one after the other, from a counter on."""
        lost, counters = np.zeros(len(chunks), bool), counter + np.arange(len(chunks))
        for loss in self._slots:
            lost |= (loss.first <= chunks) & (chunks < loss.stop) & (counters >= loss.counter)
        return lost

    @property
    def any_in_slots(self) -> bool:
        """Whether anything was lost in a reservoir."""
        return bool(self._slots)
