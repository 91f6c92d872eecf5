"""The steps of rescoring that need no tables: by hand, against the specification's text, and over whole games."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from games.blocks import as_later_engines, game
from games.slow_rescore import Searched, slow_deblunder
from games.test_encoding import STARTS
from laws import examples
from millstream.errors import RecipeError, RecordError
from millstream.games import FRAME, FrameBlock, InputFormat, Rescorer, RescoreSettings
from millstream.games.frame import POLICY_INDEX, UNKNOWN_MOVE
from millstream.games.positions import Moves
from millstream.games.rescore_steps import adjust_policies, count_plies_left, deblunder

PAWNLESS = "8/3k4/8/4q3/8/8/2KR4/8 w - - 0 1"


def assert_equal(found: FrameBlock, wanted: FrameBlock) -> None:
    for name in FRAME.names or ():
        np.testing.assert_array_equal(found.fields[name], wanted.fields[name], name)
    for name in ("ends", "moves", "probabilities", "origins"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), name)


def frames(count: int, **columns: object) -> npt.NDArray[np.void]:
    fields = np.zeros(count, FRAME)
    fields["visits"] = 800
    for name, column in columns.items():
        fields[name] = column
    return fields


# Whole games


def test_without_settings_a_game_gets_what_version_7_has_and_nothing_else() -> None:
    old, new = game(2, version=6), game(2, version=7)
    rescored = Rescorer().rescore(old)
    for name in ("q_st", "d_st"):
        np.testing.assert_allclose(rescored.fields[name], new.fields[name], atol=1e-6)
        rescored.fields[name] = new.fields[name]
    assert_equal(rescored, new)
    assert_equal(Rescorer().rescore(new), new)


@pytest.mark.parametrize("new", InputFormat)
@pytest.mark.parametrize("version", [6, 7])
def test_a_converted_game_is_the_game_in_that_format(new: InputFormat, version: int) -> None:
    rescorer = Rescorer(RescoreSettings(new_input_format=new))
    for old in (InputFormat.CLASSICAL, InputFormat.CANONICAL):
        for start in ("", PAWNLESS):
            given, wanted = game(3, old, 70, start, version), game(3, new, 70, start, version)
            assert_equal(rescorer.rescore(given), Rescorer().rescore(wanted))


def test_policies_of_later_engines_are_converted_by_their_own_rule() -> None:
    given = as_later_engines(game(1, InputFormat.CANONICAL, 60, PAWNLESS))
    plain = game(1, InputFormat.CLASSICAL, 60, PAWNLESS)
    rescored = Rescorer(RescoreSettings(new_input_format=1)).rescore(given)
    known = len(plain) - 1  # nothing follows the last frame that could tell its rule, but its policy is turned as well
    assert_equal(rescored.select(range(known)), Rescorer().rescore(plain).select(range(known)))
    assert rescored.moves.tolist() == plain.moves.tolist()


def test_what_rescoring_is_given_stays_as_it_was() -> None:
    settings = RescoreSettings(
        dist_temp=0.5, dist_offset=-0.01, new_input_format=3, deblunder_threshold=0.1, deblunder_width=0.06
    )
    given, before = game(4), game(4)
    Rescorer(settings).rescore(given)
    assert_equal(given, before)


@given(st.data())
@examples(60)
def test_a_damaged_game_is_rescored_or_refused_with_a_reason(data: st.DataObject) -> None:
    block = game(3, data.draw(st.sampled_from(InputFormat)), 8, data.draw(st.sampled_from(STARTS)))
    raw = block.fields.view(np.uint8)
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=4)):
        raw[at] ^= data.draw(st.integers(1, 255))
    settings = RescoreSettings(
        dist_temp=1.5,
        new_input_format=data.draw(st.sampled_from(InputFormat)),
        deblunder_threshold=0.1,
        deblunder_width=0,
    )
    try:
        assert len(Rescorer(settings, rules="legal").rescore(block)) == len(block)
    except RecordError as error:
        assert error.reason
        assert error.found


def test_a_game_of_one_frame_is_a_game() -> None:
    assert len(Rescorer(RescoreSettings(new_input_format=3)).rescore(game(plies=1))) == 1


# Averages


def test_old_frames_do_not_know_the_next_moves() -> None:
    block = game(2)
    block.fields["visits"], block.fields["version"] = 0, 5
    rescored = Rescorer().rescore(block)
    assert set(rescored.fields["opp_played_idx"].tolist()) == {UNKNOWN_MOVE}
    assert set(rescored.fields["version"].tolist()) == {7}


# Moves left


def test_unknown_plies_left_are_counted_to_the_end_with_the_frame_itself() -> None:
    fields = frames(4, plies_left=[0, 9, 0, 0])
    count_plies_left(fields)
    assert fields["plies_left"].tolist() == [4, 9, 2, 1]


# Policies


@dataclass
class Boosted:
    """Tables that call some moves of the first frame best."""

    best: list[str]

    @property
    def in_reach(self) -> npt.NDArray[np.bool_]:
        return np.array([True])

    def wdl(self, ply: int) -> int | None:
        return None

    def dtz(self, ply: int) -> int | None:
        return None

    def best_moves(self, ply: int) -> Moves:
        squares = [[ord(name[at]) - 97 + 8 * (int(name[at + 1]) - 1) for name in self.best] for at in (0, 2)]
        return Moves(*np.array([*squares, [0] * len(self.best)], np.int8))


def policy(**chances: float) -> FrameBlock:
    block = FrameBlock.concat([FrameBlock.empty(), game(plies=1)])
    moves = sorted((POLICY_INDEX[name], chance) for name, chance in chances.items())
    return replace(
        block,
        ends=np.array([len(moves)], np.uint32),
        moves=np.array([entry for entry, _ in moves], np.uint16),
        probabilities=np.array([chance for _, chance in moves], np.float32),
    )


def adjusted(block: FrameBlock, best: list[str] | None = None, **settings: float) -> dict[str, float]:
    how = RescoreSettings(syzygy_paths=["tables"], **settings)  # type: ignore[arg-type]
    new = adjust_policies(block, how, Boosted(best) if best else None)
    names = {entry: name for name, entry in POLICY_INDEX.items()}
    return {names[int(move)]: round(float(share), 6) for move, share in zip(new.moves, new.probabilities, strict=True)}


def test_a_policy_is_offset_boosted_tempered_and_summed_to_1() -> None:
    block = policy(a2a3=0.2, a2a4=0.8)
    assert adjusted(block) == {"a2a3": 0.2, "a2a4": 0.8}
    assert adjusted(block, dist_temp=0.5) == {"a2a3": round(0.04 / 0.68, 6), "a2a4": round(0.64 / 0.68, 6)}
    assert adjusted(block, dist_offset=-0.3) == {"a2a3": 0, "a2a4": 1}
    assert adjusted(block, dist_offset=1) == {"a2a3": 0.4, "a2a4": 0.6}
    assert adjusted(block, ["a2a3"], dtz_boost=1) == {"a2a3": 0.6, "a2a4": 0.4}
    assert adjusted(block, ["a2a3", "a2a4"], dtz_boost=1) == {"a2a3": 0.35, "a2a4": 0.65}
    both = {"a2a3": round(0.64 / 1.28, 6), "a2a4": round(0.64 / 1.28, 6)}
    assert adjusted(block, ["a2a3"], dtz_boost=0.6, dist_temp=0.5) == both


def test_what_is_not_a_number_stays_and_a_policy_without_a_chance_left_is_refused() -> None:
    tempered = adjusted(policy(a2a3=math.nan, a2a4=0.8), dist_temp=0.5)
    assert math.isnan(tempered["a2a3"])
    assert tempered["a2a4"] == 1
    with pytest.raises(RecordError, match="no probability left: ply 0"):
        adjusted(policy(a2a3=0.5, a2a4=0.5), dist_offset=-1)
    assert adjusted(policy(a2a3=0.4, a2a4=0.6), dist_temp=1e-4) == {"a2a3": 0, "a2a4": 1}  # 0.6 to the 10,000th is 0


# Blunders


def columns(fields: npt.NDArray[np.void]) -> list[tuple[float, ...]]:
    named = (fields[name].tolist() for name in ("result_q", "result_d", "plies_left"))
    return [tuple(round(value, 5) for value in row) for row in zip(*named, strict=True)]


def test_before_a_blunder_the_best_value_is_the_result() -> None:
    played = frames(4, best_q=[0.5, 0.4, 0.3, 0.1], played_q=[0.5, 0.4, -0.5, 0.1], best_d=0.25, best_m=20)
    played["result_q"], played["plies_left"] = [1, -1, 1, -1], [4, 3, 2, 1]
    fields = played.copy()
    deblunder(fields, threshold=0.1, width=0)
    assert columns(fields) == [(0.3, 0.25, 22), (-0.3, 0.25, 21), (0.3, 0.25, 20), (-1, 0, 1)]
    deblunder(played, threshold=0.9, width=0)
    assert columns(played) == [(1, 0, 4), (-1, 0, 3), (1, 0, 2), (-1, 0, 1)]


def test_around_the_threshold_both_results_count() -> None:
    fields = frames(
        2, best_q=[0.5, 0.5], played_q=[0.5, 0.4], best_d=0.5, best_m=10, result_q=[1, -1], plies_left=[2, 1]
    )
    deblunder(fields, threshold=0.1, width=0.06)
    assert columns(fields) == [(0.25, 0.25, 6.5), (-0.25, 0.25, 5.5)]


@pytest.mark.parametrize(
    ("best_q", "played_q", "info", "blunder"),
    [(1, 0.99, 8, True), (1, 0.99, 0, False), (1, 1, 8, False), (-0.95, -1, 0, True), (-1, -1, 0, False)],
)
def test_a_missed_mate_and_a_walk_into_one_are_blunders(
    best_q: float, played_q: float, info: int, blunder: bool
) -> None:
    fields = frames(1, best_q=best_q, played_q=played_q, invariance_info=info, best_d=0.5, result_d=1)
    deblunder(fields, threshold=0.5, width=0.06)
    assert (fields["result_d"][0] == 0.5) == blunder


def test_old_games_do_not_know_blunders() -> None:
    fields = frames(2, best_q=1, played_q=-1, result_d=1, visits=0)
    deblunder(fields, threshold=0.1, width=0)
    assert fields["result_d"].tolist() == [1, 1]


def test_a_walk_that_begins_early_begins_with_the_result_of_the_last_frame_or_with_its_own() -> None:
    for own_result, first in ((False, (-0.5, 0.5, 2)), (True, (0.5, 0.5, 2.5))):
        fields = frames(2, best_q=[0, 0], played_q=[-0.1, 0], best_d=1, result_q=[1, -1], plies_left=[5, 4])
        deblunder(fields, threshold=0.1, width=0.2, last=0, own_result=own_result)
        assert columns(fields) == [first, (-1, 0, 4)]


values = st.sampled_from([-1.0, -0.75, -0.5, 0.0, 0.25, 0.5, 1.0])
triples = st.tuples(values, st.sampled_from([0.0, 0.25, 1.0]), st.sampled_from([1.0, 8.0]))
searches = st.lists(st.builds(Searched, triples, values, st.booleans(), triples), min_size=1, max_size=8)


@given(searches, st.sampled_from([0.1, 0.25, 0.5]), st.sampled_from([0.0, 0.06, 0.5]), st.integers(0, 7))
@examples(120)
def test_deblundering_is_what_the_specification_says(
    searched: list[Searched], threshold: float, width: float, last: int
) -> None:
    last %= len(searched)
    fields = frames(len(searched), played_q=[frame.played_q for frame in searched])
    fields["invariance_info"] = [8 * frame.proven for frame in searched]
    for at, (best, z) in enumerate((("best_q", "result_q"), ("best_d", "result_d"), ("best_m", "plies_left"))):
        fields[best], fields[z] = [frame.best[at] for frame in searched], [frame.z[at] for frame in searched]
    deblunder(fields, threshold, width, last=last)
    wanted = slow_deblunder(searched, threshold, width, last)
    np.testing.assert_allclose(columns(fields), wanted, atol=2e-5)


# Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dist_temp": 0}, "dist_temp is 0"),
        ({"dist_temp": math.inf}, "dist_temp is inf"),
        ({"dist_offset": math.nan}, "dist_offset is nan"),
        ({"dtz_boost": 0.1}, "dtz_boost needs tables"),
        ({"st_q_theta": 1.1}, "st_q_theta is 1.1"),
        ({"new_input_format": 6}, "there is no input format 6"),
        ({"deblunder_width": 0.1}, "deblunder_width is given"),
        ({"deblunder_width": -0.1, "deblunder_threshold": 1}, "deblunder_width is -0.1"),
        ({"syzygy_paths": 5}, "syzygy_paths is 5, no list of folders"),
        ({"syzygy_paths": [1, 2]}, "no list of folders"),
        ({"syzygy_paths": None}, "no list of folders"),
        ({"gaviota_paths": ["tables", ""]}, "no list of folders"),
        ({"gaviota_paths": ""}, "no list of folders"),
    ],
)
def test_settings_that_cannot_work_are_told(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        RescoreSettings(**settings)


def test_folders_of_tables_are_listed_or_joined_by_colons() -> None:
    assert RescoreSettings(syzygy_paths="a:b").syzygy_paths == ("a", "b")
    paths: list[Any] = [Path("a"), "b"]
    assert RescoreSettings(gaviota_paths=paths).gaviota_paths == ("a", "b")
