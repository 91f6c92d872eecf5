"""Gaviota endgame tables: how far away a mate is. Without a table the distance is unknown.

They are read by the package `chess`, which trusts what it reads; here a table that is cut or damaged is an error that
names its file.
"""

from __future__ import annotations

import logging
import lzma
import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import BinaryIO

import numpy as np

from millstream.errors import MissingExtra, RecipeError, SourceError
from millstream.games.board import board_at, folders_of
from millstream.games.positions import Positions, count

try:
    import chess
    from chess.gaviota import EGKEY, MissingTableError, PythonTablebase, Request
except ImportError as error:
    raise MissingExtra.of("chess", "chess") from error

_log = logging.getLogger("millstream.games")

_HEADER, _INDEX_END = 40, 32
"""Bytes before the index, and where among them it stands where the index ends."""


class GaviotaTables:
    """Those of the tables that there are; several threads may use them.

    Args:
        tables: What looks them up.
    """

    def __init__(self, tables: PythonTablebase) -> None:
        self._tables, self._lock = tables, Lock()
        self._names = frozenset(tables.available_tables)

    @classmethod
    def open(cls, paths: Sequence[str | Path]) -> GaviotaTables:
        """The tables in some folders; if some are missing, it is logged how many."""
        tables = _Files()
        for folder in folders_of(paths, ".gtb.cp4"):
            tables.add_directory(folder)
        for name in tables.available_tables.keys() - EGKEY.keys():
            del tables.available_tables[name]
        if not tables.available_tables:
            raise RecipeError(f"there are no Gaviota tables in {list(map(str, paths))}", hint="look for .gtb.cp4 files")
        for file in tables.available_tables.values():
            _check_whole(file)
        opened = cls(tables)
        if any(found < wanted for found, wanted in opened.coverage.values()):
            parts = [f"{found} of {wanted} with {men} pieces" for men, (found, wanted) in opened.coverage.items()]
            _log.warning("some Gaviota tables are missing: there are %s", ", ".join(parts))
        return opened

    @property
    def coverage(self) -> dict[int, tuple[int, int]]:
        """For each number of pieces, how many tables there are, and how many there could be."""
        found, wanted = Counter(map(len, self._names)), Counter(map(len, EGKEY))
        return {men: (found[men], wanted[men]) for men in sorted(wanted)}

    def of(self, positions: Positions) -> GaviotaProbe:
        """What they say of the positions of a game."""
        return GaviotaProbe(self, positions)

    def cover(self, pieces: Sequence[int]) -> bool:
        """Whether there is a table for so many pieces of each kind, one player's and then the other's (`Positions`)."""
        one, other = _letters(pieces[:6]), _letters(pieces[6:])
        return one + other in self._names or other + one in self._names

    def plies_to_mate(self, board: chess.Board) -> int | None:
        """Plies to mate in best play of either side; 0 in a draw. None if no table says."""
        if not board.is_valid():
            return None
        with self._lock:
            plies = self._tables.get_dtm(board)
        return None if plies is None else abs(plies)

    def close(self) -> None:
        """Close their files."""
        with self._lock:
            self._tables.close()


class GaviotaProbe:
    """What tables say of the positions of one game; only what is wanted is looked up."""

    def __init__(self, tables: GaviotaTables, positions: Positions) -> None:
        self._tables, self._positions = tables, positions
        self.in_reach = ~positions.can_castle & (positions.men <= max(tables.coverage))
        few = np.flatnonzero(self.in_reach)
        self.in_reach[few] = [tables.cover(pieces) for pieces in count(positions.pieces[few]).tolist()]

    def plies_to_mate(self, ply: int) -> int | None:
        """Plies to mate in best play of either side; 0 in a draw. None if no table says."""
        return self._tables.plies_to_mate(board_at(self._positions, ply)) if self.in_reach[ply] else None


class _Files(PythonTablebase):
    """The package asks to write to files that it only reads, and of a damaged one it may raise anything."""

    def _open_tablebase(self, req: Request) -> BinaryIO:
        name = req.egkey
        if name not in self.streams:
            self.streams[name] = Path(self.available_tables[name]).open("rb")  # noqa: SIM115
            self.egtb_loadindexes(name, self.streams[name])
        return self.streams[name]

    def _tb_probe(self, req: Request) -> int:
        try:
            return super()._tb_probe(req)
        except MissingTableError:
            raise
        except (OSError, EOFError, LookupError, ValueError, MemoryError, struct.error, lzma.LZMAError) as error:
            raise _unreadable(self.available_tables[req.egkey], str(error)) from error


def _letters(pieces: Sequence[int]) -> str:
    """A player's part of a table's name.

    >>> _letters([2, 0, 0, 1, 0, 1])
    'krpp'
    """
    return "".join(letter * number for letter, number in zip("kqrbnp", reversed(pieces), strict=True))


def _check_whole(file: str) -> None:
    """The header says where the index ends, and the last word of the index where the last block does."""
    try:
        with Path(file).open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(_INDEX_END)
            (index_end,) = struct.unpack("<I", stream.read(4))
            stream.seek(max(_HEADER, index_end - 4))
            (end,) = struct.unpack("<I", stream.read(4))
    except (OSError, struct.error) as error:
        raise _unreadable(file, str(error)) from error
    if not _HEADER < index_end <= end <= size:
        raise _unreadable(file, f"its index and its {size} bytes do not fit together")


def _unreadable(file: str, found: str) -> SourceError:
    return SourceError(f"{file}: this Gaviota table cannot be read: {found}", hint="it is cut or damaged: get it again")
