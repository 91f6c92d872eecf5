"""Waiting for a store that grows: soon told, and little work while nothing happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from millstream.loaders.growing import BackgroundPrepare
from millstream.loaders.growing import background_prepare as following
from millstream.storage import staging_folder
from millstream.store import TokenStoreWriter, open_unfinished


@pytest.fixture
def growth(tmp_path: Path) -> Iterator[BackgroundPrepare]:
    """One whose maker is busy elsewhere: the test itself writes."""
    over = threading.Event()

    def make(_: Any) -> None:
        over.wait()

    made = BackgroundPrepare(tmp_path / "corpus", make, [])
    yield made
    made.stop()
    over.set()
    made.close()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[TokenStoreWriter]:
    unfinished = staging_folder(tmp_path / "corpus") / "corpus"
    unfinished.parent.mkdir()
    with TokenStoreWriter(unfinished) as made:
        yield made


def write(writer: TokenStoreWriter, tokens: list[int]) -> None:
    writer.append(tokens)
    writer.finish_shard()


def test_nothing_is_read_again_while_nothing_changed(
    growth: BackgroundPrepare, writer: TokenStoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def counted(*given: Any) -> Any:
        looks.append(time.monotonic())
        return open_unfinished(*given)

    monkeypatch.setattr(following, "open_unfinished", counted)
    monkeypatch.setattr(following, "_ANYWAY_S", 60.0)
    write(writer, [1, 2])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(growth.wait, 1)
        time.sleep(0.5)
        assert len(looks) == 1 and not waiting.done()

        write(writer, [3])
        store, complete = waiting.result(10)
        assert (store.documents, complete) == (2, False)


def test_a_change_that_does_not_show_is_found_a_little_later(
    growth: BackgroundPrepare, writer: TokenStoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems of a network may tell of a new file late."""
    monkeypatch.setattr(following, "_ANYWAY_S", 0.1)
    monkeypatch.setattr(following, "stamp_of", lambda path: None)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(growth.wait, 0)
        time.sleep(0.05)
        write(writer, [1, 2])
        assert waiting.result(10)[0].documents == 1
