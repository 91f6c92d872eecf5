"""Rescoring as its specification tells it, position by position: what the steps are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Known:
    """What is known of one position."""

    rule50: int
    repeated: bool
    wdl: int | None
    dtz: int | None
    mate: int | None = None
    """Plies to it; 0 in a draw."""


def spoiled(game: Sequence[Known], ply: int) -> bool:
    """Whether a position since the last zeroing move was there before."""
    return any(game[at].repeated for at in range(max(0, ply - game[ply].rule50 + 1), ply + 1))


def slow_results(results: Sequence[int], game: Sequence[Known]) -> list[int]:
    new, hits = list(results), set[int]()
    for ply in range(1, len(game)):
        value = game[ply].wdl
        if game[ply].rule50 != 0 or value is None:
            continue
        at = ply
        while at >= 0 and at not in hits:
            new[at] = value
            value, at = -value, at - 1
        hits.add(ply)
    for ply in range(1, len(game)):
        now = game[ply]
        if now.rule50 == 0 or now.wdl is None:
            continue
        stored, proven = new[ply], False
        new[ply] = stored if stored == now.wdl else 0
        if new[ply] != now.wdl and not spoiled(game, ply) and now.dtz is not None and now.rule50 + abs(now.dtz) < 99:
            new[ply], proven = now.wdl, True
        if stored != 0 and now.wdl != 0 and not proven and now.dtz is not None and now.rule50 + abs(now.dtz) > 101:
            new[ply] = 0
    return new


def slow_plies_left(plies_left: Sequence[float], game: Sequence[Known], bare: Sequence[bool]) -> list[float]:
    """`bare`: at most three pieces, no pawn, and no table of mates."""
    count = len(game)
    new = [left or count - ply for ply, left in enumerate(plies_left)]
    for ply in range(1, count):
        now = game[ply]
        if not bare[ply] or not now.wdl or now.dtz is None or spoiled(game, ply) or now.rule50 + abs(now.dtz) >= 99:
            continue
        new[ply] = abs(now.dtz)
        if now.rule50 == 0:
            for earlier in range(ply):
                new[earlier] = abs(now.dtz) + ply - earlier
    return new


def slow_ways_to_mate(plies_left: Sequence[float], results: Sequence[int], game: Sequence[Known]) -> list[float]:
    """After `slow_plies_left`."""
    new, hits = list(plies_left), set[int]()
    for ply in range(1, len(game)):
        mate, rule50 = game[ply].mate, game[ply].rule50
        if results[ply] == 0 or not mate or spoiled(game, ply) or (mate + rule50 > 99 and mate <= new[ply]):
            continue
        at = ply
        while at >= 0 and at not in hits:
            new[at] = mate + ply - at
            at -= 1
        hits.add(ply)
    return new


@dataclass
class Searched:
    """What a search said of one position, and what came of the game."""

    best: tuple[float, float, float]
    played_q: float
    proven: bool
    z: tuple[float, float, float]


def slow_deblunder(
    game: Sequence[Searched], threshold: float, width: float, last: int
) -> list[tuple[float, float, float]]:
    new, z, started = [frame.z for frame in game], game[-1].z, False
    for ply in range(last, -1, -1):
        frame = game[ply]
        best_q, played_q = frame.best[0], frame.played_q
        terminal = best_q > -1 and played_q < 1 and ((best_q == 1 and frame.proven) or played_q == -1)
        if terminal or best_q - played_q > threshold - width / 2:
            ratio = 1.0
            if width > 0 and not terminal:
                ratio = min(1, (best_q - played_q - threshold) / width + 0.5)
            q, d, m = ((1 - ratio) * old + ratio * best for old, best in zip(z, frame.best, strict=True))
            z, started = (q, d, m), True
        if started:
            new[ply] = z
        z = (-z[0], z[1], z[2] + 1)
    return new
