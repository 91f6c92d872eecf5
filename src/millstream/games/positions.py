"""Frames -> the positions that they show, whatever their input format, and the moves between them.

Every position is seen by its own mover, who plays up the board. `chess/positions.h` reads them. No move is generated:
two positions show what was played. `encode_positions` is the way back, `fen_of` and `draw_board` are for people.
Boards are 64-bit words, a1 in the lowest bit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from millstream import _core
from millstream.games.frame import FILES, InputFormat, as_bytes

PAWN, KNIGHT, BISHOP, ROOK, QUEEN, KING = range(6)
_TRANSFORM = 0x07
"""Bits of `invariance_info`, in canonical formats."""

POSITION = np.dtype(
    [
        ("pieces", "<u8", (12,)),
        ("castling", "i1", (4,)),
        ("en_passant", "i1"),
        ("rule50", "u1"),
        ("black", "?"),
        ("_padding", "u1"),
    ]
)
Entries = npt.NDArray[np.int16]
Squares = npt.NDArray[np.int8]

_BECOMES = ("", "n", "b", "r", "q")
_LETTERS = "PNBRQKpnbrqk"
Boards = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Positions:
    """The positions of a game.

    Args:
        records: One `POSITION` for each; the properties are its columns.
    """

    records: npt.NDArray[np.void]

    @staticmethod
    def of(fields: npt.NDArray[np.void]) -> Positions:
        """The positions of the frames of a game (`FRAME`), whose input formats are known ones."""
        return Positions(_core.positions_of(as_bytes(fields)).view(POSITION))

    @staticmethod
    def of_columns(
        pieces: npt.ArrayLike,
        *,
        black: npt.ArrayLike,
        castling: npt.ArrayLike = -1,
        en_passant: npt.ArrayLike = -1,
        rule50: npt.ArrayLike = 0,
    ) -> Positions:
        """Positions by the columns that the properties give."""
        records = np.zeros(len(np.asarray(pieces)), POSITION)
        records["pieces"], records["castling"], records["en_passant"] = pieces, castling, en_passant
        records["rule50"], records["black"] = rule50, black
        return Positions(records)

    def __len__(self) -> int:
        return len(self.records)

    @property
    def raw(self) -> npt.NDArray[np.uint8]:
        """What native functions take."""
        return as_bytes(self.records)

    @property
    def pieces(self) -> Boards:
        """(n, 12) boards: the mover's pawns, knights, bishops, rooks, queens and king, then the other player's."""
        return self.records["pieces"]

    @property
    def castling(self) -> npt.NDArray[np.int8]:
        """(n, 4) files of the rooks that may castle, -1 for none: the mover's a-side and h-side, the other's."""
        return self.records["castling"]

    @property
    def en_passant(self) -> npt.NDArray[np.int8]:
        """The file of a pawn that can be taken so, or -1."""
        return self.records["en_passant"]

    @property
    def rule50(self) -> npt.NDArray[np.uint8]:
        """Plies since a capture or a move of a pawn."""
        return self.records["rule50"]

    @property
    def black(self) -> npt.NDArray[np.bool_]:
        """Whether Black moves."""
        return self.records["black"]

    @cached_property
    def can_castle(self) -> npt.NDArray[np.bool_]:
        """Whether anybody may still castle."""
        can_castle: npt.NDArray[np.bool_] = self.castling.max(axis=1) >= 0
        return can_castle

    @cached_property
    def men(self) -> npt.NDArray[np.uint8]:
        """Pieces on the board, kings and pawns too."""
        return count(union(self.pieces))

    @cached_property
    def repeats(self) -> npt.NDArray[np.uint32]:
        """How often each position was there before, as far as the game is known."""
        return _core.count_repeats(self.raw)

    def repeated_since_zeroing(self, ply: int) -> bool:
        """Whether this position or one since the last capture or move of a pawn was there before."""
        first = max(0, ply + 1 - int(self.rule50[ply]))
        return bool(self.repeats[first : ply + 1].any())


def transforms_of(fields: npt.NDArray[np.void]) -> npt.NDArray[np.uint8]:
    """The transform of each frame; none where the format has none."""
    canonical = fields["input_format"] >= InputFormat.CANONICAL
    transforms: npt.NDArray[np.uint8] = np.where(canonical, fields["invariance_info"] & _TRANSFORM, 0).astype(np.uint8)
    return transforms


@dataclass(frozen=True, slots=True)
class Moves:
    """Moves in columns, as their own players see them.

    Args:
        origins: From which square; -1 where there is no move that leads from one position to the next.
        targets: To which square; to castle, the king takes its own rook.
        promotions: The piece that a pawn becomes (1 to 4: knight, bishop, rook, queen), or 0.
    """

    origins: Squares
    targets: Squares
    promotions: Squares

    @staticmethod
    def between(positions: Positions) -> Moves:
        """The moves of a game: one less than positions."""
        return Moves(*_core.moves_between(positions.raw))

    def __len__(self) -> int:
        return len(self.origins)

    @property
    def columns(self) -> tuple[Squares, Squares, Squares]:
        """What native functions take."""
        return self.origins, self.targets, self.promotions

    def entries(self, transforms: npt.NDArray[np.uint8], *, half_turn: bool = False) -> Entries:
        """The entry of each move in the policy of its frame, or -1 if there is none."""
        return _core.move_entries(self.columns, transforms, half_turn)

    def name(self, ply: int, *, black: bool) -> str:
        """A move on the board, as in `e2e4` or `a7b8q`.

        >>> move = Moves(*np.array([[48], [57], [4]], np.int8))
        >>> move.name(0, black=False), move.name(0, black=True)
        ('a7b8q', 'a2b1q')
        """
        squares = (int(column[ply]) ^ (56 if black else 0) for column in (self.origins, self.targets))
        return "".join(f"{FILES[square & 7]}{(square >> 3) + 1}" for square in squares) + _BECOMES[self.promotions[ply]]


def turn_entries(
    entries: npt.NDArray[np.integer], old: npt.NDArray[np.uint8], new: npt.NDArray[np.uint8], *, half_turn: bool = False
) -> Entries:
    """Entries of policies under one transform each -> the same moves under another, or -1 if that names no move.

    `half_turn` says that the old ones are by the later rule (`uses_half_turn`).
    """
    return _core.turn_entries(entries.astype(np.uint16), old, new, half_turn)


def encode_positions(fields: npt.NDArray[np.void], positions: Positions, layout: InputFormat) -> npt.NDArray[np.void]:
    """Frames that show the same positions in an input format; everything else of them stays.

    The history begins with the first position, since a frame does not tell what led there.
    """
    encoded = as_bytes(fields).copy()
    _core.encode_positions(encoded, positions.raw, layout)
    return encoded.view(fields.dtype)


def fen_of(positions: Positions, ply: int) -> str:
    """A position in Forsyth-Edwards notation; moves are counted from the first frame of the game."""
    board = draw_board(positions, ply).splitlines()[:8]
    ranks = "/".join(re.sub(r"\.+", lambda free: str(len(free[0])), line[3:].replace(" ", "")) for line in board)
    black, passed = bool(positions.black[ply]), int(positions.en_passant[ply])
    en_passant = f"{FILES[passed]}{3 if black else 6}" if passed >= 0 else "-"
    mover, quiet = "b" if black else "w", int(positions.rule50[ply])
    return f"{ranks} {mover} {castling_of(positions, ply)} {en_passant} {quiet} {ply // 2 + 1}"


def draw_board(positions: Positions, ply: int) -> str:
    """The board as text, White below."""
    squares = np.full(64, ".")
    for letter, board in zip(_LETTERS, positions.pieces[ply].tolist(), strict=True):
        squares[[square for square in range(64) if board >> square & 1]] = letter
    ranks = squares.reshape(8, 8)
    if positions.black[ply]:
        ranks = np.char.swapcase(ranks[::-1])
    lines = [f"{rank + 1}  {' '.join(ranks[rank])}" for rank in range(7, -1, -1)]
    return "\n".join([*lines, f"   {' '.join(FILES)}", ""])


def castling_of(positions: Positions, ply: int) -> str:
    """The rights as in a FEN, or the files of the rooks where they do not stand in the corners."""
    files = positions.castling[ply].tolist()
    own = {("q", 0): "q", ("k", 7): "k"}
    said = [own.get((side, file), FILES[file]) if file >= 0 else "" for side, file in zip("qkqk", files, strict=True)]
    mover, other = said[1] + said[0], said[3] + said[2]
    white, black = (other, mover) if positions.black[ply] else (mover, other)
    return white.upper() + black or "-"


def flip_ranks(boards: Boards) -> Boards:
    """Each board as the other player sees it.

    >>> flip_ranks(np.array([1], np.uint64)) == 1 << 56
    array([ True])
    """
    return boards.byteswap()


def union(boards: Boards) -> Boards:
    """Rows of boards -> all pieces of each row."""
    pieces: Boards = np.bitwise_or.reduce(boards, axis=-1)
    return pieces


def count(boards: Boards) -> npt.NDArray[np.uint8]:
    """Pieces of each board.

    >>> count(np.array([0, 7], np.uint64))
    array([0, 3], dtype=uint8)
    """
    bits = np.unpackbits(np.ascontiguousarray(boards, "<u8").view(np.uint8)).reshape(*boards.shape, 64)
    counts: npt.NDArray[np.uint8] = bits.sum(axis=-1, dtype=np.uint8)
    return counts
