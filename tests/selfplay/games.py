"""Games for the stages of the live road."""

from __future__ import annotations

from collections.abc import Iterable

from games.blocks import game as frames
from millstream.games import Game, InputFormat
from millstream.stages import Queue, Stage


def a_game(chunk: int, layout: InputFormat = InputFormat.CLASSICAL, plies: int = 20) -> Game:
    """A game, whose seed is its number."""
    block = frames(chunk, layout, plies).of_game(chunk, 0)
    return Game(chunk, 0, "training-run1.tar", chunk, len(block), block)


def through(stage: Stage[Game], source: Queue[Game], given: Iterable[Game]) -> list[Game]:
    """What a stage makes of games."""
    stage.start()
    with source.producer() as producer:
        producer.put_many(list(given))
    passed = list(stage.output())
    assert stage.join(timeout_s=10)
    return passed
