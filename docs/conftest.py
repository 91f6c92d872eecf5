"""The examples of these pages run, each page in an empty folder of its own, so that they may use plain file names."""

from __future__ import annotations

from pathlib import Path

import pytest

collect_ignore = ["fence_doctests.py"]  # needs the tools of `make docs`


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
