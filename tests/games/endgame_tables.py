"""Endgame tables for tests: what the real ones said, pinned; or, for `make oracles`, the real ones themselves.

The tables with up to 4 pieces are no part of this project. `python -m games.endgame_tables` asks them anew for
everything that the tests want to know, and writes it down.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import chess
import chess.syzygy
import pytest

from millstream.games.board import SyzygyTables

VARIABLE = "MILLSTREAM_SYZYGY"
PINNED = Path(__file__).parent / "data" / "syzygy.json"
LARGEST = 4


class PinnedTables(chess.syzygy.Tablebase):
    """Answers from a file, by position; with real tables beside it, asks them first and notes what they say."""

    def __init__(self, answers: dict[str, list[int]], real: chess.syzygy.Tablebase | None = None) -> None:
        super().__init__()
        self.answers, self._real = answers, real

    def probe_wdl(self, board: chess.Board) -> int:
        return self._answer(board)[0]

    def probe_dtz(self, board: chess.Board) -> int:
        return self._answer(board)[1]

    def _answer(self, board: chess.Board) -> list[int]:
        key = " ".join(board.fen(en_passant="legal").split()[:4])
        if key not in self.answers and self._real is not None:
            self.answers[key] = [self._real.probe_wdl(board), self._real.probe_dtz(board)]
        if key not in self.answers:
            pytest.fail(f"nobody wrote down what tables say of {key}: run `python -m games.endgame_tables` in tests/")
        return self.answers[key]


def syzygy_folder() -> str:
    """The folder of the real tables; a test that needs them fails where they are not."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "syzygy"
    folder = Path(os.environ.get(VARIABLE, beside))
    if not (folder / "KQvK.rtbw").is_file():
        pytest.fail(
            f"no Syzygy tables in {folder}: take the folder data/syzygy/regular of the public repository "
            f"niklasf/python-chess, and let {VARIABLE} name it"
        )
    return str(folder)


@cache
def tablebase() -> chess.syzygy.Tablebase:
    """What tests ask: pinned answers; real tables under MILLSTREAM_ORACLES."""
    if "MILLSTREAM_ORACLES" in os.environ:
        return chess.syzygy.open_tablebase(syzygy_folder())
    return PinnedTables(json.loads(PINNED.read_text()))


def tables() -> SyzygyTables:
    """The same, as a rescorer takes them."""
    return SyzygyTables(tablebase(), LARGEST)


def main() -> None:
    """Run the tests that ask tables, and write down what the real ones say."""
    recording = PinnedTables({}, chess.syzygy.open_tablebase(syzygy_folder()))

    class Recorder:
        def pytest_collection_modifyitems(self, items: list[Any]) -> None:
            from games import endgame_tables

            endgame_tables.tablebase = lambda: recording  # type: ignore[assignment]

    assert pytest.main(["-q", "-p", "no:cacheprovider", "games/test_rescore_tables.py"], plugins=[Recorder()]) == 0
    PINNED.parent.mkdir(exist_ok=True)
    lines = [json.dumps(key) + ": " + json.dumps(answer) for key, answer in sorted(recording.answers.items())]
    PINNED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
