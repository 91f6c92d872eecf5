"""Endgame tables for tests: what the real ones said, pinned; or, for `make oracles`, the real ones themselves.

The tables, Syzygy's of up to 4 pieces and Gaviota's of 3, are no part of this project. `python -m games.endgame_tables`
asks them anew for everything that the tests want to know, and writes it down.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import chess
import chess.gaviota
import chess.syzygy
import pytest

from millstream.games.board import SyzygyTables
from millstream.games.gaviota import GaviotaTables

PINNED = Path(__file__).parent / "data"
LARGEST = 4
MATES = ("kqk", "krk", "kbk", "knk", "kpk")
ASKING = ("games/test_rescore_tables.py", "games/test_rescore_mates.py")

T = TypeVar("T")


class Answers(Generic[T]):
    """What tables said, by position; with a real one to ask, what it says is noted."""

    def __init__(self, known: dict[str, T], ask: Callable[[chess.Board], T] | None = None) -> None:
        self.known, self._ask = known, ask

    def of(self, board: chess.Board) -> T:
        key = " ".join(board.fen(en_passant="legal").split()[:4])
        if key not in self.known and self._ask is not None:
            self.known[key] = self._ask(board)
        if key not in self.known:
            pytest.fail(f"nobody wrote down what tables say of {key}: run `python -m games.endgame_tables` in tests/")
        return self.known[key]

    @classmethod
    def read(cls, name: str) -> Answers[T]:
        return cls(json.loads((PINNED / f"{name}.json").read_text()))

    def write(self, name: str) -> None:
        lines = [json.dumps(key) + ": " + json.dumps(answer) for key, answer in sorted(self.known.items())]
        (PINNED / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


class PinnedTables(chess.syzygy.Tablebase):
    """Syzygy's answers from a file."""

    def __init__(self, answers: Answers[list[int]]) -> None:
        super().__init__()
        self.answers = answers

    def probe_wdl(self, board: chess.Board) -> int:
        return self.answers.of(board)[0]

    def probe_dtz(self, board: chess.Board) -> int:
        return self.answers.of(board)[1]


class PinnedMates(chess.gaviota.PythonTablebase):
    """Gaviota's answers from a file, for three pieces."""

    def __init__(self, answers: Answers[int]) -> None:
        super().__init__()
        self.answers = answers
        self.available_tables = dict.fromkeys(MATES, "")

    def probe_dtm(self, board: chess.Board) -> int:
        return self.answers.of(board)


def syzygy_folder() -> str:
    """The folder of the real Syzygy tables; a test that needs them fails where they are not."""
    return _folder("syzygy", "KQvK.rtbw", "data/syzygy/regular")


def gaviota_folder() -> str:
    """The folder of the real Gaviota tables; a test that needs them fails where they are not."""
    return _folder("gaviota", "kqk.gtb.cp4", "data/gaviota")


def _folder(kind: str, file: str, public: str) -> str:
    variable = f"MILLSTREAM_{kind.upper()}"
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data" / kind
    folder = Path(os.environ.get(variable, beside))
    if not (folder / file).is_file():
        pytest.fail(
            f"no {kind.capitalize()} tables in {folder}: take the folder {public} of the public repository "
            f"niklasf/python-chess, and let {variable} name it"
        )
    return str(folder)


@cache
def tablebase() -> chess.syzygy.Tablebase:
    """What tests ask of Syzygy: pinned answers; real tables under MILLSTREAM_ORACLES."""
    if "MILLSTREAM_ORACLES" in os.environ:
        return chess.syzygy.open_tablebase(syzygy_folder())
    return PinnedTables(Answers[list[int]].read("syzygy"))


@cache
def matebase() -> chess.gaviota.PythonTablebase:
    """What tests ask of Gaviota, in the same way."""
    if "MILLSTREAM_ORACLES" in os.environ:
        return _real_mates()
    return PinnedMates(Answers[int].read("gaviota"))


def tables() -> SyzygyTables:
    """The same, as a rescorer takes them."""
    return SyzygyTables(tablebase(), LARGEST)


def mates() -> GaviotaTables:
    """The same, as a rescorer takes them."""
    return GaviotaTables(matebase())


def _real_mates() -> chess.gaviota.PythonTablebase:
    base = chess.gaviota.PythonTablebase()
    base.add_directory(gaviota_folder())
    return base


def main() -> None:
    """Run the tests that ask tables, and write down what the real ones say."""
    syzygy, gaviota = chess.syzygy.open_tablebase(syzygy_folder()), _real_mates()
    results = Answers[list[int]]({}, lambda board: [syzygy.probe_wdl(board), syzygy.probe_dtz(board)])
    ways = Answers[int]({}, gaviota.probe_dtm)

    class Recorder:
        def pytest_collection_modifyitems(self, items: list[Any]) -> None:
            from games import endgame_tables

            endgame_tables.tablebase = lambda: PinnedTables(results)  # type: ignore[assignment]
            endgame_tables.matebase = lambda: PinnedMates(ways)  # type: ignore[assignment]

    assert pytest.main(["-q", "-p", "no:cacheprovider", *ASKING], plugins=[Recorder()]) == 0
    results.write("syzygy")
    ways.write("gaviota")


if __name__ == "__main__":
    main()
