"""Chunks of self-play games as Leela Chess Zero writes them, made from random legal games.

    PYTHONPATH=tests python -m games.chunks --out data --games 100 --per-tar 50

Positions, legal moves, history, castling and repetitions are real; visits and evaluations are drawn. Everything follows
from the seed. Needs the package `chess`.
"""

from __future__ import annotations

import argparse
import gzip
import io
import math
import random
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import chess
import numpy as np
import numpy.typing as npt

from games.positions import (
    CANONICAL,
    CASTLING,
    FLIP,
    REVERSED,
    ROOK_FILES,
    Position,
    count_repeats,
    move_index,
    planes_of,
    reverse_files,
)
from millstream.games import InputFormat

Frames = npt.NDArray[np.void]
Field = tuple[str, str] | tuple[str, str, int]

_BODY: list[Field] = [
    ("probabilities", "<f4", 1858),
    ("planes", "<u8", 104),
    *((name, "u1") for name in ("castling_us_ooo", "castling_us_oo", "castling_them_ooo", "castling_them_oo")),
    *((name, "u1") for name in ("side_to_move_or_enpassant", "rule50_count", "invariance_info")),
    ("result", "i1"),
]
_V4: list[Field] = [(name, "<f4") for name in ("root_q", "best_q", "root_d", "best_d")]
_V5: list[Field] = [(name, "<f4") for name in ("root_m", "best_m", "plies_left")]
_V6: list[Field] = [
    *((name, "<f4") for name in ("result_q", "result_d", "played_q", "played_d", "played_m")),
    *((name, "<f4") for name in ("orig_q", "orig_d", "orig_m")),
    ("visits", "<u4"),
    ("played_idx", "<u2"),
    ("best_idx", "<u2"),
    ("policy_kld", "<f4"),
    ("q_st", "<f4"),
]
_V7: list[Field] = [("d_st", "<f4"), ("opp_played_idx", "<u2"), ("next_played_idx", "<u2"), ("reserved", "<f4", 8)]
_OLD: list[Field] = [("version", "<u4"), *_BODY]
_NEW: list[Field] = [("version", "<u4"), ("input_format", "<u4"), *_BODY]

LAYOUTS = {
    3: np.dtype(_OLD),
    4: np.dtype(_OLD + _V4),
    5: np.dtype(_NEW + _V4 + _V5),
    6: np.dtype(_NEW + _V4 + _V5 + _V6),
    7: np.dtype(_NEW + _V4 + _V5 + _V6 + _V7),
}
"""Each version as it lies in a file."""

KINDS = [(version, layout) for version in LAYOUTS for layout in InputFormat if version > 4 or layout == 1]
"""Every version with every input format that it can have."""

_VALUES = {chess.PAWN: 1, chess.KNIGHT: 3, chess.BISHOP: 3, chess.ROOK: 5, chess.QUEEN: 9}


def play(
    rng: random.Random, version: int = 6, layout: InputFormat = InputFormat.CLASSICAL, plies: int = 160, fen: str = ""
) -> tuple[Frames, list[str]]:
    """One game of at most so many random moves: its frames, and the position of each."""
    board = chess.Board(fen or chess.STARTING_FEN, chess960=True)
    frames, fens, history = np.zeros(plies, LAYOUTS[7]), list[str](), list[Position]()
    while not _is_over(board) and len(history) < plies:
        frame = frames[len(history)]
        history.append(Position.of(board))
        history[-1].repeats = count_repeats(history)
        fens.append(board.fen(en_passant="fen"))
        board.push(_search(frame, board, _show(frame, history, layout), rng))
    frames = frames[: len(history)]
    frames["version"], frames["input_format"] = version, layout
    if not _is_over(board):
        frames["invariance_info"] |= 0b110000  # adjudicated, too long
    outcome = board.outcome()
    _end(frames, history, outcome.winner if outcome else None)
    return _as_version(frames, version), fens


def _is_over(board: chess.Board) -> bool:
    return board.outcome() is not None or board.halfmove_clock >= 100 or board.is_repetition(3)


def _show(frame: np.void, history: list[Position], layout: InputFormat) -> int:
    """Write the position into its frame, and give the transform."""
    now = history[-1]
    planes, transform = planes_of(history, layout)
    frame["planes"] = [reverse_files(board) for board in planes]
    for name, file in zip(CASTLING, now.castling, strict=True):
        frame[name] = 0 if file is None else 1 << file if layout in ROOK_FILES else 1
    frame["rule50_count"] = now.rule50
    if layout in CANONICAL:
        mask = 0 if now.en_passant is None else 1 << now.en_passant
        frame["side_to_move_or_enpassant"] = REVERSED[mask] if transform & FLIP else mask
        frame["invariance_info"] = transform | now.black << 7
    else:
        frame["side_to_move_or_enpassant"] = now.black
    return transform


