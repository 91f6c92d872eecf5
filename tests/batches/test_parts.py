"""Rows of shards that lie anywhere, in files that are named one by one, some of which are not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millstream import StoreError
from millstream._core import Feed
from millstream.batches import Engine, EngineSettings, feed_source, packing_of
from millstream.order import PhaseSettings, Schedule, Share, Shuffle, Windows
from millstream.store import Opened, Row, TokenStore, rows_of
from store.samples import write_store

LENGTH = 8
HOLE = 64 * LENGTH
"""Tokens of a first shard that lies nowhere."""
PARTS = [[list(range(20)), list(range(20, 57))], [list(range(57, 60))], [list(range(60, 200))]]
"""Documents of the shards behind it: rows cross from each to the next."""


@contextmanager
def parts_store(folder: Path, *, in_memory: bool) -> Iterator[TokenStore]:
    """A store of a hole and a few parts, which lie in folders of their own or in memory."""
    rows, paths, files = [Row(HOLE, 1, 0, 0, 0)], [(str(folder / "none"), str(folder / "none.idx"))], []
    for number, texts in enumerate(PARTS):
        part = TokenStore(write_store(folder / f"part{number}", texts))
        tokens, documents, tag, bound = (int(part.layout.table[0, column]) for column in (1, 3, 4, 5))
        rows.append(Row(tokens, documents, tag, bound, 0))
        pair = [part.layout.path_of(0, suffix) for suffix in (".bin", ".idx")]
        if in_memory:
            for file in pair:
                files.append(os.memfd_create(file.name))
                os.write(files[-1], file.read_bytes())
            pair = [Path(f"/proc/self/fd/{file}") for file in files[-2:]]
        paths.append((str(pair[0]), str(pair[1])))
    layout = replace(part.layout, directory="", table=rows_of(rows), paths=tuple(paths))
    try:
        yield TokenStore.of(folder, Opened("directory", layout, {**part.manifest}))
    finally:
        for fd in files:
            os.close(fd)


@contextmanager
def engine_over(
    store: TokenStore, documents: str, shuffle: Shuffle, *, first: int, epoch: int
) -> Iterator[tuple[Engine, list[list[int]]]]:
    """An engine that fills from a row of an epoch on, and the samples of the steps that follow."""
    whole = (len(store) - 1) // LENGTH
    bins = (HOLE // LENGTH, 0, 7, 0, whole - HOLE // LENGTH - 7)
    windows = {"data": Windows(bins, rows=0, capacity=LENGTH, always_in_order=True, gaps=(0,))}
    schedule = Schedule.start(PhaseSettings(3, LENGTH, 2, {"data": Share(whole, shuffle, packed=True)}), windows)
    steps = range(epoch * -(-whole // 2) + first // 2, (epoch + 1) * -(-whole // 2))
    phase = schedule.phases[0]
    engine = Engine(EngineSettings(threads=2))
    source = feed_source(store.layout, 0, documents)

    def feed() -> Feed:
        return Feed([source], phase.plan(3, windows), LENGTH, "next", 0, 8)

    try:
        engine.start(feed, phase.clock(), 2, steps[0], steps[-1] + 1)
        yield engine, [schedule.rows(step)[1].tolist() for step in steps]
    finally:
        engine.stop()


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("documents", ["attend", "isolate"])
@pytest.mark.parametrize("shuffle", ["none", "global", "local"])
@pytest.mark.parametrize("epoch", [0, 1])
def test_rows_of_parts_are_filled_and_a_hole_is_never_opened(
    tmp_path: Path, shuffle: Any, documents: str, in_memory: bool, epoch: int
) -> None:
    with parts_store(tmp_path, in_memory=in_memory) as store:
        first = HOLE // LENGTH
        with engine_over(store, documents, shuffle, first=first, epoch=epoch) as (engine, steps):
            found = [engine.take().column(0).tolist() for _ in steps]
    wanted = [[list(range(LENGTH * (row - first), LENGTH * (row - first) + LENGTH)) for row in step] for step in steps]

    assert found == wanted
    assert sorted(row for step in steps for row in step) == list(range(first, first + 199 // LENGTH))


def test_a_row_of_the_hole_names_the_file_that_is_not_there(tmp_path: Path) -> None:
    with (
        parts_store(tmp_path, in_memory=False) as store,
        engine_over(store, "attend", "none", first=0, epoch=0) as (engine, _),
        pytest.raises(StoreError, match="none: cannot be opened"),
    ):
        engine.take()


def test_a_store_of_parts_is_read_where_its_files_are(tmp_path: Path) -> None:
    with parts_store(tmp_path, in_memory=True) as store:
        assert (len(store), store.documents) == (HOLE + 200, 5)
        assert store[HOLE + 15 : HOLE + 70].tolist() == list(range(15, 70))
        assert store.document(3).tolist() == [57, 58, 59]
        assert store.layout.path_of(0) == tmp_path / "none"
        assert store.layout.path_of(0, ".idx") == tmp_path / "none.idx"
        with pytest.raises(StoreError, match="missing"):
            store[0]


def test_documents_of_parts_can_be_packed(tmp_path: Path) -> None:
    with parts_store(tmp_path, in_memory=True) as store:
        table = rows_of([Row(*(int(row[column]) for column in (1, 3, 4, 5, 6))) for row in store.layout.table[1:]])
        packing = packing_of(replace(store.layout, table=table, paths=store.layout.paths[1:]), 8, 100, None)

        assert [packing.documents(sample) for sample in range(packing.samples)] == [[3], [1, 0, 2]]


def test_names_for_some_shards_only_are_refused(tmp_path: Path) -> None:
    with parts_store(tmp_path, in_memory=False) as store, pytest.raises(ValueError, match="each of its shards"):
        feed_source(replace(store.layout, paths=store.layout.paths[1:]), 0, "attend")
