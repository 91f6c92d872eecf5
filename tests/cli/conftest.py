"""A small store, made once, and a way to run the command in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from command import Run
from millstream.api import prepare
from millstream.cli import demo
from millstream.cli.main import main


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command: (exit code, stdout, stderr)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for place in range(30):
        (folder / f"{place:02}.txt").write_text(f"chapter {place}\n" + "the mill by the stream\n" * (place * 3 + 1))
    return folder


@pytest.fixture(scope="session")
def corpus(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "corpus"
    prepare(texts, path, "bpe:300")
    return path


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the demo work on a small part of its text."""
    monkeypatch.setattr(demo, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(demo, "VOCABULARY", 512)
