from __future__ import annotations

import pytest

from millstream.storage import disk


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk; store/test_crash.py looks at what is synced."""
    monkeypatch.setattr(disk, "sync", lambda fd: None)
