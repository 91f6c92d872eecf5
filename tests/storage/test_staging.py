"""A store appears whole or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from millstream.errors import StoreError
from millstream.storage import disk, staged
from millstream.store import TokenStore
from store.crash import Crash, FailingDisk
from store.samples import corpus, read_back, shrink, snapshot, write_store

OLD, NEW = corpus(6, seed=3), corpus(9, seed=4)


def build(path: Path, content: str) -> None:
    path.mkdir()
    (path / "manifest.json").write_text(content)


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="boom"), staged(tmp_path / "corpus") as path:
        build(path, "new")
        raise ValueError("boom")

    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_old_store_in_its_place(tmp_path: Path) -> None:
    build(tmp_path / "corpus", "old")

    with pytest.raises(ValueError, match="boom"), staged(tmp_path / "corpus", overwrite=True):
        raise ValueError("boom")

    assert (tmp_path / "corpus" / "manifest.json").read_text() == "old"


def test_two_writers_of_one_store_do_not_disturb_each_other(tmp_path: Path) -> None:
    with staged(tmp_path / "corpus") as path:
        with pytest.raises(StoreError, match="another process"), staged(tmp_path / "corpus"):
            pass
        build(path, "first")

    assert (tmp_path / "corpus" / "manifest.json").read_text() == "first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["corpus"]


def test_what_a_killed_run_left_is_swept_away(tmp_path: Path) -> None:
    (tmp_path / ".corpus.preparing" / "corpus" / "versions").mkdir(parents=True)
    (tmp_path / ".corpus.preparing" / "note").touch()

    with staged(tmp_path / "corpus") as path:
        assert not path.exists()
        build(path, "new")

    assert [entry.name for entry in tmp_path.iterdir()] == ["corpus"]


def test_an_empty_folder_may_become_a_store(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()

    with staged(tmp_path / "corpus") as path:
        build(path, "new")

    assert (tmp_path / "corpus" / "manifest.json").read_text() == "new"


def test_a_single_file_is_replaced_with_its_companions(tmp_path: Path) -> None:
    for name in ("data.bin", "data.idx"):
        (tmp_path / name).write_text("old")

    with staged(tmp_path / "data.bin", overwrite=True) as path:
        for suffix in (".bin", ".idx", ".json"):
            path.with_suffix(suffix).write_text("new")

    assert {entry.name: entry.read_text() for entry in tmp_path.iterdir()} == {
        "data.bin": "new",
        "data.idx": "new",
        "data.json": "new",
    }


def test_files_that_are_not_of_a_store_are_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text("mine")

    with pytest.raises(StoreError, match=r"data.json: is in the way"), staged(tmp_path / "data.bin", overwrite=True):
        pass

    assert (tmp_path / "data.json").read_text() == "mine"


def test_a_failure_while_the_old_store_is_moved_out_puts_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / "corpus", "old")

    with (
        pytest.raises(StoreError, match="corpus: Input/output error"),
        staged(tmp_path / "corpus", overwrite=True) as path,
    ):
        build(path, "new")
        monkeypatch.setattr(disk, "publish", failing)

    assert (tmp_path / "corpus" / "manifest.json").read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["corpus"]


def failing(path: Path, data: bytes) -> None:
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("form", ["s", "s.bin"])
def test_a_replacement_that_stops_at_any_operation_leaves_the_old_store_or_the_new_one(
    tmp_path: Path, form: str, power: bool
) -> None:
    finished, limit = False, 0
    seen = set()
    while not finished:
        limit += 1
        path = tmp_path / str(limit) / form
        finished = replace_until(limit, path, power=power)
        seen.add(opens_as(path))
        with pytest.raises(StoreError, match="this store exists"), staged(path):
            pass  # puts in order what the killed run left, and writes nothing
        assert opens_as(path) in ("old", "new"), f"stopped at operation {limit}"
        assert TokenStore(path).verify().ok
        with staged(path, overwrite=True) as place:
            write_store(place, NEW)
        assert opens_as(path) == "new"
        assert snapshot(path.parent).keys() == snapshot(tmp_path / "1").keys()
    assert seen == {"old", "nothing", "new"}


def replace_until(limit: int, path: Path, *, power: bool) -> bool:
    """Replace an old store by a new one up to operation `limit`; tell whether all was done before."""
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        write_store(path, OLD)
        failing = FailingDisk(path.parent, limit)
        failing.remember()
        failing.install(patch)
        try:
            with staged(path, overwrite=True) as place:
                write_store(place, NEW)
        except Crash:
            if power:
                failing.blackout()
            return False
    return True


def opens_as(path: Path) -> str:
    try:
        return {str(OLD): "old", str(NEW): "new"}[str(read_back(path))]
    except StoreError as error:
        assert "is being prepared, or its `prepare` was killed" in str(error)
        return "nothing"


def test_what_a_bookmark_lies_beside_outlives_a_failure_and_a_resumed_run_finds_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match="boom"), staged(tmp_path / "corpus", bookmark=".mark") as path:
        build(path, "half")
        (path.parent / ".mark").touch()
        raise ValueError("boom")

    with pytest.raises(ValueError, match="again"), staged(tmp_path / "corpus", bookmark=".mark", resume=True) as path:
        assert (path / "manifest.json").read_text() == "half"
        raise ValueError("again")

    with staged(tmp_path / "corpus", bookmark=".mark") as path:
        assert list(path.parent.iterdir()) == []
        build(path, "new")
    assert "what an unfinished run left behind is removed" in caplog.text
    assert [entry.name for entry in tmp_path.iterdir()] == ["corpus"]
