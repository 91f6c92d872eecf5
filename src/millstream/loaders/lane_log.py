"""Which tokens of a lane came from which of its chunks: an append-only log, in memory and, given a folder, on disk.

An entry depends on the data alone, not on the run, the rank or the batch size, so all ranks, and all runs over the same
data, may write into one folder, in any order. In memory some thousand entries of each lane are kept, and of those on
disk where each begins. On disk an entry has a check (`storage/record_log.py`), and a torn or damaged one is left out.
Older versions wrote entries without a check into `lane-NN.log`: these are read, too.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.loaders.lane import Place
from millstream.storage import RecordLog, are_whole, record_type, records_of

KEPT_ENTRIES = 4096
_KIND = record_type(*((name, "<i8") for name in ("start", "stop", "epoch", "range", "chunk")))
_FIELDS = 5


class Entry(NamedTuple):
    """Tokens [start, stop) of a lane are those of one chunk."""

    start: int
    stop: int
    place: Place


class LaneLog:
    """The entries of all lanes.

    >>> log = LaneLog()
    >>> log.add(3, Entry(0, 10, Place(0, 0, 0))), log.add(3, Entry(10, 15, Place(0, 1, 0)))
    (None, None)
    >>> log.find(3, 12), log.find(3, 15), log.find(0, 0)
    (Entry(start=10, stop=15, place=Place(epoch=0, range=1, chunk=0)), None, None)
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._kept: dict[int, list[Entry]] = {}
        self._written: dict[int, set[int]] = {}

    def add(self, lane: int, entry: Entry) -> None:
        """Keep an entry, unless it is known."""
        entries = self._kept.setdefault(lane, [])
        place = bisect_right(entries, entry.start, key=lambda each: each.start)
        if place and entries[place - 1].start == entry.start:
            return
        entries.insert(place, entry)
        if len(entries) > 2 * KEPT_ENTRIES:  # what is farthest from the present goes
            del entries[slice(KEPT_ENTRIES) if place >= KEPT_ENTRIES else slice(KEPT_ENTRIES, None)]
        if self._folder is not None:
            self._write(lane, entry)

    def find(self, lane: int, token: int) -> Entry | None:
        """The chunk that a token of a lane came from, or None where it is not known."""
        entries = self._kept.get(lane, [])
        place = bisect_right(entries, token, key=lambda entry: entry.start) - 1
        if place >= 0 and token < entries[place].stop:
            return entries[place]
        rows = self._rows(lane)
        found = rows[(rows[:, 0] <= token) & (token < rows[:, 1])]
        return _entry(found[0]) if len(found) else None

    def find_place(self, lane: int, place: Place) -> Entry | None:
        """The tokens that a chunk of a lane gave, or None where they are not known."""
        for entry in self._kept.get(lane, []):
            if entry.place == place:
                return entry
        rows = self._rows(lane)
        found = rows[(rows[:, 2:] == np.array(place)).all(axis=1)]
        return _entry(found[0]) if len(found) else None

    def _write(self, lane: int, entry: Entry) -> None:
        if lane not in self._written:
            self._written[lane] = set(self._rows(lane)[:, 0].tolist())
        if entry.start in self._written[lane]:
            return
        self._written[lane].add(entry.start)
        path = self._path(lane)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:  # one small write: several processes may write at once
            if torn := os.fstat(handle).st_size % _KIND.itemsize:
                os.write(handle, bytes(_KIND.itemsize - torn))
            os.write(handle, records_of(_KIND, (entry.start, entry.stop, *entry.place)).tobytes())
        finally:
            os.close(handle)

    def _rows(self, lane: int) -> npt.NDArray[Any]:
        if self._folder is None:
            return np.empty((0, _FIELDS), np.int64)
        path, rows = self._path(lane), [np.empty((0, _FIELDS), np.int64)]
        if path.exists():
            with RecordLog(path, _KIND, writes=False) as log:
                found = log.read()
            rows.append(found[are_whole(found)].view("<i8").reshape(-1, _FIELDS + 1)[:, :_FIELDS])
        if (old := path.with_suffix(".log")).exists():
            words = np.fromfile(old, "<i8")
            rows.append(words[: len(words) // _FIELDS * _FIELDS].reshape(-1, _FIELDS))
        return np.concatenate(rows)

    def _path(self, lane: int) -> Path:
        assert self._folder is not None
        return self._folder / f"lane-{lane:02d}.records"


def _entry(row: npt.NDArray[Any]) -> Entry:
    start, stop, *place = row.tolist()
    return Entry(start, stop, Place(*place))
