"""The examples of these pages run, each page in an empty folder of its own, so that they may use plain file names."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
collect_ignore = ["fence_doctests.py", "modules.py"]  # needs the tools of `make docs`


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _some_games(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The page about pipelines of games finds three games, of which the second is short, and its recipe."""
    if request.node.path.name != "game_pipelines.md":
        return
    from games.chunks import play, zipped

    (tmp_path / "games").mkdir()
    for number in range(3):
        frames, _ = play(random.Random(number), plies=10 if number == 1 else 40)
        (tmp_path / "games" / f"training.{number}.gz").write_bytes(zipped(frames))
    recipe = (EXAMPLES / "lc0.yaml").read_text("utf-8")
    recipe = recipe.replace("path: examples/games", "path: games")
    recipe = re.sub(r"(frames|batch_size): \S+", r"\1: 8", recipe)  # no test waits for a large reservoir
    recipe = recipe.replace("train: 95, validation: 5", "train: 1, validation: 1")  # of three games, some for each
    (tmp_path / "lc0.yaml").write_text(recipe, "utf-8")
