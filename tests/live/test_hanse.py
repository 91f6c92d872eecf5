"""Hanse sampling leaves nothing out in silence: what cannot be weighed is counted and listed, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from games.archives import varied_game, write_tar
from millstream.games.chunk_source import open_chunk_source
from millstream.live.hanse import HanseSampling, HanseWeights
from millstream.live.positions import PositionWeights
from millstream.live.window import Entry
from millstream.loaders.self_play import SelfPlayDataLoader

FOCUSED = PositionWeights(q_weight=6, policy_scale=3.5)


@pytest.mark.parametrize("sampling", [HanseSampling(), HanseSampling(weights=FOCUSED)])
def test_a_game_that_cannot_be_read_weighs_nothing_and_is_told_of_once(tmp_path: Path, sampling: HanseSampling) -> None:
    whole = varied_game(3, 0)
    source = open_chunk_source(write_tar(tmp_path / "a.tar", [("0.gz", whole), ("1.gz", whole[: len(whole) // 2])]))
    reasons: list[str] = []
    weights, entry = HanseWeights(sampling, {"a.tar": source}, reasons.append), Entry("a.tar", 0, 2)
    assert [weights.of(entry, index) > 0 for index in (0, 1, 0, 1)] == [True, False, True, False]
    assert reasons == [error.reason for error in weights.bad] == ["truncated"]


@pytest.mark.parametrize("weights", [None, FOCUSED])
def test_a_bad_game_is_counted_whether_games_are_weighed_or_not(
    tmp_path: Path, weights: PositionWeights | None
) -> None:
    for number in range(4):
        (tmp_path / f"{number}.gz").write_bytes(varied_game(5, number))
    cut = varied_game(5, 4)
    (tmp_path / "4.gz").write_bytes(cut[: len(cut) // 2])
    with SelfPlayDataLoader(tmp_path, watch=False, framework="numpy", positions=1, hanse=1.0, weights=weights) as run:
        list(run.get_iterator())
        assert run.losses["truncated"] == 1


def test_a_damaged_trailer_makes_no_other_game_rare(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.gz").write_bytes(varied_game(5, number))
    lies = bytearray(varied_game(5, 4))
    lies[-4:] = (500_000 * 8356).to_bytes(4, "little")
    (tmp_path / "4.gz").write_bytes(lies)
    with SelfPlayDataLoader(tmp_path, watch=False, framework="numpy", positions=1, hanse=1.0) as run:
        assert sum(map(len, run.get_iterator())) == 4
