"""The scripts and recipes in examples/ do what they say."""

from __future__ import annotations

import json
from pathlib import Path
from runpy import run_path
from typing import Any, cast

import yaml

from millstream import CharTokenizer, Pipeline
from millstream.games.example import example_folder

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_a_policy_that_learns_from_a_feed_gets_better() -> None:
    rewards = run_path(str(EXAMPLES / "grpo_loop.py"))["train"](steps=30)

    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.1


def test_a_network_learns_from_games_that_are_watched(tmp_path: Path) -> None:
    games = example_folder(20, plies=40, folder=tmp_path)
    losses = run_path(str(EXAMPLES / "chess_selfplay.py"))["train"](games, steps=25)

    assert sum(losses[-5:]) < sum(losses[:5])


def read(name: str, **changed: object) -> dict[str, Any]:
    """A recipe, with other settings in those stages that have them."""
    recipe = yaml.safe_load((EXAMPLES / name).read_text("utf-8"))
    for stage in recipe["stages"]:
        stage |= {key: value for key, value in changed.items() if key in stage}
    return cast("dict[str, Any]", recipe)


def test_the_recipe_for_games_gives_batches_for_training_and_validation(tmp_path: Path) -> None:
    games = example_folder(40, plies=40, folder=tmp_path / "games")
    small = {"path": str(games), "cache_dir": str(tmp_path), "frames": 64, "batch_size": 8}
    with Pipeline.from_recipe(read("lc0.yaml", **small)) as pipeline:
        batches = {name: pipeline.get(name, timeout_s=30) for name in ("train", "validation")}
        statistics = pipeline.statistics()

    assert {name: batch.planes.shape for name, batch in batches.items()} == dict.fromkeys(batches, (8, 112, 8, 8))
    used = {stage: statistics["stages"][stage]["counters"] for stage in ("window", "validation_window")}
    assert sum(each["gauges"]["chunks"] for each in used.values()) == 40


def test_documents_of_a_folder_that_grows_become_rows_of_tokens(tmp_path: Path) -> None:
    run_path(str(EXAMPLES / "growing_documents.py"))
    folder = tmp_path / "documents"
    folder.mkdir()
    first, second = "the mill by the stream", "turns"
    tokenizer = CharTokenizer.train([first + second])
    tokenizer.save(tmp_path / "tokenizer.json")
    lines = [json.dumps({"text": first}), "no document"]
    (folder / "a.jsonl").write_text("\n".join(lines), "utf-8")

    changed = {"path": str(folder), "tokenizer": str(tmp_path / "tokenizer.json"), "rows": 2, "length": 4}
    with Pipeline.from_recipe(read("growing_documents.yaml", **changed)) as pipeline:
        batches = [pipeline.get(timeout_s=30).tolist() for _ in range(2)]
        (folder / "b.jsonl").write_text(json.dumps({"text": second}), "utf-8")
        batches.append(pipeline.get(timeout_s=30).tolist())
        drops = pipeline.counters()["stages"]["texts"]["drops"]

    ids = [number for batch in batches for row in batch for number in row]
    assert tokenizer.decode(ids) == (first + second)[: len(ids)]
    assert drops == {"no document": 1}
