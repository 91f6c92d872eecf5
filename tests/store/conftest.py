from __future__ import annotations

import pytest

from store.samples import shrink


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, buffers and checkpoints of a few bytes."""
    shrink(monkeypatch)
