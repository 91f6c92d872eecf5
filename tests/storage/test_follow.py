"""Who follows a log reads the lines of one run, whatever lies there, is torn, or begins anew meanwhile."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import OrderError, StateError, StoreError
from millstream.storage import ChainedLog, FollowedLog, LogReader, Position, announce, announced, disk, forget
from storage.test_log import FORMAT, START, written


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


@pytest.fixture
def log(path: Path) -> Iterator[ChainedLog]:
    with ChainedLog(path, FORMAT) as log:
        announce(path, log.position)
        yield log


def begin_anew(log: ChainedLog, *numbers: int) -> None:
    log.go_back(START)
    log.cut()
    announce(log.path, START)
    for number in numbers:
        log.write({"n": number})


def while_read(monkeypatch: pytest.MonkeyPatch, when: str, happens: Callable[[], None]) -> None:
    """Something happens before or behind the next reading of a line, and after it was asked whose it is."""
    read = LogReader.read

    def interrupted(reader: LogReader) -> dict[str, Any] | None:
        monkeypatch.setattr(LogReader, "read", read)
        if when == "before":
            happens()
        said = read(reader)
        if when == "behind":
            happens()
        return said

    monkeypatch.setattr(LogReader, "read", interrupted)


def test_who_follows_waits_for_the_run_that_begins_where_it_stands(path: Path) -> None:
    positions = written(path, 1, 2)
    announce(path, START)
    forget(path)  # whoever wrote it is gone
    follower = FollowedLog(path, positions[1])
    assert follower.read() is None
    log = ChainedLog(path, FORMAT, positions[1])
    announce(path, START)
    assert not follower.has_begun()
    announce(path, positions[1])
    forget(path)  # it is being written
    assert follower.read() == {"n": 2}
    assert follower.read() is None
    log.write({"n": 3})
    with pytest.raises(StateError, match="another way"):
        log.write({"n": 4}, {"n": 5}, {"n": 6})
        follower.read()
    announce(path, START)
    with pytest.raises(StateError, match="begun anew"):
        follower.read()
    assert FollowedLog(path, START, over=None).has_begun()
    log.close()


@pytest.mark.parametrize("torn", range(1, 40, 7))
def test_a_line_is_read_when_it_is_whole(path: Path, log: ChainedLog, torn: int) -> None:
    follower = FollowedLog(path, START)
    log.write({"n": 1})
    data = path.read_bytes()
    path.write_bytes(data[:-torn])
    assert follower.read() is None
    path.write_bytes(data)
    assert list(follower) == [{"n": 1}]


def test_a_log_that_was_cut_and_says_something_else_is_noticed(path: Path, log: ChainedLog) -> None:
    follower = FollowedLog(path, START)
    first = log.write({"n": 1})
    log.write({"n": 2})
    assert list(follower) == [{"n": 1}, {"n": 2}]
    log.go_back(first)
    log.cut()
    assert follower.read() is None
    log.write({"n": 3}, {"n": 4})
    for _ in range(2):
        with pytest.raises(
            StateError, match=r"another way .*log\.jsonl: entry 2, byte \d+: (.|\n)*hint: load the same"
        ):
            follower.read()


@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_line_that_is_read_while_another_run_begins_is_none_of_either(
    path: Path, log: ChainedLog, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    follower = FollowedLog(path, START)
    log.write({"n": 1})
    while_read(monkeypatch, when, lambda: begin_anew(log, 7, 8))
    assert follower.read() is None
    assert list(follower) == [{"n": 7}, {"n": 8}]


def test_a_line_of_a_run_that_was_over_before_this_one_began_is_not_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(path, 1)
    follower = FollowedLog(path, START)

    def begin() -> None:
        with ChainedLog(path, FORMAT, anew=True) as log:
            announce(path, START)
            log.write({"n": 2})

    with monkeypatch.context() as patch:
        while_read(patch, "behind", begin)
        assert follower.read() is None  # nor if it was read just before
    begin()
    assert follower.read() == {"n": 2}


def test_a_line_that_was_read_is_taken_back_while_nothing_was_read_before_it(path: Path, log: ChainedLog) -> None:
    follower = FollowedLog(path, START)
    log.write({"n": 1})
    assert follower.read() == {"n": 1}
    assert not follower.takes_back()
    begin_anew(log, 2, 3)
    assert follower.takes_back()
    assert list(follower) == [{"n": 2}, {"n": 3}]
    begin_anew(log, 4)
    with pytest.raises(StateError, match=r"entry 2, byte .* begun anew"):
        follower.takes_back()


def test_a_run_that_was_followed_is_over_however_often_all_begin_anew(path: Path, log: ChainedLog) -> None:
    log.write({"n": 1})
    follower = FollowedLog(path, START)
    assert follower.read() == {"n": 1}
    again = follower.anew(START).anew(START)
    assert again.read() is None
    begin_anew(log, 2)
    assert again.read() == {"n": 2}


@pytest.mark.parametrize(
    "said", [b"", b"[]", b"{", b'{"run":"a"}', b'{"run":"a","position":[]}', b'{"run":1,"position":{}}']
)
def test_what_cannot_be_read_beside_a_log_begins_no_run(path: Path, log: ChainedLog, said: bytes) -> None:
    log.write({"n": 1})
    path.with_name("log.jsonl.run").write_bytes(said)
    assert FollowedLog(path, START).read() is None


def test_a_disk_that_is_full_says_so_before_a_run_is_given_up(
    path: Path, log: ChainedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    log.write({"n": 1})
    with monkeypatch.context() as patch, pytest.raises(StoreError, match="No space left"):
        patch.setattr(disk, "write", full)
        with announced(path, START):
            raise AssertionError("the log is cut back")
    assert FollowedLog(path, START).read() == {"n": 1}


def test_a_beginning_that_fails_is_none(path: Path, log: ChainedLog) -> None:
    log.write({"n": 1})
    follower = FollowedLog(path, START)
    with pytest.raises(StateError), announced(path, START):
        log.go_back(Position(9, 1, "0" * 32))
    assert follower.read() == {"n": 1}
    assert not follower.takes_back()


def test_who_follows_with_other_facts_is_told_which_one(path: Path, log: ChainedLog) -> None:
    announce(path, START, {"seed": 1, "bounds": [1, 2]})
    assert FollowedLog(path, START, facts={"seed": 1, "bounds": (1, 2)}).has_begun()
    with pytest.raises(OrderError, match="seed is 1 on rank 0, 2 on this rank"):
        FollowedLog(path, START, facts={"seed": 2}).has_begun()
