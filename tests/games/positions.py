"""Positions of real boards as frames show them: planes, transforms and the entries of moves."""

from __future__ import annotations

from dataclasses import dataclass

import chess

from millstream.games import InputFormat
from millstream.games.frame import POLICY_INDEX

FLIP, MIRROR, TRANSPOSE = 1, 2, 4
PIECES = (chess.PAWN, chess.KNIGHT, chess.BISHOP, chess.ROOK, chess.QUEEN, chess.KING)
FULL = (1 << 64) - 1
REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))

CASTLING = ("castling_us_ooo", "castling_us_oo", "castling_them_ooo", "castling_them_oo")
ROOK_FILES = [layout for layout in InputFormat if layout != 1]
"""Formats whose castling bytes are the masks of rooks' files, and not 0 or 1."""
CANONICAL = [layout for layout in InputFormat if layout not in (1, 2)]
"""Formats that turn boards, and tell the file of en passant in the byte of who moves."""
REPEATS_ONLY = (InputFormat.CANONICAL_V2, InputFormat.CANONICAL_V2_ARMAGEDDON)
"""Formats whose history has only what is repeated."""

Sides = tuple[int, ...]
Castling = tuple[int | None, ...]


def flip_ranks(board: int) -> int:
    return int.from_bytes(board.to_bytes(8, "little"), "big")


def reverse_files(board: int) -> int:
    return int.from_bytes(board.to_bytes(8, "little").translate(REVERSED), "little")


def transform_square(square: int, transform: int) -> int:
    file, rank = square & 7, square >> 3
    if transform & FLIP:
        file = 7 - file
    if transform & MIRROR:
        rank = 7 - rank
    if transform & TRANSPOSE:
        file, rank = 7 - rank, 7 - file
    return rank * 8 + file


def transform_board(board: int, transform: int) -> int:
    if board in (0, FULL):
        return board
    return sum(1 << transform_square(square, transform) for square in chess.scan_forward(board))


def move_index(board: chess.Board, move: chess.Move, transform: int = 0) -> int:
    start, end = move.from_square, move.to_square
    if board.is_castling(move):
        rank, king_side = start & 56, (end & 7) > (start & 7)
        rooks = chess.scan_forward(board.castling_rights & chess.BB_RANKS[rank >> 3])
        end = next(rook for rook in rooks if (rook > start) == king_side)
    mirrored = 0 if board.turn else 56
    names = (chess.square_name(transform_square(square ^ mirrored, transform)) for square in (start, end))
    promoted = move.promotion if move.promotion != chess.KNIGHT else None
    return POLICY_INDEX["".join(names) + (chess.piece_symbol(promoted) if promoted else "")]


@dataclass
class Position:
    """A position as the side to move sees it, which plays up the board."""

    ours: Sides
    theirs: Sides
    castling: Castling  # files of rooks: ours on the queen's and the king's side, theirs
    en_passant: int | None
    rule50: int
    black: bool
    repeats: int = 0

    @staticmethod
    def of(board: chess.Board) -> Position:
        us, them = board.turn, not board.turn

        def seen(color: chess.Color) -> Sides:
            masks = (board.pieces_mask(piece, color) for piece in PIECES)
            return tuple(masks) if us else tuple(map(flip_ranks, masks))

        target = board.ep_square
        # Without a pawn beside it, the engine forgets that a pawn made two steps; it does not look at pins.
        takes = target is not None and board.attackers_mask(us, target) & board.pawns
        return Position(
            seen(us),
            seen(them),
            (*_rook_files(board, us), *_rook_files(board, them)),
            target & 7 if target is not None and takes else None,
            board.halfmove_clock,
            us == chess.BLACK,
        )

    def same(self, other: Position) -> bool:
        return (self.ours, self.theirs, self.castling, self.en_passant, self.black) == (
            other.ours,
            other.theirs,
            other.castling,
            other.en_passant,
            other.black,
        )

    def from_the_other_side(self) -> Position:
        ours, theirs = tuple(map(flip_ranks, self.theirs)), tuple(map(flip_ranks, self.ours))
        castling = self.castling[2:] + self.castling[:2]
        return Position(ours, theirs, castling, self.en_passant, self.rule50, self.black, self.repeats)


def _rook_files(board: chess.Board, color: chess.Color) -> Castling:
    rights = board.clean_castling_rights() & chess.BB_RANKS[0 if color else 7]
    files = [square & 7 for square in chess.scan_forward(rights)]
    king = (board.king(color) or 0) & 7
    return next((file for file in files if file < king), None), next((file for file in files if file > king), None)


def count_repeats(history: list[Position]) -> int:
    """How often the last position was there before."""
    last = history[-1]
    if last.rule50 < 4:
        return 0
    for before in history[-5::-2]:
        if before.same(last):
            return 1 + before.repeats
        if before.rule50 < 2:
            return 0
    return 0


def choose_transform(position: Position) -> int:
    """What makes equal positions look equal: the king on the right, below, and under the diagonal."""
    if any(file is not None for file in position.castling):
        return 0
    transform, king = 0, position.ours[5]
    if king & 0x0F0F0F0F0F0F0F0F:
        transform |= FLIP
    if position.ours[0] | position.theirs[0]:
        return transform
    if king & 0xFFFFFFFF00000000:
        transform |= MIRROR
    king = transform_board(king, transform)
    if king & 0xE0C08000:
        return transform | TRANSPOSE
    if king & 0x10204080:
        return transform | _on_the_diagonal(position, transform)
    return transform


def _on_the_diagonal(position: Position, transform: int) -> int:
    ours, theirs = sum(position.ours), sum(position.theirs)
    both = [mine | other for mine, other in zip(position.ours, position.theirs, strict=True)]
    for board in (ours | theirs, ours, both[5], both[4], both[3], both[1], both[2]):
        kept, turned = transform_board(board, transform), transform_board(board, transform | TRANSPOSE)
        if kept != turned:
            return TRANSPOSE if kept > turned else 0
    return 0


def planes_of(history: list[Position], layout: InputFormat) -> tuple[list[int], int]:
    """The 104 boards of the last position, a1 = bit 0, and the transform that was applied."""
    now = history[-1]
    planes: list[int] = []
    for back, position in enumerate(reversed(history)):
        seen = position.from_the_other_side() if back % 2 else position
        if layout in CANONICAL and (seen.castling != now.castling or (back and position.en_passant is not None)):
            break
        if not (layout in REPEATS_ONLY and back and position.repeats == 0):
            planes += [*seen.ours, *seen.theirs, FULL if position.repeats else 0]
        if len(planes) == 104 or (layout in CANONICAL and position.rule50 == 0):
            break
    planes += [0] * (104 - len(planes))
    transform = choose_transform(now) if layout in CANONICAL else 0
    return [transform_board(board, transform) for board in planes] if transform else planes, transform
