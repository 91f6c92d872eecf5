"""Recipes say with plain values what the stages of the live road take as objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream import Pipeline, SelfPlayDataLoader
from millstream.errors import LoaderError, RecipeError
from millstream.games import example_folder
from millstream.selfplay.chunk_feed import Shuffled, TensorGenerator
from millstream.stages import Queue
from millstream.stages.pipeline_file import known_stages


def stage(kind: str, input: str = "", **settings: Any) -> dict[str, Any]:
    return {"stage": kind, **({"input": input} if input else {}), **settings}


def road(folder: Path, *between: dict[str, Any], **unpacking: Any) -> list[dict[str, Any]]:
    return [
        stage("discovery", path=str(folder), watch=False),
        stage("chunk_source_feed", "discovery"),
        stage("chunk_set", "chunk_source_feed", endless=False, seed=3, root=str(folder)),
        stage("chunk_reader", "chunk_set", threads=2),
        *between,
        stage("chunk_unpacker", between[-1]["stage"] if between else "chunk_reader", seed=3, **unpacking),
        stage("frame_shuffler", "chunk_unpacker", frames=10, seed=3),
        stage("tensor_generator", "frame_shuffler", batch_size=8),
    ]


def test_every_stage_has_its_name() -> None:
    named = """discovery chunk_source_feed splitter chunk_set chunk_reader chunk_filter chunk_rescorer chunk_unpacker
               frame_shuffler tensor_generator"""

    assert set(named.split()) <= set(known_stages())


@pytest.mark.parametrize("positions", [None, 0.25, 2])
def test_a_recipe_gives_the_batches_of_the_loader_with_the_same_settings(positions: float | None) -> None:
    folder = example_folder(5)
    settings: dict[str, Any] = {
        "positions": positions,
        "shuffle_frames": 10,
        "batch_size": 8,
        "seed": 3,
        "framework": "numpy",
    }
    with Pipeline.from_recipe({"stages": road(folder, positions=positions)}) as pipeline:
        made = [np.concatenate([batch.planes.ravel(), batch.policy.ravel()]) for batch in pipeline]
    with SelfPlayDataLoader(folder, watch=False, **settings) as loader:
        loaded = [np.concatenate([batch.planes.ravel(), batch.policy.ravel()]) for batch in loader.get_iterator()]

    assert [batch.tolist() for batch in made] == [batch.tolist() for batch in loaded]


def test_positions_of_the_next_uses_are_kept_for_the_reader_and_change_no_batch() -> None:
    folder, made = example_folder(30), []
    for kept in ({}, {"position_cache": "10MB"}):
        stages = road(folder, stage("chunk_filter", "chunk_reader"), positions=2, **kept)
        stages[2]["endless"] = stages[2]["outlives_input"] = True
        with Pipeline.from_recipe({"stages": stages}) as pipeline:
            batches = [pipeline.get() for _ in range(40)]
            made.append([batch.planes.tobytes() + batch.origins.tobytes() for batch in batches])
            gauges = pipeline.counters()["stages"]["chunk_reader"]["gauges"]

    assert made[0] == made[1]
    assert gauges["cache_hits"] > 0


def test_a_cache_without_a_reader_of_whole_games_is_refused() -> None:
    stages = road(example_folder(1), positions=2, position_cache="1MB")
    stages[3]["positions"] = 2
    with pytest.raises(RecipeError, match="no chunk_reader of whole games"):
        Pipeline.from_recipe({"stages": stages})
    with pytest.raises(RecipeError, match="position_cache='much' is not a size"):
        Pipeline.from_recipe({"stages": road(example_folder(1), position_cache="much")})


def test_games_are_matched_and_rescored_by_plain_values() -> None:
    wanted = stage("chunk_filter", "chunk_reader", match={"result_q": [-1, 1], "rule50_count": {"most": 50}})
    rescored = stage("chunk_rescorer", "chunk_filter", rescore={"new_input_format": 3})
    stages = road(example_folder(3), wanted, rescored, positions=1, weights={"q_weight": 6.0})
    with Pipeline.from_recipe({"stages": stages}) as pipeline:
        batches = list(pipeline)
        drops = pipeline.counters()["stages"]["chunk_filter"]["drops"]

    assert sum(len(batch.origins) for batch in batches) == 2
    assert drops == {"result_q does not match": 1}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (stage("chunk_rescorer", "chunk_reader", rescore={"new_input": 3}), "there is no setting 'new_input'"),
        (stage("chunk_filter", "chunk_reader", match={"visits": {"at_least": 1}}), "match: visits shall be"),
        (stage("chunk_filter", "chunk_reader", threds=2), "there is no setting 'threds'"),
        (stage("chunk_filter", "chunk_reader", rules="all"), "rules='all' does not fit"),
    ],
)
def test_a_setting_that_is_wrong_is_refused_with_its_stage(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        Pipeline.from_recipe({"stages": road(Path("games"), changed)})


def test_a_setting_of_the_wrong_kind_is_named_with_its_line(tmp_path: Path) -> None:
    recipe = tmp_path / "games.yaml"
    recipe.write_text("stages:\n  - stage: discovery\n    path: 3\n")

    with pytest.raises(
        RecipeError, match=r"line 3: 'discovery': discovery: path=3 does not fit\n  hint: it must be str"
    ):
        Pipeline.from_recipe(recipe)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        *(({"batch_size": wrong}, "batch_size") for wrong in (0, -5, "8", 2.5, True, None)),
        *(({"rank": wrong}, "rank") for wrong in (5, -1, "0", 1.5, True)),
        *(({"world_size": wrong}, "world_size") for wrong in (0, -1, "2", True)),
        ({"rank": 2, "world_size": 2}, r"rank 2 is outside 0\.\.1"),
        *(({"memory_budget": wrong}, "memory_budget") for wrong in (0, -1, "much", 1.5)),
    ],
)
def test_batches_that_cannot_be_made_are_refused_when_the_stage_is_made(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(LoaderError, match=said) as refused:
        TensorGenerator(Queue[Shuffled](), **settings)
    assert refused.value.hint
    stages = road(example_folder(1))
    stages[-1] |= settings
    with pytest.raises(RecipeError, match=said):
        Pipeline.from_recipe({"stages": stages})
