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

from millstream.live import Found, Gone
from millstream.live import folder as folder_module
from millstream.live.folder import Folder

_PATHS = st.sampled_from(["a", "b.gz", "x/a", "x/b.gz", "x/y/c.tar", ".h/a", "x/d.tmp", "x", "x/y", "z"])
_DEEDS = st.tuples(st.sampled_from(["write", "remove", "move", "hint", "closed", "look", "settle"]), _PATHS, _PATHS)


class Told:
    """Files by what was told: found and not gone."""

    def __init__(self, folder: Folder) -> None:
        self.folder, self.sizes = folder, dict[str, int]()

    def hear(self, events: list[Found | Gone]) -> None:
        for event in events:
            if isinstance(event, Gone):
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


def _notice(folder: Folder, deed: str, path: Path) -> list[Found | Gone]:
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
        files, folders, _ = real(path)
        del files["a.tar"], files["b.tar"]
        return files, folders, {str(tmp_path / "a.tar"): OSError(errno.EIO, "Input/output error")}

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
