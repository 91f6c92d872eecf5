"""Windows of a stream: which are made, which rows they give, and the tokens of some of them as a store.

Rows are cut from the tokens of all windows end to end: row i holds tokens [i * length, (i + 1) * length], and belongs
to the window that holds its first token. So the last row of a window may end in the next one.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from millstream.errors import BudgetError, SourceError
from millstream.order import UNKNOWN, Windows
from millstream.store import FRAME_BYTES, Layout, Opened, Row, TokenStore, describe, rows_of
from millstream.streams.part_maker import PartMaker
from millstream.streams.plan import Numbers, StreamPlan
from millstream.streams.starts import WindowStarts
from millstream.streams.stored_parts import PartFacts
from millstream.streams.views import View, WindowOrigins

_TRIES = 3
"""Parts that are being made when others are dropped still take their room."""
YIELD_S = 0.0001
"""How long a thread that gets windows ready lets others run now and then: the trainer waits for the lock of Python."""
GAP = -1
"""The unit of a shard that stands for windows which are not in a store."""


class Pass(NamedTuple):
    """A window in an epoch."""

    epoch: int
    window: int


class _NotMade(Exception):  # noqa: N818 - reads as a claim
    """A part is still being made."""


class StreamWindows:
    """The windows of a stream, made around the place that a run has reached.

    Args:
        plan: Which units make up a window.
        maker: Makes their parts.
        starts: Where windows begin.
        length: Tokens of a row.
        padded: Whether the last row of an epoch is filled up.
        ahead: Windows that are made ahead of those in use.
        at_once: Windows that come into use together, if they are made by then: each time costs the trainer a moment.
        first: The rank of this process and their number: processes that share a cache begin at different parts.
    """

    def __init__(
        self,
        plan: StreamPlan,
        maker: PartMaker,
        starts: WindowStarts,
        *,
        length: int,
        padded: bool = False,
        ahead: int = 2,
        at_once: int = 1,
        id_limit: int | None = None,
        first: tuple[int, int] = (0, 1),
    ) -> None:
        self.plan, self.maker, self.starts = plan, maker, starts
        self.length, self._padded, self._id_limit = length, padded, id_limit
        self._ahead, self._at_once = ahead, at_once
        self._rank, self._ranks = (0, 1) if plan.units.from_front else first
        self._facts: dict[int, PartFacts] = {}
        self.left_out, self.changed = Counter[str](), Counter[str]()
        """What parts that this process has met lack, and what was changed in them, by reason."""
        self._counted = np.zeros(plan.units.count, bool)
        self.ready: list[Pass] = []
        """Windows that follow each other and can be used."""
        self._upcoming: list[Pass] = []
        """Windows that follow them, can be used, and were not asked for yet."""

    # Rows

    @property
    def rows(self) -> int | None:
        """Rows of an epoch, if its tokens have been counted."""
        return self._rows_of(self.starts.known)

    def _rows_of(self, known: Numbers) -> int | None:
        return None if known[-1] < 0 else self.rows_in(int(known[-1]), self.length)

    def rows_in(self, tokens: int, length: int) -> int:
        """Rows of so many tokens of an epoch."""
        inputs = max(0, tokens - 1)
        return -(-inputs // length) if self._padded else inputs // length

    def first_row(self, window: int) -> int | None:
        """The first row of a window, if it is known."""
        token = self.starts.token(window)
        if token is None:
            return None
        row, rows = -(-token // self.length), self.rows
        return row if rows is None else min(row, rows)

    def window_at(self, row: int) -> int:
        """The window of a row, or the last one before it of which it is known where it begins."""
        known = np.flatnonzero(self.starts.known[:-1] >= 0)
        firsts = -(-self.starts.known[known] // self.length)
        return int(known[np.searchsorted(firsts, row, side="right") - 1])

    def first_window_at(self, row: int) -> int:
        """The first of the windows that begin at the row where that one begins: which later ones without rows are known
        differs between ranks."""
        starts = self.starts.known[: self.window_at(row) + 1]
        same = -(-starts // self.length) == -(-starts[-1] // self.length)
        return int(np.flatnonzero(same & (starts >= 0))[0])

    def knows(self, first: int, last: int | None = None) -> bool:
        """Whether it is known which windows the rows of an epoch from `first` to `last`, or to its end, belong to."""
        rows = self.rows
        if last is None:
            last = -1 if rows is None else rows - 1
        if last < first or (rows is not None and last >= rows):
            return False
        return bool((self.starts.known[self.window_at(first) : self.window_at(last) + 2] >= 0).all())

    def order(self, starts: Numbers) -> Windows:
        """How many rows each window has, if they begin at `starts`. Those of windows that are not known are counted to
        the last one of them.

        Windows that are to come have none yet: what threads need for all of them is reserved from the beginning.
        """
        known = np.flatnonzero(starts >= 0)
        firsts, rows = -(-starts[known] // self.length), self._rows_of(starts)
        firsts = firsts if rows is None else np.minimum(firsts, rows)
        bins = np.zeros(self.plan.windows, np.int64)
        bins[known[1:] - 1] = np.diff(firsts)
        gaps = tuple((known[1:][np.diff(known) > 1] - 1).tolist())
        return Windows(tuple(bins.tolist()), rows=0, capacity=self.length, always_in_order=True, gaps=gaps)

    def count(self, epoch: int, row: int) -> int:
        """How many rows can be used from a row of an epoch on."""
        if not self.ready:
            return 0
        window = self.window_at(row)
        found = 0
        for each in self.ready:
            first, stop = self.first_row(each.window), self.first_row(each.window + 1)
            assert first is not None
            assert stop is not None
            if found:
                found += stop - first
            elif each.epoch == epoch and each.window >= window and first <= row < stop:
                found = stop - row
        return found

    # Making

    def make(self, epoch: int, row: int, count: int) -> None:
        """Wait until so many rows from a row of an epoch on can be used; fewer, if an epoch was counted meanwhile."""
        was_counted = self.rows is not None
        place = Pass(epoch, self.window_at(row))
        self.starts.publish()
        self.ready, self._upcoming = self.ready + self._upcoming, []
        used = self.ready.index(place) if place in self.ready else len(self.ready)
        self.ready = self.ready[used : used + 1 + self._at_once]
        if self.rows is not None and not was_counted:
            return
        while self.count(epoch, row) < count:
            self._take(place if not self.ready else self._after(self.ready[-1]))
            if self.rows is not None and not was_counted:
                return
        while len(self.ready) <= self._at_once and self._is_made(following := self._after(self.ready[-1])):
            self._take(following)
            if self.rows is not None and not was_counted:
                return

    def want_next(self) -> None:
        """Have the windows made that come after those in use."""
        if self.ready:
            self._want(self._after(self.ready[-1]), self._ahead)

    @property
    def has_more(self) -> bool:
        """Whether the windows that come into use next are made."""
        ready = self.ready
        return bool(ready) and not self._upcoming and all(map(self._is_made, self._following(ready[-1])))

    def make_ahead(self) -> list[Pass]:
        """Finish the windows that come into use next, if they are made; gives all that can be used then.

        It never waits: the threads that make parts call it.
        """
        if self.has_more:
            for place in self._following(self.ready[-1]):
                try:
                    self._finish(place.window, ahead=True)
                except _NotMade:
                    break
                self._upcoming.append(place)
                time.sleep(YIELD_S)
                if self.starts.found[-1] >= 0 and self.rows is None:
                    break
        return self.ready + self._upcoming if self._upcoming else []

    def _following(self, place: Pass) -> list[Pass]:
        """The windows that come into use together after one."""
        found = []
        for _ in range(self._at_once):
            place = self._after(place)
            found.append(place)
        return found

    def _take(self, place: Pass) -> None:
        """Wait for a window, and have those made that follow it; without them, if there is no room for all."""
        if not self._is_made(place):
            self._want(place, self._ahead + 1)
        for _ in range(_TRIES):
            try:
                self._finish(place.window)
                break
            except BudgetError:
                self._want(place, 1)
        else:
            self._finish(place.window)
        self.ready.append(place)

    def _is_made(self, place: Pass) -> bool:
        """Whether a window can be used without waiting; its last row may end in the first part of the next one."""
        units = self.plan.units_of(place.window)
        if place.window + 1 < self.plan.windows:
            units += self.plan.units_of(place.window + 1)[:1]
        return all(unit in self._facts or self.maker.is_made(unit) for unit in units)

    def _after(self, place: Pass) -> Pass:
        if place.window + 1 < self.plan.windows:
            return Pass(place.epoch, place.window + 1)
        return Pass(place.epoch + 1, 0)

    def _want(self, place: Pass, count: int) -> None:
        """Have windows made from one on, and drop others where there is no room for all."""
        windows, following = [each.window for each in self.ready], place
        for _ in range(count):
            windows.append(following.window)
            following = self._after(following)
        windows = list(dict.fromkeys(windows))
        units = [unit for window in windows for unit in self._from_own(self.plan.units_of(window))]
        if self._ahead > 1:  # it may hold the end of their last row
            units += self.plan.units_of(following.window)[:1]
        kept = set(units)
        self.maker.let_go(self.maker.kept.keep(kept | self.maker.held, self._needed_last(place.window, set(windows))))
        self.maker.want(units)
        for unit in self._facts.keys() - kept:
            del self._facts[unit]

    def _from_own(self, units: list[int]) -> list[int]:
        """Begin elsewhere than other processes."""
        begin = len(units) * self._rank // self._ranks
        return units[begin:] + units[:begin]

    def _needed_last(self, window: int, wanted: set[int]) -> Iterator[int]:
        """The units of other windows: the one that was used last is needed last."""
        for each in (*range(window - 1, -1, -1), *range(self.plan.windows - 1, window, -1)):
            if each not in wanted:
                yield from self.plan.units_of(each)

    def _finish(self, window: int, *, ahead: bool = False) -> None:
        """Wait for the parts of a window, and for those of the next ones in which its last row ends."""
        stop = self.starts.found_token(window) + sum(
            self._part(unit, ahead=ahead).tokens for unit in self.plan.units_of(window)
        )
        self.starts.learn(window + 1, stop, ahead=ahead)
        self._ending(window, ahead=ahead)

    def _ending(self, window: int, *, ahead: bool = False) -> list[int]:
        """The units of later windows that hold what the last row of a window needs; they are made."""
        stop = self.starts.found_token(window + 1)
        found: list[int] = []
        need, have, window = -(-stop // self.length) * self.length + 1, stop, window + 1
        while have < need and window < self.plan.windows:
            for unit in self.plan.units_of(window):
                if have >= need:
                    break
                found.append(unit)
                have += self._part(unit, ahead=ahead).tokens
            else:
                self.starts.learn(window + 1, have, ahead=ahead)
            window += 1
        return found

    def _part(self, unit: int, *, ahead: bool = False) -> PartFacts:
        """Wait for a part."""
        facts = self._facts.get(unit)
        if facts is None:
            if ahead and not self.maker.is_made(unit):
                raise _NotMade
            facts = self.maker.wait(unit)
            if self._id_limit is not None and facts.bound > self._id_limit:
                names = ", ".join(self.maker.units.files[slot.file].name for slot in self.maker.units.slots(unit)[:3])
                raise SourceError(
                    f"{names}: the tokens hold the id {facts.bound - 1}, but the model's vocabulary has "
                    f"{self._id_limit} ids",
                    hint="use the model's tokenizer, or enlarge the model's embedding",
                )
            self._facts[unit] = facts
            if not self._counted[unit]:
                self._counted[unit] = True
                self.left_out.update(facts.left_out)
                self.changed.update(facts.changed)
        return facts

    def uncounted(self, window: int) -> int:
        """Units before a window whose parts this process has not met: what they lack is not counted."""
        return int((~self._counted[self.plan.units_before(window)]).sum())

    def forget(self) -> None:
        """Find all parts anew: files are gone that were there."""
        self.ready, self._upcoming, self._facts = [], [], {}
        self.maker.want([])

    # Stores

    def view(self, path: Path, windows: Iterable[int], tokenizer: Any = None) -> View:
        """The tokens of some windows as a store, in which those of others are a gap."""
        rows: list[Row] = []
        units: list[int] = []
        place = 0
        for window in sorted(set(windows)):
            start = self.starts.found_token(window)
            while place > start:  # the last row of the window before ends in this one
                place -= rows.pop().tokens
                units.pop()
            if start > place:
                rows.append(Row(start - place, 1, 0, 1, 0))
                units.append(GAP)
                place = start
            for unit in (*self.plan.units_of(window), *self._ending(window)):
                facts = self._part(unit)
                if facts.tokens:
                    rows.append(Row(facts.tokens, facts.documents, facts.tag, facts.bound, 0))
                    units.append(unit)
                    place += facts.tokens
        if not rows:  # a run that needs none of them just now still needs a store
            rows.append(Row(1, 1, 0, 1, 0))
            units.append(GAP)
        job, kept = self.maker.job, self.maker.kept
        table = rows_of(rows)
        files = [("", "", "") if unit == GAP else kept.paths(unit) for unit in units]
        layout = Layout("", "", job.dtype, FRAME_BYTES, table, "ends", paths=tuple(each[:2] for each in files))
        lost = {"left_out": dict(self.left_out), "changed": dict(self.changed)}
        manifest = describe(job.dtype, table, recipe=lost, tokenizer=tokenizer)
        origins = WindowOrigins([each[2] for each in files], table, self._names)
        stamps = {unit: kept.stamp(unit) for unit in units if unit != GAP}
        return View(TokenStore.of(path, Opened("stream", layout, manifest, origins)), units, kept, stamps)

    @cached_property
    def _names(self) -> list[str]:
        return [file.name for file in self.plan.units.files]

    def samples_of(self, length: int, split: int) -> int | None:
        """Rows of an epoch that were cut into `split` rows of another length; None where that cannot be."""
        tokens = self.starts.tokens
        if split != 1:
            return None
        return UNKNOWN if tokens is None else self.rows_in(tokens, length)

    def close(self) -> None:
        """Make no more windows."""
        self.maker.close()
        self.maker.kept.close()
