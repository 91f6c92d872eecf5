"""Pieces of files: each chunk comes once, whichever piece is asked for first, in every format."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import examples
from millstream.sources import Chunk, FoundFile, Reading, discover, format_named, read_file
from millstream.streams import Units
from millstream.streams import slots as module
from millstream.streams.plan import ENDLESS_UNITS, Slot
from millstream.streams.slots import SlotReader
from streams.files import KINDS, OBJECTS, TEXTS, found


def all_slots(units: Units) -> list[Slot]:
    """Of a file that does not say how large it is, the first ones and the last."""
    every = (*range(80), units.count - 1) if units.count == ENDLESS_UNITS else range(units.count)
    return [slot for unit in every for slot in units.slots(unit)]


def texts_of(file: FoundFile, chunks: list[Chunk], reading: Reading) -> list[str]:
    reads = [format_named(file.format).read(chunk, file, reading) for chunk in chunks]
    assert not any(read.bad for read in reads)
    return [record.text for read in reads for record in read.block]


def read(reader: SlotReader, slot: Slot, reading: Reading) -> list[str]:
    file, chunks = reader.chunks(slot)
    return texts_of(file, chunks, reading)


def whole(file: FoundFile, reading: Reading) -> list[str]:
    return [record.text for each in read_file(file, reading) for record in each.block]


@pytest.mark.parametrize("kind", [*KINDS, *OBJECTS])
@given(chance=st.randoms(use_true_random=False), size=st.sampled_from([60, 300, 2000]), data=st.data())
@examples(5)
def test_every_record_comes_once_whichever_slot_is_asked_for_first(
    kind: str, chance: Any, size: int, data: st.DataObject
) -> None:
    """And a slot holds the same whatever was asked for before, announced or given up."""
    file, how = found(kind)
    reading = Reading(chunk_bytes=size, **how)
    units = Units([file], reading)
    slots = all_slots(units)
    reader = SlotReader(units)
    expected = {slot.number: read(reader, slot, reading) for slot in slots}
    assert [text for number in sorted(expected) for text in expected[number]] == whole(file, reading)

    asked = chance.sample(slots, len(slots)) if data.draw(st.booleans()) else slots
    reader = SlotReader(units)
    announced, given_up = (data.draw(st.lists(st.sampled_from(slots), max_size=most)) for most in (20, 3))
    reader.announce(announced)
    reader.give_up(given_up)
    again = data.draw(st.lists(st.sampled_from(asked), max_size=8))
    for slot in (*again, *asked, *again):
        assert read(reader, slot, reading) == expected[slot.number]
    reader.close()


@pytest.mark.parametrize("kind", ["gz", "csv", "tar", "JSON array", "plugin", "arrow stream"])
def test_a_file_that_was_read_to_its_end_is_read_again(kind: str) -> None:
    """As every epoch does whose parts were dropped."""
    file, how = found(kind)
    reading = Reading(chunk_bytes=100, **how)
    units = Units([file], reading)
    reader = SlotReader(units)
    for _ in range(3):
        texts = [text for slot in all_slots(units) for text in read(reader, slot, reading)]
        assert texts == whole(file, reading)


@pytest.mark.parametrize("kind", ["gz", "csv", "tar.gz", "plugin"])
def test_slots_that_are_asked_for_as_they_come_read_a_file_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that hold nothing: how a file is compressed is not known beforehand."""
    file, how = found(kind)
    reading = Reading(chunk_bytes=40, **how)
    units = Units([file], reading)
    opened: list[str] = []

    def counted(name: str) -> Any:
        opened.append(name)
        return format_named(name)

    monkeypatch.setattr(module, "format_named", counted)
    reader = SlotReader(units)
    held = [len(reader.chunks(slot)[1]) for slot in all_slots(units)]
    assert opened == [file.format]
    assert sum(held) == len(list(format_named(file.format).chunks(file, reading)))


