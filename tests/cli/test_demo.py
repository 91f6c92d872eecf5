"""The demo works alone, learns something, and works again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from command import Run
from millstream.cli import demo
from millstream.cli.tiny_model import TinyModel
from millstream.stats import Progress
from millstream.store import TokenStore
from unloading import unload


def test_the_demo_learns_explains_and_resumes_and_can_run_again(run: Run, tmp_path: Path, few_files: None) -> None:
    code, out, _ = run("demo", "--output", tmp_path / "demo", "--steps", 40, "--json")
    again, text, _ = run("demo", "--output", tmp_path / "demo", "--steps", 13)

    facts = json.loads(out)
    assert (code, again) == (0, 0)
    assert facts["losses"][-1] < facts["losses"][0] - 0.5
    assert facts["held_out_after"] < facts["held_out_before"] - 0.5
    assert facts["resumed_equal"]
    assert facts["explained"]["equal"]
    assert facts["explained"]["file"].endswith(".py")
    assert "✓ resumed" in text
    assert "✓ explained" in text
    assert TokenStore(tmp_path / "demo" / "corpus").verify().ok


def test_the_demo_runs_without_library_sources_and_without_tokenizers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_sources", lambda: iter(()))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    unload(monkeypatch, "millstream.tokens.huggingface")

    code, out, _ = run("demo", "--output", tmp_path / "demo", "--steps", 13)

    assert code == 0
    assert "its sources are not installed here" in out
    assert "one token per character" in out


def test_learning_ends_at_the_total_whatever_the_files_hold(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ünï" * 50)
    seen: list[Progress] = []

    demo._learn([tmp_path / "a.txt"], seen.append)

    assert seen[-1].fraction == 1.0


def test_documentation_can_be_found_by_import_alone(tmp_path: Path) -> None:
    files = demo.write_documentation(tmp_path)

    assert sum(path.stat().st_size for path in files) > 300_000
    assert all(path.read_text(encoding="utf-8") for path in files)


def test_the_slopes_of_the_tiny_model_are_those_of_its_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    contexts, targets = generator.integers(0, 7, (12, 3)), generator.integers(0, 7, 12)
    model = TinyModel(7, context=3, width=4, hidden=5)
    before = {name: weight.copy() for name, weight in model.weights.items()}
    slopes: dict[str, np.ndarray] = {}
    monkeypatch.setattr(model, "_adam", lambda found, rate: slopes.update(found))

    model.train(contexts, targets)

    for name, weight in before.items():
        place = tuple(int(length) // 2 for length in weight.shape)
        losses = []
        for step in (1e-2, -1e-2):
            model.weights = {key: value.astype(np.float64) for key, value in before.items()}
            model.weights[name][place] += step
            losses.append(model.loss(contexts, targets))
        assert slopes[name][place] == pytest.approx((losses[0] - losses[1]) / 2e-2, abs=1e-4)
