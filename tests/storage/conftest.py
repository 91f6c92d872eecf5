from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.storage import disk


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk; store/test_crash.py looks at what is synced."""
    monkeypatch.setattr(disk, "sync", lambda fd: None)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder on the disk that holds the tests: what all durable files go through is tested on one, not in memory."""
    build = Path(__file__).parents[2] / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