def _search(frame: np.void, board: chess.Board, transform: int, rng: random.Random) -> chess.Move:
    """Write what a search may have found into the frame, and give the move that is played."""
    legal = list(board.legal_moves)
    entries = [move_index(board, move, transform) for move in legal]
    prior = np.array([rng.expovariate(1) ** 2 + 0.02 for _ in legal])
    visits = (prior**1.4 * rng.randint(400, 800) / (prior**1.4).sum()).astype(int)
    best = int(visits.argmax())
    visits[best] += 1
    share = visits / visits.sum()
    frame["probabilities"] = -1
    frame["probabilities"][entries] = share
    played = rng.choice(np.flatnonzero(visits).tolist())
    seen = share > 0
    kld = float((share[seen] * np.log(share[seen] / (prior[seen] / prior.sum()))).sum())

    q, d = _evaluate(board, rng)
    loss = 0 if played == best else rng.expovariate(12)
    found = {
        "visits": visits.sum() + 1,
        "policy_kld": max(kld, 0) + np.finfo(np.float32).tiny,
        "best_idx": entries[best],
        "played_idx": entries[played],
        "root_q": q,
        "best_q": min(q + 0.01, 1 - d),
        "played_q": max(q + 0.01 - loss, d - 1),
        "orig_q": max(-1, min(1, q + rng.gauss(0, 0.05))),
    }
    found |= {f"{which}_d": d for which in ("root", "best", "played", "orig")}
    found |= {f"{which}_m": rng.uniform(5, 120) for which in ("root", "best", "played", "orig")}
    if rng.random() < 0.04:  # the engine's cache did not have the position
        found |= {f"orig_{letter}": math.nan for letter in "qdm"}
    for name, value in found.items():
        frame[name] = value
    return legal[played]


def _evaluate(board: chess.Board, rng: random.Random) -> tuple[float, float]:
    """(q, d) for the side to move: its pieces against the others, and noise."""

    def worth(color: chess.Color) -> int:
        return sum(value * board.pieces_mask(piece, color).bit_count() for piece, value in _VALUES.items())

    q = math.tanh((worth(board.turn) - worth(not board.turn)) / 7 + rng.gauss(0, 0.08)) * 0.98
    return q, (1 - abs(q)) * rng.uniform(0.2, 0.8)


def _end(frames: Frames, history: Sequence[Position], winner: chess.Color | None, theta: float = 5 / 6) -> None:
    """Write what is known only when the game is over."""
    count, q, d = len(frames), 0.0, 0.0
    for i in reversed(range(count)):
        frame, keep = frames[i], theta if i + 1 < count else 0
        frame["result_q"] = 0 if winner is None else 1 if history[i].black == (winner == chess.BLACK) else -1
        frame["result_d"] = winner is None
        frame["plies_left"] = frames["best_m"][-1] + (count - 1 - i)
        q, d = keep * -q + (1 - keep) * float(frame["root_q"]), keep * d + (1 - keep) * float(frame["root_d"])
        frame["q_st"], frame["d_st"] = q, d
    played = np.append(frames["played_idx"], [65535, 65535])
    frames["opp_played_idx"], frames["next_played_idx"] = played[1:-1], played[2:]


def _as_version(frames: Frames, version: int) -> Frames:
    """The same frames in an older version, which has fewer fields and the result in one byte."""
    old = np.zeros(len(frames), LAYOUTS[version])
    for name in old.dtype.names or ():
        old[name] = frames[name]
    if version == 6:
        old["q_st"] = 0
    if version < 6:
        old["result"] = frames["result_q"]
    if version < 5:
        old["invariance_info"] = 0
    return old


def zipped(frames: Frames) -> bytes:
    """A chunk as it lies in a .gz file."""
    return gzip.compress(frames.tobytes(), 6, mtime=0)


def games(count: int, *, seed: int = 0, first: int = 0, **how: object) -> Iterable[tuple[str, Frames]]:
    """Names and frames of so many games, of which each has its own seed."""
    for number in range(first, first + count):
        yield f"training.{number}.gz", play(random.Random(seed * 1_000_003 + number), **how)[0]  # type: ignore[arg-type]


def write_tar(path: Path, members: Iterable[tuple[str, bytes]]) -> None:
    """An archive as the public ones are: a folder, a licence, and a member for each game."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        folder = tarfile.TarInfo(path.stem)
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(folder)
        for name, data in [("LICENSE", b"Made by a script for tests. No rights reserved.\n"), *members]:
            entry = tarfile.TarInfo(f"{path.stem}/{name}")
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write chunks of random games.")
    parser.add_argument("--out", type=Path, default=Path("chunks"))
    parser.add_argument("--games", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plies", type=int, default=160)
    parser.add_argument("--version", type=int, default=6, choices=LAYOUTS)
    parser.add_argument("--layout", type=int, default=1, choices=[int(layout) for layout in InputFormat])
    parser.add_argument("--per-tar", type=int, default=0, help="games of an archive; 0: a .gz file for each game")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    how = {"version": given.version, "layout": InputFormat(given.layout), "plies": given.plies}
    for first in range(0, given.games, given.per_tar or 1):
        count = min(given.per_tar or 1, given.games - first)
        made = [(name, zipped(frames)) for name, frames in games(count, seed=given.seed, first=first, **how)]
        if given.per_tar:
            number = first // given.per_tar
            write_tar(given.out / f"training-run1-synthetic-20260101-{number:04d}.tar", made)
        else:
            given.out.joinpath(made[0][0]).write_bytes(made[0][1])


if __name__ == "__main__":
    main()
