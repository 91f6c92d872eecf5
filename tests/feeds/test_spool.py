"""A spool: whole shards or none, one lasting order, and nothing removed that a committed state still needs."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from feeds.transports import SMALL, as_json, has_ended, numbers_of, receive_all, receive_some, record, records
from millstream.errors import BusyError, LoaderError, StateError, StoreError
from millstream.feeds import ArrivalLog, Control, Gather, SpoolFeed, arrival_log, spool
from millstream.feeds import shards as shards_module
from millstream.feeds.shards import ShardDiscovery
from millstream.feeds.spool import SpoolSource
from millstream.storage import Bytes, LogReader, disk
from store.crash import Crash, FailingDisk

ONE = Gather(most_rollouts=1)


def filled(path: Path, numbers: range, **settings: Any) -> None:
    """A shard for each rollout."""
    with SpoolSource(path, gather=ONE, **settings) as source:
        for number in numbers:
            source.put(record(number))


def shards(path: Path) -> list[str]:
    return sorted(os.fspath(each.relative_to(path)) for each in path.rglob("*.rollouts"))


def test_a_producer_that_is_started_again_goes_on_behind_what_was_removed(tmp_path: Path) -> None:
    filled(tmp_path, range(3), producer="one")
    feed = SpoolFeed(tmp_path)
    assert numbers_of(receive_all(feed)) == [0, 1, 2]
    feed.release(feed.cursor)
    assert shards(tmp_path) == []
    (tmp_path / "one" / "000001-00000003.tmp").write_bytes(b"half")
    with SpoolSource(tmp_path, producer="one") as source:
        assert not feed.ended
        source.put(record(3))
        with pytest.raises(BusyError, match="another producer"):
            SpoolSource(tmp_path, producer="one")
    assert numbers_of(receive_all(feed)) == [3]
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("name", ["", "..", "a/b", "damaged", ".hidden", "x" * 101])
def test_a_producer_cannot_have_a_name_that_leads_elsewhere(name: str, tmp_path: Path) -> None:
    with pytest.raises(LoaderError, match="name of a producer"):
        SpoolSource(tmp_path, producer=name or "/")


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_shard_is_put_aside_and_counted(damage: str, tmp_path: Path) -> None:
    filled(tmp_path, range(3), producer="one")
    path = tmp_path / "one" / "000001-00000001.rollouts"
    data = path.read_bytes()
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    path.write_bytes({"cut": data[:middle], "flipped": flipped, "empty": b""}[damage])

    strict = SpoolFeed(tmp_path, on_bad="error")
    assert numbers_of(strict.receive(timeout_s=0)) == [0]
    for _ in range(2):
        with pytest.raises(StoreError, match="00000001"):
            strict.receive(timeout_s=0)
    strict.close()

    feed = SpoolFeed(tmp_path)
    begin = feed.cursor
    assert numbers_of(receive_all(feed)) == [0, 2]
    assert feed.counters() == {"received": 2, "shards": 3, "damaged": 1}
    assert shards(tmp_path / "damaged") == ["one-000001-00000001.rollouts"]
    feed.seek(begin)
    assert numbers_of(receive_all(feed)) == [0, 2]


def test_a_full_disk_is_said_and_later_puts_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = True

    def write(fd: int, parts: Sequence[Bytes]) -> None:
        data = b"".join(parts)
        os.pwrite(fd, data[: len(data) // 2 if full else len(data)], 0)
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")

    feed = SpoolFeed(tmp_path)
    source = SpoolSource(tmp_path, gather=Gather(most_rollouts=2, seconds=60))
    monkeypatch.setattr(disk, "write_synced", write)
    source.put(records([0, 1]))
    for _ in range(2):
        with pytest.raises(StoreError, match="No space left"):
            source.flush()
        with pytest.raises(StoreError, match=r"No space left(.|\n)*put the same rollouts again"):
            source.put(record(2))
    assert list(tmp_path.rglob("*.rollouts")) == list(tmp_path.rglob("*.tmp")) == []
    full = False
    source.put(record(2))
    source.close()
    assert numbers_of(receive_all(feed)) == [0, 1, 2]


def test_what_else_lies_in_a_spool_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "1.rollouts").write_bytes(b"mine")
    (tmp_path / "notes.txt").write_text("mine")
    filled(tmp_path, range(2))
    feed = SpoolFeed(tmp_path)
    assert numbers_of(receive_all(feed)) == [0, 1]
    feed.release(feed.cursor)
    assert shards(tmp_path) == ["checkpoints/1.rollouts"]


def test_a_folder_that_is_quiet_is_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, range(2), producer="one")
    monkeypatch.setattr(shards_module, "_SETTLED_S", -1.0)
    looking = ShardDiscovery(tmp_path, {})
    assert len(looking.untaken()) == 2
    monkeypatch.setattr(Path, "iterdir", None)
    assert len(looking.untaken()) == 2
    monkeypatch.undo()
    filled(tmp_path, range(2), producer="one")
    assert len(looking.untaken()) == 4


def test_a_spool_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for opened in (SpoolFeed, SpoolSource):
        with pytest.raises(StoreError, match="file"):
            opened(tmp_path / "file")


def test_there_is_one_consumer_and_others_follow_it(tmp_path: Path) -> None:
    follower = SpoolFeed(tmp_path, follow=True)
    assert follower.receive(timeout_s=0) == []
    feed = SpoolFeed(tmp_path)
    with pytest.raises(BusyError, match=r"another consumer(.|\n)*follow=True"):
        SpoolFeed(tmp_path)
    with SpoolSource(tmp_path, gather=ONE) as first, SpoolSource(tmp_path, gather=ONE) as second:
        for number in range(0, 8, 2):
            first.put(record(number))
            second.put(record(number + 1))
    assert follower.receive(timeout_s=0) == []
    assert not has_ended(follower)
    arrivals = receive_all(feed)
    followed = receive_some(follower, 8)
    assert numbers_of(followed) == numbers_of(arrivals)
    assert [each.cursor for each in followed] == [each.cursor for each in arrivals]
    assert has_ended(follower)
    follower.release(follower.cursor)
    follower.tell(Control(9))
    assert len(shards(tmp_path)) == 8
    assert not (tmp_path / "control.json").exists()


def test_a_follower_that_was_left_behind_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival_log, "COMPACT_AFTER", 1)
    feed, follower = SpoolFeed(tmp_path), SpoolFeed(tmp_path, follow=True)
    filled(tmp_path, range(4))
    came = receive_all(feed)
    assert numbers_of(receive_some(follower, 4)) == [0, 1, 2, 3]
    late = SpoolFeed(tmp_path, follow=True)
    feed.release(came[1].cursor)
    with pytest.raises(StateError, match="all ranks"):
        late.receive(timeout_s=0)
    filled(tmp_path, range(1))
    assert numbers_of(feed.receive(timeout_s=0)) == numbers_of(follower.receive(timeout_s=0)) == [0]


def test_shards_are_kept_when_asked_for(tmp_path: Path) -> None:
    filled(tmp_path, range(3))
    feed = SpoolFeed(tmp_path, keep=True)
    begin = feed.cursor
    receive_all(feed)
    feed.release(feed.cursor)
    assert len(shards(tmp_path)) == 3
    feed.seek(begin)
    assert numbers_of(receive_all(feed)) == [0, 1, 2]


def test_a_state_of_another_spool_is_refused(tmp_path: Path) -> None:
    one, other = SpoolFeed(tmp_path / "one"), SpoolFeed(tmp_path / "other")
    with pytest.raises(StateError, match="another spool"):
        one.seek(other.cursor)


def test_the_order_stays_when_the_log_ends_in_garbage(tmp_path: Path) -> None:
    filled(tmp_path, range(5))
    feed = SpoolFeed(tmp_path)
    cursor = feed.receive(timeout_s=0)[1].cursor
    feed.close()
    with (tmp_path / "arrivals.log").open("ab") as file:
        file.write(b'00000000 ["nobody", "000001-00000000"]\n\0\0\0')
    again = SpoolFeed(tmp_path)
    again.seek(cursor)
    assert numbers_of(receive_all(again)) == [2, 3, 4]
    filled(tmp_path, range(1))
    assert numbers_of(receive_all(again)) == [0]
    assert len(ArrivalLog(tmp_path / "arrivals.log").shards) == 6


def old_line(entry: Any) -> bytes:
    """A line of version 1."""
    text = json.dumps(entry).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def as_it_was(path: Path) -> None:
    """Write the log of a spool as version 1 did."""
    found = ArrivalLog(path)
    head = {"log": found.id, "first": found.first, "taken": {}}
    lines = [head, *found.shards, {"released": found.released}]
    path.write_bytes(b"".join(map(old_line, lines)))


def test_a_spool_of_version_1_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MOST_BYTES", 1)  # a shard at a time
    path = tmp_path / "arrivals.log"
    filled(tmp_path, range(6))
    feed = SpoolFeed(tmp_path)
    came = [*feed.receive(timeout_s=0), *feed.receive(timeout_s=0), *feed.receive(timeout_s=0)]
    feed.release(came[0].cursor)
    feed.close()
    as_it_was(path)
    with path.open("ab") as file:
        file.write(old_line(["torn", "000001-00000000"])[:-4])

    follower = SpoolFeed(tmp_path, follow=True)  # reads it as it is
    follower.seek(came[1].cursor)
    assert numbers_of(receive_some(follower, 1)) == [2]
    assert path.read_bytes()[8:9] == b" "
    again = SpoolFeed(tmp_path)
    again.seek(came[1].cursor)
    assert path.read_bytes()[:1] == b"{"
    assert numbers_of(receive_all(again)) == [2, 3, 4, 5]
    assert numbers_of(receive_some(follower, 3)) == [3, 4, 5]
    assert follower.cursor == again.cursor
    assert not any("torn" in shard for shard in ArrivalLog(path).shards)
    with pytest.raises(StateError, match="the state is at shard 0"):
        again.seek({**again.cursor, "shards": 0})


@pytest.mark.parametrize("power", ["stays", "fails"])
def test_a_spool_of_version_1_survives_a_crash_while_its_log_is_rewritten(power: str, tmp_path: Path) -> None:
    first = tmp_path / "first"
    filled(first, range(4))
    feed = SpoolFeed(first)
    cursor = feed.receive(timeout_s=0)[1].cursor
    feed.close()
    as_it_was(first / "arrivals.log")

    for path in dying(lambda path: SpoolFeed(path).close(), first, power):
        again = SpoolFeed(path)
        again.seek(cursor)
        assert numbers_of(receive_all(again)) == [2, 3]
        again.close()


def test_a_damaged_line_ends_the_log_and_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "arrivals.log"
    filled(tmp_path, range(2))
    feed = SpoolFeed(tmp_path)
    receive_all(feed)
    feed.close()
    data = path.read_bytes()
    path.write_bytes(data.replace(b"000001-00000001", b"000001-00000007"))

    SpoolFeed(tmp_path, follow=True)
    assert not caplog.messages
    again = SpoolFeed(tmp_path)
    assert "entry 1" in caplog.messages[0]
    assert "cut off" in caplog.messages[0]
    assert numbers_of(receive_all(again)) == [0, 1]
    assert path.read_bytes() == data


def test_a_log_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    SpoolFeed(tmp_path / "spool").close()
    path = tmp_path / "spool" / "arrivals.log"
    reader = LogReader(path, arrival_log.START)
    assert len(list(reader)) == 1
    with path.open("ab") as file:
        file.write(reader.position.after({"arrived": [["..", "000001-00000000"]]})[0])
    with pytest.raises(StoreError, match="a line of an unknown kind"):
        SpoolFeed(tmp_path / "spool")
    with pytest.raises(StoreError, match="a line of an unknown kind"):
        SpoolFeed(tmp_path / "spool", follow=True)


def stop_timers() -> None:
    """Those of a process that died are gone with it; here they would go off in the midst of another test."""
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.cancel()


def dying(work: Callable[[Path], None], first: Path, power: str) -> Iterator[Path]:
    """Copies of a spool in which something died at its first operation of the disk, at its second, and so on."""
    for limit in itertools.count(1):
        path = first.with_name(f"{power}-{limit}")
        shutil.copytree(first, path)
        failing = FailingDisk(path, limit)
        failing.remember()
        with pytest.MonkeyPatch.context() as patch:
            failing.install(patch)
            try:
                work(path)
                return
            except Crash:
                stop_timers()
        if power == "fails":
            failing.blackout()
        for lock in path.rglob("*lock"):
            lock.unlink()  # the system lets go of it when a process dies
        yield path


@pytest.mark.parametrize("power", ["stays", "fails"])
def test_a_trainer_that_dies_at_any_operation_of_the_disk_goes_on_at_its_last_state(
    power: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrival_log, "COMPACT_AFTER", 2)
    monkeypatch.setattr(spool, "MOST_BYTES", 1)  # a shard at a time
    filled(tmp_path / "first", range(3), producer="one")
    filled(tmp_path / "first", range(3, 6), producer="two")
    saved: list[Any] = []
    given: list[int] = []

    def train(path: Path) -> None:
        """Receive, save a state, commit it; again."""
        saved.clear()
        given.clear()
        feed = SpoolFeed(path)
        while came := feed.receive(timeout_s=0):
            given.extend(numbers_of(came))
            saved.append((len(given), as_json(came[-1].cursor)))
            feed.release(saved[-1][1])

    for path in dying(train, tmp_path / "first", power):
        feed = SpoolFeed(path)
        known, cursor = saved[-1] if saved else (0, feed.cursor)
        feed.seek(cursor)
        rest = numbers_of(receive_all(feed))
        assert given[:known] + rest == given + rest[len(given) - known :]
        assert sorted(given[:known] + rest) == list(range(6))
        feed.release(feed.cursor)
        assert shards(path) == []
        feed.close()
    assert len(given) == 6


@pytest.mark.parametrize("power", ["stays", "fails"])
def test_a_producer_that_dies_at_any_operation_of_the_disk_has_what_was_flushed(power: str, tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    flushed = 0

    def produce(path: Path) -> None:
        nonlocal flushed
        flushed = 0
        source = SpoolSource(path, producer="one", gather=Gather(seconds=60))
        for number in range(5):
            source.put(record(number))
            if number % 2:
                source.flush()
                flushed = number + 1
        source.close()

    for path in dying(produce, tmp_path / "first", power):
        feed = SpoolFeed(path)
        found = numbers_of(feed.receive(timeout_s=0))
        assert found == list(range(len(found)))
        assert len(found) >= flushed
        assert feed.counters()["damaged"] == 0
        with SpoolSource(path, producer="one", gather=SMALL) as source:
            source.put(record(len(found)))
        assert numbers_of(receive_all(feed)) == [len(found)]
        feed.close()
    assert flushed == 4


def test_a_spool_that_ends_before_anything_came_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A trainer that starts before its new producers are there would end without a warning."""
    filled(tmp_path, range(2), producer="old")
    feed = SpoolFeed(tmp_path)
    feed.release(receive_all(feed)[-1].cursor)
    assert feed.ended
    feed.close()
    assert caplog.records == []
    again = SpoolFeed(tmp_path)
    assert (again.ended, again.ended) == (True, True)
    assert ["start them first" in each.getMessage() for each in caplog.records] == [True]
