"""Parts at rest: whole or not there, within their limit, and never more than the budget."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaders.samples import follows_its_hint
from millstream.errors import BudgetError, BusyError, StoreError
from millstream.storage import disk, sealed
from millstream.streams import KeptInMemory, KeptOnDisk
from millstream.streams.stored_parts import SUFFIXES, UnitTokens

FILES = (".json", *SUFFIXES)


def tokens(count: int = 9, **given: Any) -> UnitTokens:
    how: dict[str, Any] = {"left_out": {"empty": 2}, "changed": {}, "dtype": "uint16", **given}
    origins = np.arange(6).reshape(2, 3)
    return UnitTokens(np.arange(count, dtype=np.uint16), np.array([4, count]), origins, **how)


def body(path: str) -> Any:
    return np.frombuffer(Path(path).read_bytes()[64:], np.uint16).tolist()


@pytest.fixture(params=["disk", "memory"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return KeptOnDisk(tmp_path / "parts") if request.param == "disk" else KeptInMemory()


def test_a_part_is_found_as_it_was_put(kept: Any) -> None:
    assert kept.find(3) is None
    put = kept.put(3, tokens())
    assert kept.find(3) == put
    assert (put.tokens, put.documents, put.bound, put.left_out) == (9, 2, 9, {"empty": 2})
    assert body(kept.paths(3)[0]) == list(range(9))
    assert put.bytes == sum(Path(path).stat().st_size for path in kept.paths(3))


def test_a_part_without_tokens_is_one_too(kept: Any) -> None:
    none = UnitTokens(np.empty(0, np.uint16), np.empty(0, np.int64), np.empty((0, 3), np.int64), {}, {}, "uint16")
    assert kept.put(0, none).tokens == 0
    found = kept.find(0)
    assert found is not None and (found.tokens, found.documents, found.bound) == (0, 0, 0)


def test_another_process_finds_parts_on_a_disk(tmp_path: Path) -> None:
    put = KeptOnDisk(tmp_path).put(3, tokens())
    assert KeptOnDisk(tmp_path).find(3) == put


@pytest.mark.parametrize("suffix", FILES)
@pytest.mark.parametrize("damage", ["flipped", "flipped at its beginning", "short", "long", "empty", "gone"])
def test_a_damaged_part_is_none_and_is_made_again(tmp_path: Path, suffix: str, damage: str) -> None:
    put = KeptOnDisk(tmp_path).put(3, tokens())
    path = tmp_path / f"00000003{suffix}"
    data = bytearray(path.read_bytes())
    middle = max(len(data) // 2, min(64, len(data) - 1))
    changed: dict[str, bytes | bytearray] = {
        "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "flipped at its beginning": data[:9] + bytes([data[9] ^ 1]) + data[10:],
        "short": data[:-2],
        "long": data + b"x",
        "empty": b"",
    }
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(changed[damage])

    kept = KeptOnDisk(tmp_path)
    assert kept.find(3) is None
    assert not (tmp_path / "00000003.json").exists()
    assert kept.put(3, tokens()) == put == KeptOnDisk(tmp_path).find(3)


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": -1},
        {"tokens": 2.5},
        {"documents": True},
        {"left_out": {"empty": "many"}},
        {"left_out": None},
        {"hashes": None},
        {"hashes": [1]},
        {"format": "other"},
        {"more": 1},
    ],
    ids=str,
)
def test_facts_that_say_something_else_are_not_trusted(tmp_path: Path, change: dict[str, Any]) -> None:
    KeptOnDisk(tmp_path).put(3, tokens())
    path = tmp_path / "00000003.json"
    facts = {**json.loads(path.read_text()), **change}
    facts.pop("checksum", None)
    path.write_bytes(sealed(facts))
    assert KeptOnDisk(tmp_path).find(3) is None


@pytest.mark.parametrize("files", range(4))
def test_a_crash_between_the_files_of_a_part_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    renamed: list[Path] = []
    rename = disk.rename

    def crashing(source: Path, target: Path) -> None:
        if len(renamed) == files:
            raise KeyboardInterrupt
        renamed.append(target)
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "rename", crashing)
        with pytest.raises(KeyboardInterrupt):
            KeptOnDisk(tmp_path).put(3, tokens())
    assert not list(tmp_path.glob("*.tmp")), "what was not finished is removed"

    kept = KeptOnDisk(tmp_path)
    assert kept.find(3) is None
    assert kept.put(3, tokens(12)) == KeptOnDisk(tmp_path).find(3)


def test_what_a_killed_process_was_writing_does_not_stay_for_ever(tmp_path: Path) -> None:
    (tmp_path / "00000003.bin.tmp").write_bytes(b"half a part")
    KeptOnDisk(tmp_path).put(3, tokens())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"00000003{suffix}" for suffix in FILES)


def test_a_full_disk_is_said_and_leaves_nothing_that_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write", full)
        with pytest.raises(StoreError) as refused:
            KeptOnDisk(tmp_path).put(3, tokens())
    assert "cache_limit" in follows_its_hint(refused.value)
    assert KeptOnDisk(tmp_path).find(3) is None and not list(tmp_path.iterdir())


def test_one_process_makes_a_part_at_a_time(tmp_path: Path) -> None:
    kept = KeptOnDisk(tmp_path)
    with kept.lock(3):
        with pytest.raises(BusyError), KeptOnDisk(tmp_path).lock(3):
            pass
        with KeptOnDisk(tmp_path).lock(4):
            pass
    with KeptOnDisk(tmp_path).lock(3):
        pass


def test_a_limit_drops_first_what_is_needed_last_and_nothing_that_is_needed(tmp_path: Path) -> None:
    size = KeptOnDisk(tmp_path).put(0, tokens()).bytes
    on_disk = sum(path.stat().st_size for path in tmp_path.iterdir())
    kept = KeptOnDisk(tmp_path, limit=3 * on_disk)
    for unit in range(1, 6):
        kept.put(unit, tokens())
    kept.keep({0, 1}, [5, 0, 3, 2, 4, 1])
    assert [unit for unit in range(6) if kept.find(unit)] == [0, 1, 4]
    kept.limit = 0
    kept.keep({0, 1}, [5, 0, 3, 2, 4, 1])
    assert [unit for unit in range(6) if kept.find(unit)] == [0, 1], "windows in use stay beyond it"
    assert size < on_disk


def test_without_a_limit_everything_stays(tmp_path: Path) -> None:
    kept = KeptOnDisk(tmp_path)
    for unit in range(4):
        kept.put(unit, tokens())
    kept.keep(set(), range(4))
    assert all(kept.find(unit) for unit in range(4))


def test_a_part_that_another_process_makes_is_not_dropped(tmp_path: Path) -> None:
    kept = KeptOnDisk(tmp_path, limit=0)
    for unit in range(2):
        kept.put(unit, tokens())
    with KeptOnDisk(tmp_path).lock(0):
        kept.keep(set(), [0, 1])
    assert kept.find(0) and not kept.find(1)


def test_parts_in_memory_stay_within_the_budget_and_are_dropped_when_they_were_used() -> None:
    size = KeptInMemory().put(0, tokens()).bytes
    kept = KeptInMemory(budget=2 * size)
    for unit in range(2):
        kept.put(unit, tokens())
    assert kept.held_bytes == 2 * size
    with pytest.raises(BudgetError, match="memory_budget leaves them") as refused:
        kept.put(2, tokens())
    assert "cache_dir" in follows_its_hint(refused.value)
    assert kept.find(2) is None and kept.held_bytes == 2 * size
    kept.keep({1}, [0])
    assert kept.find(0) is None and kept.held_bytes == size
    kept.put(2, tokens())
    kept.close()
    assert kept.held_bytes == 0


def test_parts_in_memory_give_their_descriptors_back() -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - numbers
    kept = KeptInMemory()
    for unit in range(20):
        kept.put(unit, tokens())
    assert len(os.listdir("/proc/self/fd")) == before + 60  # noqa: PTH208
    kept.keep({3}, ())
    assert len(os.listdir("/proc/self/fd")) == before + 3  # noqa: PTH208
    kept.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_where_a_system_has_no_unnamed_memory_a_temporary_file_takes_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kept = KeptInMemory()
    kept.put(0, tokens())
    assert body(kept.paths(0)[0]) == list(range(9)) and len(list(tmp_path.iterdir())) == 3
    kept.close()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptOnDisk(tmp_path, limit=0)
    kept.put(0, tokens())

    def refused(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    with monkeypatch.context() as patch:
        patch.setattr("millstream.streams.stored_parts.Lock", refused)
        with pytest.raises(StoreError, match="Permission denied") as told:
            kept.lock(1)
        follows_its_hint(told.value)
        with pytest.raises(StoreError, match="Permission denied"):
            kept.keep(set(), [0])
    with monkeypatch.context() as patch:
        patch.setattr(disk, "remove", refused)
        with pytest.raises(StoreError, match="Permission denied"):
            kept.keep(set(), [0])


def test_a_part_that_changes_after_it_was_found_is_lost_and_checked_again(tmp_path: Path) -> None:
    kept = KeptOnDisk(tmp_path)
    kept.put(0, tokens())
    stamp = kept.stamp(0)
    assert stamp is not None and kept.find(0) and not kept.is_lost(0, stamp)
    path = Path(kept.paths(0)[0])
    changed = bytearray(path.read_bytes())
    changed[-1] ^= 1
    path.write_bytes(changed)
    os.utime(path, ns=(1, 1))  # a clock may be coarse
    assert kept.stamp(0) == stamp, "as it was when it was found"
    assert kept.is_lost(0, stamp) and kept.find(0) is None
    assert kept.stamp(0) is None and kept.is_lost(0, kept.stamp(0))
