"""`millstream watch`: the pipeline of a recipe runs, is shown, and ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from command import Run
from millstream.cli.watch import LiveTables, stage_table
from millstream.errors import LoaderError
from millstream.games import example_folder
from millstream.stages import IterableStage, Pipeline, serve_metrics

GUIDE = (Path(__file__).parents[2] / "docs/howto/pipelines.md").read_text("utf-8")


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The recipe of the guide, and its module."""
    for name, kind in (("words.py", "python"), ("words.yaml", "yaml")):
        fence = re.search(rf"^```{kind}\n(# {name}\n.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
        assert fence is not None
        (tmp_path / name).write_text(fence[1], "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "words.yaml"


def test_numbers_as_text_end_after_so_many_items(run: Run, recipe: Path) -> None:
    code, out, err = run("watch", recipe, "--import", "words", "--batches", "40")

    assert (code, err) == (0, "")
    assert re.search(r"^stage +busy +in/s +out/s +dropped +gauges$", out, re.MULTILINE)
    assert re.search(r"^words  [█░]{10} +\d+ %  .*short \d+$", out, re.MULTILINE)
    assert re.search(r"^words  [█░]{10} +\d+ % of 16 .*  40$", out, re.MULTILINE)


def test_numbers_as_lines_of_json_end_after_some_time(run: Run, recipe: Path) -> None:
    code, out, _ = run("watch", recipe, "--import", "words", "--for", "0.5", "--every", "0.1", "--json")
    looks = [json.loads(line) for line in out.splitlines()]

    assert code == 0
    assert 3 <= len(looks) <= 6
    assert all(set(look["stages"]) == set(look["queues"]) == {"lines", "words"} for look in looks)
    items = [look["queues"]["words"]["counters"]["got"] for look in looks]
    assert items == sorted(items)
    assert items[-1] > 0
    assert looks[-1]["seconds"] < 2


def test_a_pipeline_that_ends_by_itself_ends_the_command(run: Run, recipe: Path) -> None:
    recipe.write_text(recipe.read_text().replace("100_000", "5"))
    code, out, _ = run("watch", recipe, "--import", "words", "--json")

    assert code == 0
    assert json.loads(out.splitlines()[-1])["queues"]["words"]["counters"]["got"] == 10


def test_a_running_pipeline_is_looked_at_through_its_port(run: Run, recipe: Path) -> None:
    __import__("words")
    with Pipeline.from_recipe(recipe) as pipeline, serve_metrics(pipeline) as server:
        pipeline.get()
        for place in (server.port, server.url):
            code, out, _ = run("watch", "--metrics", place, "--for", "0.2", "--every", "0.1", "--json")
            assert code == 0
            assert json.loads(out.splitlines()[-1])["stages"]["words"]["counters"]["out"] > 0
    code, _, err = run("watch", "--metrics", server.port)
    assert code == 2
    assert "gives no numbers" in err
    assert "serve_metrics" in err


def test_ctrl_c_shows_the_numbers_a_last_time_and_leaves_cleanly(recipe: Path) -> None:
    command = [sys.executable, "-m", "millstream.cli.main", "watch", str(recipe), "--import", "words", "--serve", "0"]
    environment = {**os.environ, "PYTHONPATH": str(recipe.parent)}
    with subprocess.Popen(
        [*command, "--every", "0.1"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("after ")  # it is at work
        process.send_signal(signal.SIGINT)
        out, err = process.stdout.read(), process.stderr.read()
        process.wait(20)

    assert process.returncode == 130
    assert re.fullmatch(r"metrics: http://127\.0\.0\.1:\d+/metrics\nstopped\n", err)
    assert out.count("stage  busy") == out.count("queue  fill") >= 2  # a last time, and whole


def test_a_failure_ends_the_command_with_the_name_of_its_stage(run: Run, recipe: Path) -> None:
    (recipe.parent / "bad.py").write_text(
        "from millstream.stages import FunctionStage, Queue, Stage, register_stage\n"
        "class Bad(FunctionStage):\n"
        "    def __init__(self, source: Queue, **settings):\n"
        "        super().__init__(source, function=lambda item: [1 / 0], **settings)\n"
        "register_stage('bad', Bad)\n"
    )
    recipe.write_text(recipe.read_text().replace("output: words", "  - {name: inverse, stage: bad, input: words}\n#"))
    code, out, err = run("watch", recipe, "--import", "words", "--import", "bad")

    assert code == 2
    assert "error: stage 'inverse': ZeroDivisionError: division by zero" in err
    assert "inverse" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "needs a recipe, or --metrics"),
        (("{recipe}", "--metrics", "9100"), "needs a recipe, or --metrics"),
        (("{recipe}", "--import", "wrods"), "--import wrods"),
        (("nowhere.yaml",), "nowhere.yaml: cannot be read"),
        (("--metrics", "file:///etc/passwd"), "is no address"),
    ],
)
def test_what_cannot_be_watched_is_refused_with_a_hint(
    arguments: tuple[str, ...], message: str, run: Run, recipe: Path
) -> None:
    code, _, err = run("watch", *(each.format(recipe=recipe) for each in arguments))

    assert code == 2
    assert message in err
    assert "hint:" in err


def test_names_that_give_orders_to_a_terminal_are_shown_as_dots_and_live_tables_take_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    counters = {"drops": {"[red]\x1b[2J": 3}, "gauges": {"age_s": 2.5}}
    rates = {"busy": 0.5, "in_per_s": 3.0, "out_per_s": 0.0}
    statistics = {
        "seconds": 3.0,
        "window_s": 1.0,
        "stages": {"a": {"last": rates, "counters": counters}},
        "queues": {},
    }

    assert "[red]·[2J 3" in str(stage_table(statistics))
    live = LiveTables()
    live.show(statistics)
    live.close()
    assert "[red]·[2J 3" in capsys.readouterr().out


def test_the_recipe_for_self_play_is_watched(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example_folder(30, plies=40, folder=tmp_path / "examples/games")
    small = {"131_072": "64", "16_384": "16", "1024": "8"}
    recipe = (Path(__file__).parents[2] / "examples/lc0.yaml").read_text("utf-8")
    for large, little in small.items():
        recipe = recipe.replace(large, little)
    (tmp_path / "lc0.yaml").write_text(recipe, "utf-8")
    monkeypatch.chdir(tmp_path)
    code, out, err = run("watch", "lc0.yaml", "--batches", "10", "--json")

    assert code == 0
    warnings = [json.loads(line)["warning"] for line in err.splitlines()]
    train, validation = (
        f"{name}: each of its {games} games was given; pass 1 begins"
        for name, games in (("window", 27), ("validation_window", 3))
    )
    assert train in warnings and {*warnings, train, validation} == {train, validation}
    stages = json.loads(out.splitlines()[-1])["stages"]
    assert stages["window"]["counters"]["gauges"]["passes"] > 0


@pytest.mark.filterwarnings("ignore:waiting for:UserWarning")  # its reservoir takes seconds on a busy machine
def test_the_recipe_for_self_play_runs_as_it_stands_in_a_clone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    monkeypatch.setattr("millstream.stages.wait.WORTH_SAYING_S", 600.0)  # a slow machine is no error
    code, out, _ = run("watch", "examples/lc0.yaml", "--batches", "1", "--json")

    assert code == 0
    stages = json.loads(out.splitlines()[-1])["stages"]
    assert stages["split"]["counters"]["gauges"] == {"chunks_train": 27, "chunks_validation": 3}
    assert stages["train"]["counters"]["out"] + stages["validation"]["counters"]["out"] > 0
    drops = {reason for stage in stages.values() for reason in stage["counters"]["drops"]}
    assert drops <= {"no position chosen"}


@pytest.mark.parametrize("flag", ["--for", "--every", "--batches"])
@pytest.mark.parametrize("value", ["0", "-1"])
def test_a_time_or_number_that_cannot_be_is_refused(run: Run, recipe: Path, flag: str, value: str) -> None:
    code, _, err = run("watch", recipe, "--import", "words", f"{flag}={value}")

    assert code == 2
    assert f"{flag} {float(value) if flag != '--batches' else value} is not possible" in err


def test_a_port_that_does_not_exist_or_is_taken_is_refused(run: Run, recipe: Path) -> None:
    code, _, err = run("watch", recipe, "--import", "words", "--serve", "99999")
    assert code == 2 and "there is no such port" in err and "0 for a free one" in err

    with Pipeline({"numbers": IterableStage([1])}) as pipeline, serve_metrics(pipeline) as server:
        with pytest.raises(LoaderError, match="no such port"):
            serve_metrics(pipeline, -1)
        with pytest.raises(LoaderError, match=rf"port={server.port} cannot be had: .*in use\n  hint: pass another"):
            serve_metrics(pipeline, server.port)


def test_a_reservoir_that_fills_and_a_folder_that_is_missing_are_shown(run: Run, tmp_path: Path) -> None:
    games = example_folder(4, plies=2, folder=tmp_path / "games")
    kinds = ["discovery", "chunk_source_feed", "chunk_set", "chunk_reader", "frame_shuffler", "tensor_generator"]
    holds = r"(?m)^frame_shuffler holds [\d,]+ of 100,000 frames, and gives none before it is full$(?s:.*)"
    full = holds + r"frames \d+ % of 100,000,"
    for folder, said in ((games, full), (tmp_path / "nowhere", "folder_missing 1")):
        stages: list[dict[str, Any]] = [{"stage": kind} for kind in kinds]
        for before, stage in pairwise(stages):
            stage["input"] = before["stage"]
        stages[0]["path"], stages[4]["frames"] = str(folder), 100_000
        (tmp_path / "small.yaml").write_text(json.dumps({"stages": stages}))
        code, out, _ = run("watch", tmp_path / "small.yaml", "--for", "0.5")
        assert code == 0
        assert re.search(said, out)
