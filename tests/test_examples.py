"""The scripts and recipes in examples/ do what they say."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from runpy import run_path
from typing import Any, cast

import pytest
import yaml

from millstream import CharTokenizer, Discovery, Pipeline, Queue, load_tokenizer
from millstream.errors import LoaderError
from millstream.games import example_folder
from millstream.games.codec import write_frames
from millstream.games.example import example_frames

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


def test_the_games_beside_the_recipe_are_those_of_the_examples() -> None:
    packed = {path.name: path.read_bytes() for path in (EXAMPLES / "games").iterdir()}

    assert {name: gzip.decompress(game) for name, game in packed.items()} == {
        f"training.{number}.gz": write_frames(example_frames(number, plies=24)) for number in range(30)
    }


def documents(folder: Path, *texts: str) -> dict[str, str]:
    """A folder for documents, and a tokenizer for these texts, as settings of the recipe."""
    (folder / "documents").mkdir()
    CharTokenizer.train(texts).save(folder / "tokenizer.json")
    return {"path": str(folder / "documents"), "tokenizer": str(folder / "tokenizer.json")}


def lines(*texts: str) -> str:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


def test_documents_of_a_folder_that_grows_become_rows_of_tokens(tmp_path: Path) -> None:
    run_path(str(EXAMPLES / "growing_documents.py"))
    first, second = "the mill by the stream", "turns"
    changed = documents(tmp_path, first + second)
    folder = Path(changed["path"])
    (folder / "a.jsonl").write_text(lines(first) + "no document", "utf-8")

    with Pipeline.from_recipe(read("growing_documents.yaml", **changed, rows=2, length=4)) as pipeline:
        batches = [pipeline.get(timeout_s=30).tolist() for _ in range(2)]
        (folder / "b.jsonl").write_text(lines(second), "utf-8")
        batches.append(pipeline.get(timeout_s=30).tolist())
        drops = pipeline.counters()["stages"]["texts"]["drops"]

    ids = [number for batch in batches for row in batch for number in row]
    assert load_tokenizer(changed["tokenizer"]).decode(ids) == (first + second)[: len(ids)]
    assert drops == {"not JSON": 1}


def test_ids_that_fill_no_row_are_counted_and_rows_share_no_work(tmp_path: Path) -> None:
    rows, tokenizer = run_path(str(EXAMPLES / "growing_documents.py"))["Rows"], documents(tmp_path, "abc")["tokenizer"]
    texts: Queue[str] = Queue()
    stage = rows(texts, tokenizer=tokenizer, rows=2, length=4)
    stage.start()
    with texts.producer() as producer:
        producer.put_many(["abcab", "cabcab", "abc"])
    assert [batch.shape for batch in stage.output()] == [(2, 4), (1, 4)]
    assert stage.counters()["drops"] == {"ids behind the last row": 2}
    with pytest.raises(LoaderError, match="on one thread"):
        rows(texts, tokenizer=tokenizer, rows=2, length=4, threads=2)


def growing_texts(folder: Path) -> tuple[Any, Pipeline]:
    """The stage of the example that reads documents, and a pipeline that ends with it."""
    files = Discovery(folder, poll_s=0.05)
    texts = run_path(str(EXAMPLES / "growing_documents.py"))["Documents"](files)
    return texts, Pipeline({"files": files, "texts": texts})


def test_a_document_comes_once_however_often_its_file_grows(tmp_path: Path) -> None:
    _, pipeline = growing_texts(tmp_path)
    came = []
    with pipeline:
        for number in range(3):
            added = [f"text {number}.{each}" for each in range(5)]
            with (tmp_path / "a.jsonl").open("a") as file:
                file.write(lines(*added))
            came += [pipeline.get(timeout_s=30) for _ in added]
            assert came[-5:] == added
    assert pipeline.counters()["stages"]["texts"]["drops"] == {}


def test_what_is_no_document_is_counted_and_named_and_stops_nothing(tmp_path: Path) -> None:
    texts, pipeline = growing_texts(tmp_path)
    bad = ['"caf\xe9"'.encode("latin-1"), b'{"text": "caf\xe9"}', b'{"text": 5}', b"null", b"no JSON"]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([b'{"text": "one\\u2028two"}', *bad, b""]))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines("packed").encode()))
    (tmp_path / "c.jsonl.gz").write_bytes(b"not packed")
    (tmp_path / "d.png").write_bytes(b"...")
    (tmp_path / "e.jsonl").write_text(lines("three\u2028four"), "utf-8")
    with pipeline:
        came = [pipeline.get(timeout_s=30) for _ in range(3)]

    assert came == ["one\u2028two", "packed", "three\u2028four"]
    drops = pipeline.counters()["stages"]["texts"]["drops"]
    assert drops.pop("no JSON lines") == 1 and sum(drops.values()) == len(texts.bad) == 6
    named = [error.where.removeprefix(f"{tmp_path}/") for error in texts.bad]
    assert named == ["a.jsonl:2", "a.jsonl:3", "a.jsonl:4", "a.jsonl:5", "a.jsonl:6", "c.jsonl.gz:1"]


def run_script(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, EXAMPLES / name, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_every_example_runs_as_a_script(tmp_path: Path) -> None:
    changed = documents(tmp_path, "ab")
    (Path(changed["path"]) / "a.jsonl").write_text(lines("ab" * 2048), "utf-8")
    arguments: dict[str, tuple[str | Path, ...]] = {
        "chess_selfplay.py": (example_folder(8, plies=40, folder=tmp_path / "games"), "3"),
        "grpo_loop.py": ("3",),
        "growing_documents.py": (changed["path"], changed["tokenizer"], "2"),
    }
    assert arguments.keys() == {path.name for path in EXAMPLES.glob("*.py")}
    for name, each in arguments.items():
        ended = run_script(name, *each)
        assert (ended.returncode, ended.stderr) == (0, ""), name
        assert len(ended.stdout.splitlines()) == (2 if name == "growing_documents.py" else 3), name


def test_an_example_that_needs_arguments_says_which() -> None:
    ended = run_script("growing_documents.py")

    assert ended.returncode == 1 and ended.stderr.startswith("usage: growing_documents.py FOLDER")
