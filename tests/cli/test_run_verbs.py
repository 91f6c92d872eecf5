"""explain, bench and demo: what they say is what the loader does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command import Run
from millstream.loaders import PretrainDataLoader
from millstream.store import TokenStore

RUN = ("--chunk-size", 16, "--batch-size", 4, "--seed", 3)


def test_explain_names_the_documents_behind_each_row(run: Run, corpus: Path) -> None:
    code, out, _ = run("explain", corpus, "--step", 2, *RUN, "--json")

    store = TokenStore(corpus)
    with PretrainDataLoader(store, chunk_size=16, batch_size=4, seed=3, framework="numpy") as loader:
        for _ in range(3):
            batch = loader.next()
    assert code == 0
    for row in json.loads(out)["rows"]:
        pieces = [store.document(span["document"])[span["start"] : span["stop"]] for span in row["spans"]]
        assert np.concatenate(pieces).tolist() == np.asarray(batch.input_ids[row["row"]]).tolist()
        assert all(span["file"] == f"{span['document']:02}.txt" for span in row["spans"])


def test_explain_shows_files_tokens_and_text_to_people(run: Run, corpus: Path) -> None:
    code, out, _ = run("explain", corpus, "--step", 0, "--row", 1, *RUN)

    assert code == 0
    assert out.startswith("step 0: ")
    assert ".txt:1  document " in out
    assert "row 1" in out
    assert "row 0" not in out


def test_explain_finds_the_steps_of_a_document(run: Run, corpus: Path) -> None:
    facts = json.loads(run("explain", corpus, "--document", 5, *RUN, "--json")[1])

    assert facts["file"] == "05.txt"
    for step in facts["steps"]:
        rows = json.loads(run("explain", corpus, "--step", step, *RUN, "--json")[1])["rows"]
        assert any(span["document"] == 5 for row in rows for span in row["spans"])
    assert "is used in" in run("explain", corpus, "--document", 5, *RUN)[1]


def test_explain_refuses_what_is_not_there(run: Run, corpus: Path) -> None:
    assert "there is no document 30 among 30" in run("explain", corpus, "--document", 30, *RUN)[2]
    assert run("explain", corpus, "--step", -1, *RUN)[0] == 2
    assert "pass --step, --document or --state" in run("explain", corpus)[2]


@pytest.mark.parametrize("row", [99, -1])
def test_explain_refuses_a_row_that_is_not_there(run: Run, corpus: Path, row: int) -> None:
    code, out, err = run("explain", corpus, "--step", 0, "--row", row, *RUN)

    assert (code, out) == (2, "")
    assert f"step 0 has no row {row}, only 4 rows" in err
    assert "hint: rows count from 0 to 3" in err


@pytest.fixture
def saved(corpus: Path, tmp_path: Path) -> tuple[Path, list[list[int]]]:
    """The state of a run with settings of its own, and the rows of its next step."""
    settings: dict[str, Any] = {"chunk_size": 24, "batch_size": 3, "seed": 7, "shuffle": "local", "name": "mill"}
    with PretrainDataLoader(corpus, framework="numpy", world_size=2, rank=1, tail="pad", **settings) as loader:
        loader.next()
        path = tmp_path / "state.json"
        path.write_text(json.dumps(loader.state_dict()))
        return path, np.asarray(loader.next().input_ids).tolist()


def test_explain_knows_the_run_and_the_step_from_a_saved_state(
    run: Run, corpus: Path, saved: tuple[Path, list[list[int]]]
) -> None:
    state, rows = saved
    code, out, _ = run("explain", corpus, "--state", state, "--rank", 1, "--json")

    store, answer = TokenStore(corpus), json.loads(out)
    assert (code, answer["step"]) == (0, 1)
    for row in answer["rows"]:
        pieces = [store.document(span["document"])[span["start"] : span["stop"]] for span in row["spans"]]
        assert np.concatenate(pieces).tolist() == rows[row["row"]]
    assert run("explain", corpus, "--state", state, "--step", 0)[1].startswith("step 0: 3 rows of 24 tokens")
    assert "--seed and --state exclude each other" in run("explain", corpus, "--state", state, "--seed", 7)[2]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot be read"),
        ("no", "not JSON"),
        ("[1]", "not the state"),
        ('{"format": "millstream state"}', "state of a None loader"),
    ],
)
def test_explain_refuses_a_file_that_is_no_state(
    run: Run, corpus: Path, tmp_path: Path, content: str | None, complaint: str
) -> None:
    path = tmp_path / "state.json"
    if content is not None:
        path.write_text(content)

    code, _, err = run("explain", corpus, "--state", path)

    assert code == 2
    assert complaint in err
    assert "hint: " in err


def test_bench_sets_the_loader_beside_plain_copies(run: Run, corpus: Path) -> None:
    code, out, _ = run("bench", corpus, "--seconds", 0.1, *RUN, "--json")

    result = json.loads(out)
    assert code == 0
    assert result["tokens_per_second"] > 0
    assert result["next_p50_ms"] <= result["next_p99_ms"]
    assert result["ratio_to_numpy_gather"] == pytest.approx(
        result["tokens_per_second"] / result["numpy_gather_tokens_per_second"]
    )


def test_bench_prints_ratios_for_people(run: Run, corpus: Path) -> None:
    out = run("bench", corpus, "--seconds", 0.1, *RUN)[1]

    assert "tokens/s" in out
    assert "memcpy" in out


@pytest.mark.parametrize("size", ["--chunk-size", "--batch-size"])
def test_bench_needs_at_least_one_whole_batch(run: Run, corpus: Path, size: str) -> None:
    code, _, err = run("bench", corpus, "--chunk-size", 16, size, 1_000_000)

    assert code == 2
    assert "do not fill a batch" in err
    assert size in err


@pytest.mark.filterwarnings("always")
def test_rows_that_the_store_lacks_are_told_beside_the_answer_without_a_line_of_code(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "the mill by the stream runs"}\nno json\n')
    run("prepare", tmp_path / "a.jsonl", tmp_path / "store", "--tokenizer", "char", "--on-bad", "skip")

    code, out, err = run("explain", tmp_path / "store", "--document", 0, "--chunk-size", 8)

    assert code == 0 and "left out" not in out
    assert [line for line in err.splitlines() if "left out" in line] == [
        f"warning: left out: 1 of 2 rows, most often 'not JSON' (1) (report: {tmp_path / 'store/report.html'})"
    ]
