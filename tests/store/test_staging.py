"""A store appears whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import StoreError
from millstream.store.staging import staged


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


def test_a_run_killed_between_the_two_renames_loses_no_store(tmp_path: Path) -> None:
    build(tmp_path / "corpus", "old")
    (tmp_path / ".corpus.preparing").mkdir()
    (tmp_path / "corpus").rename(tmp_path / ".corpus.preparing" / ".replaced")

    with pytest.raises(StoreError, match="this store exists"), staged(tmp_path / "corpus"):
        pass

    assert (tmp_path / "corpus" / "manifest.json").read_text() == "old"


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
