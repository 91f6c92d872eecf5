"""Positions of a game -> the position part of its frames, in any input format. `Positions.of` is the way back."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from millstream.games.bitboards import (
    FLIP,
    FULL,
    MIRROR,
    TRANSPOSE,
    Boards,
    flip_ranks,
    reverse_file_mask,
    reverse_files,
    transform,
    transpose,
    union,
)
from millstream.games.frame import PLANES
from millstream.games.input_formats import InputFormat
from millstream.games.positions import (
    BISHOP,
    BLACK_MOVES,
    CASTLING,
    KING,
    KNIGHT,
    PAWN,
    QUEEN,
    ROOK,
    SLOT,
    TRANSFORM,
    Positions,
)

SLOTS = 8
_LEFT, _UPPER = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0xFFFFFFFF00000000)
_BEYOND, _DIAGONAL = np.uint64(0xE0C08000), np.uint64(0x10204080)
"""Where a king stands that is beyond the diagonal, or on it."""


def encode_positions(fields: npt.NDArray[np.void], positions: Positions, layout: InputFormat) -> npt.NDArray[np.void]:
    """Frames that show the same positions in an input format; everything else of them stays.

    The history begins with the first position, since a frame does not tell what led there.
    """
    encoded = fields.copy()
    transforms = choose_transforms(positions) if layout.canonical else np.zeros(len(positions), np.uint8)
    encoded["input_format"] = layout
    encoded["planes"] = reverse_files(transform(_planes(positions, layout), transforms))
    files = positions.castling
    masks = np.where(files < 0, 0, 1 << files.clip(0) if layout.rook_files else 1)
    for column, name in enumerate(CASTLING):
        encoded[name] = masks[:, column]
    kept = fields["invariance_info"] & ~np.uint8(BLACK_MOVES | TRANSFORM)
    if layout.canonical:
        passed = np.where(positions.en_passant < 0, 0, 1 << positions.en_passant.clip(0)).astype(np.uint8)
        encoded["side_to_move_or_enpassant"] = np.where(transforms & FLIP, reverse_file_mask(passed), passed)
        encoded["invariance_info"] = kept | transforms | positions.black * np.uint8(BLACK_MOVES)
    else:
        encoded["side_to_move_or_enpassant"] = positions.black
        encoded["invariance_info"] = kept
    return encoded


def _planes(positions: Positions, layout: InputFormat) -> Boards:
    """The planes of every frame before they are turned."""
    planes = np.zeros((len(positions), SLOTS, SLOT), np.uint64)
    rows, slots, shown = (np.array(column, np.intp) for column in zip(*_history(positions, layout), strict=True))
    as_other = np.concatenate([flip_ranks(positions.pieces[:, 6:]), flip_ranks(positions.pieces[:, :6])], axis=1)
    other_moves = ((rows - shown) % 2 == 1)[:, None]
    planes[rows, slots, :12] = np.where(other_moves, as_other[shown], positions.pieces[shown])
    planes[rows, slots, 12] = np.where(np.array(positions.repeats)[shown] > 0, FULL, np.uint64(0))
    if not layout.canonical:
        _show_first_push(planes, positions)
    return planes.reshape(len(positions), PLANES)


def _history(positions: Positions, layout: InputFormat) -> Iterator[tuple[int, int, int]]:
    """(frame, slot, position) of everything that frames show."""
    if not layout.canonical:
        for row in range(len(positions)):
            for back in range(min(SLOTS, row + 1)):
                yield row, back, row - back
        return
    rule50, repeats, passed = positions.rule50.tolist(), positions.repeats, positions.en_passant.tolist()
    rights = [tuple(files) for files in positions.castling.tolist()]
    for row in range(len(positions)):
        slot = 0
        for shown in range(row, -1, -1):
            seen = rights[shown] if (row - shown) % 2 == 0 else rights[shown][2:] + rights[shown][:2]
            if slot == SLOTS or seen != rights[row] or (shown < row and passed[shown] >= 0):
                break
            if not layout.repeats_only or slot == 0 or repeats[shown]:
                yield row, slot, shown
                slot += 1
            if rule50[shown] == 0:
                break


def _show_first_push(planes: Boards, positions: Positions) -> None:
    """A pawn that can be taken en passant in the first position is shown before its push, else nobody could tell."""
    file = int(positions.en_passant[0])
    if file < 0:
        return
    before = positions.pieces[0].copy()
    before[6 + PAWN] ^= np.uint64((1 << 32 | 1 << 48) << file)
    as_other = np.concatenate([flip_ranks(before[6:]), flip_ranks(before[:6])])
    for row in range(min(len(planes), SLOTS - 1)):
        planes[row, row + 1, :12] = as_other if row % 2 else before


def choose_transforms(positions: Positions) -> npt.NDArray[np.uint8]:
    """How canonical formats turn each position, so that equal ones look equal: the king to the right, where pawns allow
    also down and below the diagonal. A king on the diagonal leaves the choice to the other pieces."""
    pieces, king = positions.pieces, positions.pieces[:, KING : KING + 1]
    free = ~positions.can_castle
    pawnless = free & (pieces[:, PAWN] | pieces[:, 6 + PAWN] == 0)
    how = np.where(free & _stands(king, _LEFT), FLIP, 0).astype(np.uint8)
    how |= np.where(pawnless & _stands(king, _UPPER), MIRROR, 0).astype(np.uint8)
    king = transform(king, how)
    both = pieces[:, :6] | pieces[:, 6:]
    deciding = np.stack([union(both), union(pieces[:, :6]), *both.T[[KING, QUEEN, ROOK, KNIGHT, BISHOP]]], axis=1)
    across = _stands(king, _BEYOND) | (_stands(king, _DIAGONAL) & _is_bigger(transform(deciding, how)))
    return how | np.where(pawnless & across, TRANSPOSE, 0).astype(np.uint8)


def _stands(king: Boards, where: np.uint64) -> npt.NDArray[np.bool_]:
    on: npt.NDArray[np.bool_] = (king[:, 0] & where) != 0
    return on


def _is_bigger(boards: Boards) -> npt.NDArray[np.bool_]:
    """Whether the first board of each row that differs from itself transposed is bigger than that."""
    turned = transpose(boards)
    first = (boards != turned).argmax(axis=1)
    rows = np.arange(len(boards))
    bigger: npt.NDArray[np.bool_] = boards[rows, first] > turned[rows, first]
    return bigger
