from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import millstream
from millstream.errors import StoreError
from millstream.store import (
    WEIGHTED,
    TokenStore,
    TokenStoreWriter,
    column_writers,
    compressed_blocks,
    session,
)
from store.crash import Crash, FailingDisk
from store.samples import add, corpus, read_back, shrink, snapshot, write_store

OLD, NEW = corpus(6, seed=3), corpus(10, seed=4)


def crash_at(limit: int, path: Path, *, power: bool, append: bool, **settings: Any) -> bool:
    """Write until operation `limit`; tell whether the writer was finished before."""
    failing = FailingDisk(path.parent, limit)
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        if append:
            write_store(path, OLD, shard_tokens=100, dtype=settings["dtype"])
        failing.remember()
        failing.install(patch)
        try:
            write_store(path, NEW, shard_tokens=100, append=append, **settings)
        except Crash:
            if power:
                failing.blackout()
            return False
    return True


def check_after_crash(path: Path, *, append: bool) -> None:
    """The previous version, the whole new one, or an error that says what this is."""
    try:
        found = read_back(path)
    except StoreError as error:
        assert not append, error
        assert any(words in str(error) for words in ("not finished", "not a store", "no such file")), error
        return
    assert found in ([OLD, OLD + NEW] if append else [NEW])
    assert TokenStore(path).verify().ok


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("compress", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize(
    ("form", "append", "dtype"),
    [("s", False, None), ("s.bin", False, None), ("s", True, None), ("s", False, WEIGHTED)],
)
def test_a_writer_that_stops_at_any_operation_leaves_the_last_version_and_goes_on(
    tmp_path: Path, form: str, append: bool, dtype: str | None, compress: bool, power: bool
) -> None:
    settings: dict[str, Any] = {"compress": compress, "dtype": dtype}
    wanted: dict[str, bytes] = {}
    finished, limit = False, 0
    while not finished:
        limit += 1
        path = tmp_path / str(limit) / form
        path.parent.mkdir()
        finished = crash_at(limit, path, power=power, append=append, **settings)
        check_after_crash(path, append=append)
        with pytest.MonkeyPatch.context() as patch:
            shrink(patch)
            if append:  # `documents` counts the old ones too, so the whole list can be given
                resume_append(path, **settings)
            else:
                write_store(path, NEW, shard_tokens=100, resume=True, **settings)
            wanted = wanted or whole(tmp_path / "whole" / form, append=append, **settings)
        assert snapshot(path.parent) == wanted, f"stopped at operation {limit}"
    assert limit > 40


def resume_append(path: Path, **settings: Any) -> None:
    with TokenStoreWriter(path, shard_tokens=100, append=True, resume=True, **settings) as writer:
        add(writer, (OLD + NEW)[writer.documents :])


def whole(path: Path, *, append: bool, **settings: Any) -> dict[str, bytes]:
    """The files of a store whose writer was never stopped."""
    if append:
        write_store(path, OLD, shard_tokens=100, dtype=settings["dtype"])
    write_store(path, NEW, shard_tokens=100, append=append, **settings)
    return snapshot(path.parent)


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "packed"])
def test_a_writer_killed_again_and_again_ends_with_the_same_bytes(
    tmp_path: Path, compress: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, tests = Path(__file__).with_name("kill_script.py"), Path(__file__).parents[1]
    roots = [str(tests), str(Path(millstream.__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "s"), "40", str(int(compress))],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(roots)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 10, "too few kills came in time"

    monkeypatch.setattr(column_writers, "BLOCK_BYTES", 1024)
    monkeypatch.setattr(session, "BLOCK_BYTES", 1024)
    monkeypatch.setattr(compressed_blocks, "BLOCK_TOKENS", 128)
    write_store(tmp_path / "whole", corpus(2000), shard_tokens=4000, compress=compress)
    assert snapshot(tmp_path / "s") == snapshot(tmp_path / "whole")
