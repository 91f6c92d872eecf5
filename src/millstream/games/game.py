"""A game on its way from its file to the frame shuffler."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.games.block import FrameBlock


@dataclass(frozen=True, slots=True)
class Game:
    """The frames of one game, or those of them that were chosen, and which use of which game this is."""

    chunk: int
    """Its number in this run."""
    use: int
    """How often it was used before."""
    source: str
    """The sort key of its file."""
    index: int
    """Its place in that file."""
    length: int
    """How many frames the whole game has."""
    frames: FrameBlock
    unpacked: bool = False
    """Its positions are chosen, and whatever changes or refuses games has seen them."""
    draw: int = 0
    """The number of the draw that asked for it."""
    skip: int = 0
    """Chosen positions at its front that were given out before a run was gone on with."""
    limit: int | None = None
    """Those behind so many were lost when the run was made first; None: none were."""
