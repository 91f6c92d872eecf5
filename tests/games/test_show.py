"""A position is shown as it stood on the board."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import chess
import numpy as np
import pytest

from games.chunks import KINDS, play, zipped
from millstream.games import InputFormat, position_facts, read_chunk, show_position


@pytest.mark.parametrize(("version", "layout"), KINDS)
def test_facts_of_a_position_are_those_of_its_board(version: int, layout: InputFormat) -> None:
    frames, fens = play(random.Random(3), version, layout, plies=24)
    game = read_chunk(zipped(frames))
    for ply in range(0, len(fens), 5):
        facts = json.loads(json.dumps(position_facts(game, ply)))
        board, shown = chess.Board(fens[ply], chess960=True), chess.Board(facts["fen"], chess960=True)
        assert shown.fen(en_passant="legal").split()[:5] == board.fen(en_passant="legal").split()[:5]
        assert sum(facts["policy"].values()) == pytest.approx(1, abs=1e-4)
        assert len(facts["policy"]) == board.legal_moves.count()
        assert (facts["version"], facts["input_format"]) == (version, layout.name.lower())
        assert facts["values"].keys() == {"result", "best", "played", "orig", "root", "st"}


def test_a_frame_that_makes_no_sense_is_shown_as_it_is() -> None:
    game = read_chunk(zipped(play(random.Random(3), 7, plies=6)[0]))
    fields, probabilities = game.fields.copy(), game.probabilities.copy()
    fields["played_idx"][2] = 60_000
    probabilities[int(game.starts[2])] = np.nan
    broken = replace(game, fields=fields, probabilities=probabilities)
    facts = json.loads(json.dumps(position_facts(broken, 2), allow_nan=False))
    assert facts["played"] == "?"
    assert list(facts["policy"].values()).count(None) == 1
    assert "played  ?, of" in str(show_position(broken, 2))
