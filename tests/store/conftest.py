from __future__ import annotations

import pytest

from millstream.storage import disk
from store.samples import shrink


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk; test_crash.py looks at what is synced, and its killed writers do wait."""
    monkeypatch.setattr(disk, "sync", lambda fd: None)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, buffers and checkpoints of a few bytes."""
    shrink(monkeypatch)