def test_what_was_announced_and_passed_by_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that is faster than another costs nothing; a slot that is empty is passed by, too."""
    file, how = found("gz")
    reading = Reading(chunk_bytes=40, **how)
    units = Units([file], reading)
    slots, opened = all_slots(units), list[str]()
    expected = {slot: read(SlotReader(units), slot, reading) for slot in slots}

    def counted(name: str) -> Any:
        opened.append(name)
        return format_named(name)

    reader = SlotReader(units)
    reader.announce(slots)
    monkeypatch.setattr(module, "format_named", counted)
    for slot in reversed(slots):
        assert texts_of(file, reader.chunks(slot)[1], reading) == expected[slot]
    assert opened == ["jsonl"]


def test_a_slot_that_is_passed_by_twice_is_kept_once() -> None:
    file, how = found("gz")
    reading = Reading(chunk_bytes=300, **how)
    units = Units([file], reading)
    slots = all_slots(units)
    reader = SlotReader(units)
    reader.announce(slots[1:2])
    for slot in (slots[-1], slots[0], slots[-1]):  # the second one begins anew
        reader.chunks(slot)
    assert read(reader, slots[1], reading) == read(SlotReader(units), slots[1], reading)


@pytest.mark.parametrize("number", range(1, 9, 2))
@given(chance=st.randoms(use_true_random=False))
@examples(4)
def test_a_truncated_file_fails_exactly_once_whatever_is_asked_for_first(number: int, chance: Any) -> None:
    """Between the whole records before it and nothing."""
    raw = gzip.compress(b"".join(json.dumps({"text": text}).encode() + b"\n" for text in TEXTS))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.jsonl.gz")
        path.write_bytes(raw[: len(raw) * (number + 1) // 10])
        (file,) = discover(path).files
        reading = Reading(chunk_bytes=100)
        units = Units([file], reading)
        slots = all_slots(units)
        reader = SlotReader(units)
        seen: Counter[str] = Counter()
        bad = []
        for slot in chance.sample(slots, len(slots)):
            for chunk in reader.chunks(slot)[1]:
                got = format_named(file.format).read(chunk, file, reading)
                seen.update(record.text for record in got.block)
                bad += got.bad
        reader.close()
    assert [each.reason for each in bad] == ["truncated"]
    assert not seen - Counter(TEXTS)
    assert sorted(seen, key=lambda text: int(text.split()[0])) == list(TEXTS[: len(seen)])


def test_a_format_that_raises_is_read_again_from_the_front(monkeypatch: pytest.MonkeyPatch) -> None:
    """So whoever tries again finds all of it, and not what came behind the failure."""
    file, how = found("csv")
    reading = Reading(chunk_bytes=100, **how)
    units = Units([file], reading)
    failing = [True]

    class Failing:
        def chunks(self, file: FoundFile, reading: Reading) -> Any:
            for chunk in format_named("csv").chunks(file, reading):
                if chunk.number == 5 and failing:
                    raise MemoryError("for now")
                yield chunk

    monkeypatch.setattr(module, "format_named", lambda name: Failing())
    reader = SlotReader(units)
    slots = all_slots(units)
    texts, failed = list[str](), 0
    for slot in slots:
        try:
            texts += texts_of(file, reader.chunks(slot)[1], reading)
        except MemoryError:
            failed += 1
            failing.clear()
            texts += texts_of(file, reader.chunks(slot)[1], reading)
    assert failed == 1 and texts == whole(file, reading)


def test_many_files_are_open_at_a_time_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OPEN", 3)
    file, how = found("gz")
    reading = Reading(chunk_bytes=300, **how)
    units = Units([file] * 8, reading)
    by_turns = sorted(all_slots(units), key=lambda slot: (slot.number, slot.file))
    reader = SlotReader(units)
    texts: dict[int, list[str]] = {number: [] for number in range(8)}
    for slot in by_turns:
        texts[slot.file] += read(reader, slot, reading)
        assert len(reader._begun) <= 3
    assert all(each == whole(file, reading) for each in texts.values())


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_a_byte_order_mark_may_fill_whole_slots(size: int, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + b'{"text": "one"}\n{"text": "two"}\n')
    (file,) = discover(tmp_path).files
    reading = Reading(chunk_bytes=size)
    units = Units([file], reading)
    reader = SlotReader(units)
    assert [
        text for unit in range(units.count) for slot in units.slots(unit) for text in read(reader, slot, reading)
    ] == ["one", "two"]
