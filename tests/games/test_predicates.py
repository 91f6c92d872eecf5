"""Users say which frames and games they want; what they say wrong is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from games.blocks import game
from millstream.errors import RecipeError
from millstream.games import FRAME, FieldMatch, Game, filter_facts, reason_against


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        (3, [False, True, False, False]),
        ((1, 3), [True, True, False, False]),
        ([None, 3], [True, True, False, False]),
        ((4, None), [False, False, True, False]),
        ({1, 5}, [True, False, True, False]),
    ],
)
def test_a_field_matches_a_value_a_range_or_a_set_and_what_is_not_a_number_never(
    wanted: object, kept: list[bool]
) -> None:
    fields = np.zeros(4, FRAME)
    fields["orig_q"] = [1, 3, 5, np.nan]
    assert FieldMatch({"orig_q": wanted})(fields)["orig_q does not match"].tolist() == kept


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("planes", 1),
        ("best", 1),
        ("_padding", 0),
        ("best_q", (1, 2, 3)),
        ("visits", (5, 1)),
        ("visits", (None, None)),
        ("visits", set()),
        ("visits", "a"),
        ("visits", None),
        ("visits", {None}),
        ("visits", (0, "a")),
        ("best_q", (float("nan"), 1)),
    ],
)
def test_what_cannot_match_is_told(name: str, wanted: object) -> None:
    with pytest.raises(RecipeError):
        FieldMatch({name: wanted})


def test_a_predicate_drops_a_game_under_its_name_or_for_a_reason() -> None:
    def long(game: Game) -> bool:
        return game.length > 40

    short = Game(0, 0, "a.tar", 0, 20, game(plies=20))
    assert reason_against(long, short) == "long"
    assert reason_against(lambda game: f"length {game.length}", short) == "length 20"
    assert reason_against(lambda game: True, short) is None


@pytest.mark.parametrize("yes", [True, np.True_, 1, np.int8(1)])
def test_what_is_as_good_as_true_or_false_counts_as_such(yes: Any) -> None:
    some = Game(0, 0, "a.tar", 0, 20, game(plies=20))
    assert reason_against(lambda game: yes, some) is None
    assert reason_against(lambda game: type(yes)(0), some) == "<lambda>"


@pytest.mark.parametrize("answer", [None, "", [], 1.0, np.ones(2, bool)])
def test_a_predicate_that_says_neither_yes_nor_no_is_named_with_what_it_says(answer: Any) -> None:
    def forgetful(game: Game) -> Any:
        return answer

    with pytest.raises(RecipeError, match="the predicate forgetful says"):
        reason_against(forgetful, Game(0, 0, "a.tar", 0, 20, game(plies=20)))


@dataclass
class LongerThan:
    plies: int

    def __call__(self, game: Game) -> bool:
        return game.length > self.plies


def longer_than(plies: int, game: Game) -> bool:
    return game.length > plies


def test_what_is_wanted_is_known_again_in_another_process() -> None:
    def made_anew() -> Callable[[Game], bool]:  # as in another process: the same name at another address
        def long(game: Game) -> bool:
            return game.length > 40

        return long

    first, second = (
        filter_facts(
            "moves", {"visits": (1, None), "version": versions}, [long, partial(longer_than, 3), LongerThan(5)]
        )
        for long, versions in ((made_anew(), {0, 8}), (made_anew(), {8, np.int64(0)}))
    )
    assert first == second == json.loads(json.dumps(first))
    assert filter_facts(None, None, [LongerThan(5)]) != filter_facts(None, None, [LongerThan(6)])
    assert filter_facts(None, {"visits": (1, 2)}, []) != filter_facts(None, {"visits": {1, 2}}, [])
