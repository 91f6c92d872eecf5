"""Whatever happens in a folder, and however little of it is noticed: what was told is what is there."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.selfplay import FileFound, FileRemoved, Folder
from millstream.selfplay import folder as folder_module

_PATHS = st.sampled_from(["a", "b.gz", "x/a", "x/b.gz", "x/y/c.tar", ".h/a", "x/d.tmp", "x", "x/y", "z"])
_DEEDS = st.tuples(st.sampled_from(["write", "remove", "move", "hint", "closed", "look", "settle"]), _PATHS, _PATHS)


class Told:
    """Files by what was told: found and not gone."""

    def __init__(self, folder: Folder) -> None:
        self.folder, self.sizes = folder, dict[str, int]()

    def hear(self, events: list[FileFound | FileRemoved]) -> None:
        for event in events:
            if isinstance(event, FileRemoved):
                del self.sizes[event.path]  # nothing is gone that was not found
            else:
                assert event.path not in self.sizes  # nothing is found twice
                self.sizes[event.path] = event.size


def _change(deed: str, path: Path, other: Path, size: int) -> None:
    """Do something to a path, if it can be done."""
    with suppress(OSError):
        if deed == "write":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(1024 * size))
        elif deed == "remove" and path.is_dir():
            shutil.rmtree(path)
        elif deed == "remove":
            path.unlink()
        elif deed == "move" and not other.exists():
            path.rename(other)


def _notice(folder: Folder, deed: str, path: Path) -> list[FileFound | FileRemoved]:
    if deed == "look":
        return [*folder.look()]
    if deed == "settle":
        return folder.settle(0)
    return folder.check(str(path), closed=deed == "closed") if deed in ("hint", "closed") else []


def _there(root: Path) -> dict[str, int]:
    return {
        str(path): path.stat().st_size
        for path in root.rglob("*")
        if path.is_file() and not any(part == ".h" or part.endswith(".tmp") for part in path.relative_to(root).parts)
    }


@settings(deadline=None)
@given(st.lists(_DEEDS, max_size=30))
def test_what_was_told_is_what_is_there(deeds: list[tuple[str, str, str]]) -> None:
    root = Path(mkdtemp())
    told = Told(Folder(str(root), count=_no_reason))
    for number, (deed, path, other) in enumerate(deeds, 1):
        _change(deed, root / path, root / other, number)
        told.hear(_notice(told.folder, deed, root / path))
    told.hear([*told.folder.look()])
    told.hear(told.folder.settle(0))
    assert told.sizes == _there(root)
    assert (len(told.folder), told.folder.waiting) == (len(told.sizes), 0)
    shutil.rmtree(root)


def _no_reason(reason: str) -> None:
    raise AssertionError(reason)


def test_a_file_is_complete_when_it_has_not_changed_for_long_enough(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), count=_no_reason)

    def settled(quiet_s: float) -> list[str]:
        return [Path(each.path).name for each in folder.settle(quiet_s)]

    (tmp_path / "new.gz").write_bytes(b"new")
    (tmp_path / "old.gz").write_bytes(b"old")
    os.utime(tmp_path / "old.gz", (0, 0))
    folder.look()
    assert settled(10) == ["old.gz"]
    (tmp_path / "new.gz").write_bytes(b"newer")
    assert settled(0.01) == []
    assert settled(0) == ["new.gz"]


def test_a_file_that_cannot_be_looked_at_just_now_is_not_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.tar").write_bytes(bytes(1024))
    (tmp_path / "b.tar").write_bytes(bytes(1024))
    folder = Folder(str(tmp_path), count=(reasons := list[str]()).append)
    folder.look()
    folder.settle(0)
    real = folder_module._entries

    def entries(path: str) -> Any:
        found = real(path)
        del found.files["a.tar"], found.files["b.tar"]
        found.broken[str(tmp_path / "a.tar")] = OSError(errno.EIO, "Input/output error")
        return found

    monkeypatch.setattr(folder_module, "_entries", entries)
    assert [Path(gone.path).name for gone in folder.look()] == ["b.tar"]
    assert reasons == ["file: input/output error"]
    monkeypatch.undo()
    assert folder.look() == []
    assert folder.knows(str(tmp_path / "a.tar"))


def test_a_link_to_nowhere_is_counted_and_found_when_it_leads_somewhere(tmp_path: Path) -> None:
    counted: list[str] = []
    folder = Folder(str(tmp_path / "games"), counted.append)
    (tmp_path / "games").mkdir()
    (tmp_path / "games" / "a.gz").symlink_to(tmp_path / "a.gz")
    for _ in range(2):
        assert not folder.look()
    waiting = [folder.waiting]
    (tmp_path / "a.gz").touch()
    folder.look()
    assert [*waiting, folder.waiting] == [0, 1]
    assert counted == ["link to nowhere"]


def _found(folder: Folder) -> list[str]:
    """What is found by looking, by its path in the folder."""
    folder.look()
    return [os.path.relpath(each.path, folder.root) for each in folder.settle(0)]


def _written(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(1024))
    return path


@pytest.mark.parametrize("backwards", [False, True])
def test_a_link_to_a_folder_that_is_listed_anyway_is_passed_over_by_who_is_told_of_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backwards: bool
) -> None:
    """In whatever order the names come: file systems differ in that."""

    def entries(path: str) -> Any:
        found = listed(path)
        found.folders.sort(reverse=backwards)
        return found

    listed = folder_module._entries
    monkeypatch.setattr(folder_module, "_entries", entries)
    root = tmp_path / "root"
    _written(root / "run1/a.gz")
    _written(tmp_path / "elsewhere/b.gz")
    (root / "there").symlink_to(tmp_path / "elsewhere")
    folder = Folder(str(root), count=_no_reason)
    assert _found(folder) == ["run1/a.gz", "there/b.gz"]
    for name, target in {
        "latest": "run1",
        "loop": ".",
        "up": "..",
        "again": "../elsewhere",
        "new/x": "../run1",
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).symlink_to(target)
        assert folder.check(str(root / name.split("/")[0]), closed=True) == []
    assert folder.waiting == 0
    assert _found(folder) == []


def test_a_link_to_a_folder_may_be_renamed_and_lead_elsewhere(tmp_path: Path) -> None:
    root, link = tmp_path / "root", tmp_path / "root/link"
    _written(root / "run1/a.gz")
    targets = [_written(tmp_path / name / "b.gz").parent for name in ("one", "two")]
    told = Told(Folder(str(root), count=_no_reason))

    def after(path: Path) -> list[str]:
        told.hear(told.folder.check(str(path), closed=True))
        told.hear(told.folder.settle(0))
        return sorted(os.path.relpath(each, root) for each in told.sizes)

    assert after(root) == ["run1/a.gz"]
    for target in targets:
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        assert after(link) == ["link/b.gz", "run1/a.gz"]
    link.rename(root / "other")
    assert after(root / "other")[-2:] == ["other/b.gz", "run1/a.gz"]
    assert after(link) == ["other/b.gz", "run1/a.gz"]
    (root / "other").unlink()
    (root / "other").symlink_to("run1")
    assert after(root / "other") == ["run1/a.gz"]


@pytest.mark.parametrize("is_told", [False, True])
def test_a_link_to_another_file_here_is_counted_once_and_left_out(tmp_path: Path, *, is_told: bool) -> None:
    root, counted = tmp_path / "root", list[str]()
    _written(root / "x/a.gz")
    _written(tmp_path / "elsewhere/c.gz")
    folder = Folder(str(root), counted.append)
    if is_told:
        assert _found(folder) == ["x/a.gz"]
    (root / "latest.gz").symlink_to("x/a.gz")
    (root / "there").symlink_to(tmp_path / "elsewhere")
    (root / "latest_there.gz").symlink_to(tmp_path / "elsewhere/c.gz")
    for name in ("there", "latest.gz", "latest_there.gz") if is_told else ():
        assert folder.check(str(root / name), closed=True) == []
    assert _found(folder) == (["there/c.gz"] if is_told else ["x/a.gz", "there/c.gz"])
    assert _found(folder) == []
    assert counted == ["link to another file here"] * 2


def test_a_link_is_followed_to_what_would_not_be_read_without_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    _written(root / ".store/a")
    _written(root / ".runs/b.gz")
    _written(root / "blobs/0123abc")
    _written(tmp_path / "elsewhere/c.gz")
    for name, target in {
        "a.gz": ".store/a",
        "runs": ".runs",
        "named.gz": "blobs/0123abc",
        "c.gz": "../elsewhere/c.gz",
    }.items():
        (root / name).symlink_to(target)
    folder = Folder(str(root), count=_no_reason)
    assert sorted(_found(folder)) == ["a.gz", "blobs/0123abc", "c.gz", "named.gz", "runs/b.gz"]


def test_a_file_that_a_link_to_another_one_takes_the_place_of_is_gone(tmp_path: Path) -> None:
    _written(tmp_path / "a.gz")
    link = _written(tmp_path / "b.gz")
    folder = Folder(str(tmp_path), count=(reasons := list[str]()).append)
    assert _found(folder) == ["a.gz", "b.gz"]
    link.unlink()
    link.symlink_to("a.gz")
    assert folder.check(str(link), closed=True) == [FileRemoved(str(link))]
    assert reasons == ["link to another file here"]
