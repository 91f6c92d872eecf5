"""Hanse sampling leaves nothing out in silence: what cannot be weighed is counted and listed, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from games.archives import varied_game, write_tar
from millstream.games import open_chunk_source
from millstream.loaders import SelfPlayDataLoader
from millstream.selfplay import Event, HanseSampling, HanseWeights, PositionWeights, WindowEntry
from millstream.selfplay.chunk_feed import ChunkSet, ChunkSourceFeed, Discovery
from millstream.stages import Pipeline

FOCUSED = PositionWeights(q_weight=6, policy_scale=3.5)


@pytest.mark.parametrize("sampling", [HanseSampling(), HanseSampling(weights=FOCUSED)])
def test_a_game_that_cannot_be_read_weighs_nothing_and_is_told_of_once(tmp_path: Path, sampling: HanseSampling) -> None:
    whole = varied_game(3, 0)
    source = open_chunk_source(write_tar(tmp_path / "a.tar", [("0.gz", whole), ("1.gz", whole[: len(whole) // 2])]))
    reasons: list[str] = []
    weights, entry = HanseWeights(sampling, lambda _: source, reasons.append), WindowEntry("a.tar", 0, 2)
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


@pytest.mark.parametrize("said", [40, 2000, 4000])
def test_a_game_that_says_more_than_it_has_makes_no_other_one_rare(tmp_path: Path, said: int) -> None:
    lies = bytearray(varied_game(5, 9))
    lies[-4:] = (said * 8356).to_bytes(4, "little")
    games = [(f"{number}.gz", varied_game(5, number)) for number in range(20)]
    write_tar(tmp_path / "a.tar", [("lies.gz", bytes(lies)), *games])
    with SelfPlayDataLoader(
        tmp_path, framework="numpy", positions=1, hanse=1.0, batch_size=8, shuffle_frames=8, poll_s=1
    ) as run:
        for _ in range(30):
            run.next()
        assert run._run.graph is not None
        window = run._run.graph.chunk_set.window
        assert (window.heaviest, run.losses["damaged gzip"]) == (5, 1)
        assert window.rejected <= window.passes + 1


def test_a_chunk_set_forgets_the_weights_of_what_has_left(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number}.gz").write_bytes(varied_game(2, number))
    found = Discovery(tmp_path, watch=False)
    kept: dict[str, Any] = {"num_chunks": 30, "hanse": HanseSampling(), "root": str(tmp_path), "outlives_input": True}
    newest = ChunkSet(sources := ChunkSourceFeed(found), **kept)
    window, weights = newest.window, newest.weights
    assert weights is not None
    with Pipeline({"found": found, "sources": sources, "newest": newest}) as pipeline:
        for _ in range(60):
            pipeline.get()
        assert len(weights._known) == 30
    newest._do([Event(window.draws, "gone", f"{number}.gz") for number in range(25)])
    assert len(weights._known) == len(window) == 5


def test_a_damaged_trailer_makes_no_other_game_rare(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.gz").write_bytes(varied_game(5, number))
    lies = bytearray(varied_game(5, 4))
    lies[-4:] = (500_000 * 8356).to_bytes(4, "little")
    (tmp_path / "4.gz").write_bytes(lies)
    with SelfPlayDataLoader(tmp_path, watch=False, framework="numpy", positions=1, hanse=1.0) as run:
        assert sum(map(len, run.get_iterator())) == 4
