"""A chained log holds what was said, whatever was torn; what is said again is not written again."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forks import in_child
from millstream.errors import BusyError, StateError, StoreError
from millstream.storage import ChainedLog, LogReader, Position, disk

FORMAT = "test 1"
START = Position.start(FORMAT)


def said(path: Path) -> list[int]:
    return [line["n"] for line in LogReader(path, START)]


def written(path: Path, *numbers: int) -> list[Position]:
    log = ChainedLog(path, FORMAT)
    positions = [START, *(log.write({"n": number}) for number in numbers)]
    log.close()
    return positions


@given(st.lists(st.integers(0, 2), max_size=6), st.integers(0, 6), st.lists(st.integers(0, 2), min_size=1, max_size=6))
def test_what_is_said_again_stays_and_from_the_first_difference_on_it_is_cut_off(
    tmp_path_factory: pytest.TempPathFactory, first: list[int], back: int, second: list[int]
) -> None:
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    positions = written(path, *first)
    back = min(back, len(first))
    log = ChainedLog(path, FORMAT, positions[back])
    assert said(path) == first  # nothing is lost before something else is said
    for number, each in enumerate(second):
        position = log.write({"n": each})
        told, rest = first[:back] + second[: number + 1], first[back + number + 1 :]
        alike = first[: len(told)] == told
        assert said(path) == (told + rest if alike else told)
        if alike and len(told) < len(positions):
            assert position == positions[len(told)]
    log.cut()
    assert said(path) == first[:back] + second
    log.close()


@pytest.mark.parametrize("torn", range(1, 40, 7))
def test_a_line_that_was_being_written_is_written_again(tmp_path: Path, torn: int) -> None:
    path = tmp_path / "log.jsonl"
    positions = written(path, 1, 2)
    data = path.read_bytes()
    path.write_bytes(data[:-torn])
    assert said(path) == [1]
    log = ChainedLog(path, FORMAT, positions[1])
    log.write({"n": 2})
    log.close()
    assert path.read_bytes() == data


def test_a_full_disk_is_named_and_the_log_goes_on_when_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "log.jsonl", disk.write
    log = ChainedLog(path, FORMAT)
    log.write({"n": 1})

    def full(fd: int, data: Any, offset: int) -> None:
        write(fd, data[:20], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk, "write", full)
    with pytest.raises(StoreError, match=r"log\.jsonl: No space left"):
        log.write({"n": 2, "long": "x" * 50})
    monkeypatch.setattr(disk, "write", write)
    log.write({"n": 3})
    log.close()
    assert said(path) == [1, 3]


def test_a_position_of_another_log_and_a_second_writer_are_refused(tmp_path: Path) -> None:
    position = written(tmp_path / "a.jsonl", 1)[1]
    written(tmp_path / "b.jsonl", 2)
    with pytest.raises(StateError, match="not the journal of the state"):
        ChainedLog(tmp_path / "b.jsonl", FORMAT, position)
    log = ChainedLog(tmp_path / "a.jsonl", FORMAT)
    with pytest.raises(StoreError, match="another writer"):
        ChainedLog(tmp_path / "a.jsonl", FORMAT)
    log.close()


def test_what_belongs_to_a_log_is_put_aside_and_brought_back_with_it(tmp_path: Path) -> None:
    path, rows, folder = tmp_path / "log.jsonl", tmp_path / "rows", tmp_path / "windows"
    how: dict[str, Any] = {"beside": ("rows", "windows")}

    def filled(anew: bool, text: str) -> Position:
        with ChainedLog(path, FORMAT, anew=anew, **how) as log:
            position = log.write({"n": text})
        rows.write_text(text)
        folder.mkdir()
        (folder / text).touch()
        return position

    first, second = filled(False, "a"), filled(True, "b")
    for position, text in ((first, "a"), (second, "b"), (second, "b"), (first, "a")):
        ChainedLog(path, FORMAT, position, **how).close()
        assert (rows.read_text(), [each.name for each in folder.iterdir()]) == (text, [text])
    assert len(list(tmp_path.iterdir())) == 6


def test_lines_that_nobody_wants_are_checked_all_the_same(tmp_path: Path) -> None:
    log = ChainedLog(tmp_path / "log.jsonl", FORMAT)
    last = log.write({"a": 1}, {"b": '"a":'}, {"a": 2})
    log.close()
    reader = LogReader(log.path, START)
    assert list(reader.having("a")) == [{"a": 1}, {"a": 2}]
    assert reader.position == last
    log.path.write_bytes(log.path.read_bytes().replace(b'"b"', b'"c"'))
    with pytest.raises(StoreError, match="entry 1, byte"):
        list(LogReader(log.path, START).having("a"))


def test_a_forked_child_takes_no_lock_away(tmp_path: Path) -> None:
    with ChainedLog(tmp_path / "log", FORMAT) as log:
        in_child(log.close)()
        with pytest.raises(BusyError):
            ChainedLog(tmp_path / "log", FORMAT)
        log.write({"a": 1})


def test_a_line_that_could_not_be_synced_is_cut_off_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.jsonl"
    with ChainedLog(path, FORMAT) as log:
        log.write({"n": 0})
        with monkeypatch.context() as patch, pytest.raises(StoreError, match="No space"):
            patch.setattr(disk, "sync", refusing)
            log.write({"a line that is longer than the next one": "x" * 100})
        log.write({"n": 1})

    assert list(LogReader(path, START)) == [{"n": 0}, {"n": 1}]


@pytest.mark.parametrize("step", [None, "create", "write", "sync", "rename", "sync_directory"])
def test_a_log_is_replaced_whole_or_not_at_all_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str | None
) -> None:
    path = tmp_path / "log.jsonl"
    with ChainedLog(path, FORMAT) as log:
        log.write({"n": 0}, {"n": 1})
        if step is None:
            log.replace({"n": 10})
        else:
            with monkeypatch.context() as patch, pytest.raises(StoreError, match="No space"):
                patch.setattr(disk, step, refusing)
                log.replace({"n": 10})
        is_new = step in (None, "sync_directory")  # it had its name already
        log.write({"n": 2})

        assert log.position.entries == (2 if is_new else 3)
    assert list(LogReader(path, START)) == [*([{"n": 10}] if is_new else [{"n": 0}, {"n": 1}]), {"n": 2}]


def refusing(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
