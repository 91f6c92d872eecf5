"""The moves that a policy names, in their order.

Every move is one of the player's who moves up the board, from a square to a square. A knight promotes under the plain
name, a queen, rook or bishop under a name of its own; to castle, the king takes its own rook.
"""

from __future__ import annotations

from collections.abc import Iterator

from millstream.games.frame import POLICY_SIZE

FILES = "abcdefgh"


def _plain() -> Iterator[str]:
    """From every square to every other that a queen or a knight reaches on an empty board."""
    squares = [(rank, file) for rank in range(8) for file in range(8)]
    for rank, file in squares:
        for to_rank, to_file in squares:
            up, aside = abs(to_rank - rank), abs(to_file - file)
            if (up or aside) and (up == 0 or aside == 0 or up == aside or up + aside == 3):
                yield f"{FILES[file]}{rank + 1}{FILES[to_file]}{to_rank + 1}"


def _promotions() -> Iterator[str]:
    for file in range(8):
        for to_file in range(max(file - 1, 0), min(file + 2, 8)):
            for piece in "qrb":
                yield f"{FILES[file]}7{FILES[to_file]}8{piece}"


POLICY_MOVES = (*_plain(), *_promotions())
"""The name of each entry of a policy, as in `e2e4` or `a7b8q`."""
POLICY_INDEX = {name: index for index, name in enumerate(POLICY_MOVES)}
"""The entry of each name."""

assert len(POLICY_MOVES) == POLICY_SIZE
