"""A stream as a growing source of a run: windows that are made around the run's place, and dropped where they must."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from millstream.errors import ClosedError, LoaderError, StateError, StoreError, UnknownLength
from millstream.loaders import LoaderSettings, RowOrigin, RowShape, RowSource, named_losses, warn_of_losses
from millstream.loaders.growing.raw_files import in_words_of_loaders
from millstream.loaders.growing.stream import DOCUMENT_BITS, Stream, StreamSpan
from millstream.order import UNKNOWN, Share
from millstream.stages import after_fork, cpus, warn
from millstream.storage import DAMAGED_STATE, key_of, read_count
from millstream.store import TokenStore
from millstream.streams import (
    STARTS_FILE,
    Numbers,
    PartMaker,
    Pass,
    StreamPlan,
    StreamWindows,
    View,
    WindowStarts,
)
from millstream.tokens import describe_tokenizer

FoundT = TypeVar("FoundT")
_log = logging.getLogger("millstream.loaders")


@dataclass(frozen=True)
class _ReadyAhead:
    """The part in the run that a source has with windows of which the last ones are not in use yet."""

    passes: frozenset[Pass]
    view: View
    member: RowSource


class StreamSource:
    """A stream in a run: windows that are made around the run's place, and what of them is known.

    Args:
        name: Of the source; part of its key.
        stream: What is read.
        shape: What a row is.
        settings: Of the loader.
        quota: Places of a mix block.
        id_limit: 1 + the largest id that the model has an embedding for, where the mixture's is stricter.
    """

    ends: ClassVar[bool] = False
    way_to_know: ClassVar[str] = (
        "train until an epoch has been counted once, with cache_dir= also for later runs; or prepare() it"
    )

    def __init__(
        self,
        name: str,
        stream: Stream,
        shape: RowShape,
        settings: LoaderSettings,
        *,
        quota: int = 1,
        id_limit: int | None = None,
    ) -> None:
        self.name, self.stream, self._shape, self._settings, self._quota = name, stream, shape, settings, quota
        plan = StreamPlan(stream.units, shuffle=settings.shuffle, seed=settings.seed, name=name)
        if settings.cache_limit is not None and settings.cache_dir is None:
            raise LoaderError(
                f"cache_limit bounds a folder, and {stream.path} has none: its windows stay in memory",
                hint="pass cache_dir= (a folder); or leave out cache_limit, and pass memory_budget= if memory is short",
            )
        folder, threads = stream.folder(settings.cache_dir), stream.threads or cpus()
        limits = [limit for limit in (stream.id_limit, id_limit) if limit is not None]
        together = stream.parts_together(settings.memory_budget, threads)
        kept = stream.kept(folder, settings, threads * together)
        maker = PartMaker(
            stream.units,
            stream.job,
            kept,
            threads=threads,
            together=together,
            on_bad=stream.on_bad,
            quarantine=folder,
        )
        ahead = stream.windows_ahead(kept, settings.cache_limit)
        log = None if folder is None else folder / f"{key_of(name, settings.seed, settings.shuffle)}.{STARTS_FILE}"
        self.windows = StreamWindows(
            plan,
            maker,
            WindowStarts(plan.windows, log),
            length=shape.length,
            padded=shape.tail == "pad",
            ahead=ahead,
            at_once=ahead,
            id_limit=min(limits, default=None),
            first=(settings.rank, settings.world_size),
        )
        self._begin()
        after_fork(self._begin)
        maker.on_made = self._make_ahead
        self._is_moving = self._has_told_losses = False
        self._passed = 0
        """Windows before the place of the state that was loaded."""
        self._works_alone = settings.world_size > 1 and not kept.shared
        self.member = self._member()

    def _begin(self) -> None:
        """Also in a forked child: a thread that is not there may hold the lock."""
        self._guard = threading.RLock()
        """Of the windows, while more of them come into use."""
        self._ahead: _ReadyAhead | None = None

    # What of it is there

    def _member(self) -> RowSource:
        """The stream's part in the run: the windows that can be used."""
        if self.windows.rows == 0:
            windows = self.windows
            lost = "".join(f"; left out, {reason}: {count}" for reason, count in windows.left_out.most_common(3))
            raise LoaderError(
                f"{self.stream.path}: {windows.starts.tokens} tokens are fewer than one row of {self._shape.length} "
                f"inputs and a target{lost}",
                hint="see why records were left out" if lost else "use a smaller chunk_size, or add more data",
            )
        self._view, member = self._with(self.windows.ready, self.windows.starts.known)
        return member

    def _with(self, passes: Iterable[Pass], starts: Numbers) -> tuple[View, RowSource]:
        """The part in the run that the source has with some windows."""
        windows, tokenizer, tokens = self.windows, self.stream.job.tokenizer, int(starts[-1])
        view = self._view_of(each.window for each in passes)
        rows = None if tokens < 0 else windows.rows_in(tokens, self._shape.length)
        return view, RowSource(
            view.store,
            Share(UNKNOWN if rows is None else rows, self._settings.shuffle, self._quota, packed=True),
            self._shape,
            tokenizer=tokenizer,
            given_facts=self.stream.facts,
            given_windows=windows.order(starts),
            given_samples=windows.samples_of,
            tokens=None if tokens < 0 else tokens,
        )

    def _view_of(self, windows: Iterable[int]) -> View:
        return self.windows.view(Path(self.stream.path), windows, describe_tokenizer(self.stream.job.tokenizer))

    def count(self, epoch: int, offset: int) -> int:
        """How many rows can be used from a place of an epoch on; none while `more` was interrupted."""
        return 0 if self._is_moving else self.windows.count(epoch, offset)

    def more(self, epoch: int, offset: int, count: int) -> tuple[RowSource, bool]:
        """Wait until so many rows can be used, or until it is known how many an epoch has."""
        self._is_moving = True
        with self._guard:
            ahead, self._ahead = self._ahead, None
            if self.windows.rows != 0:
                with in_words_of_loaders():
                    self.windows.make(epoch, offset, count)
            if ahead is not None and ahead.passes.issuperset(self.windows.ready):
                self._view, self.member = ahead.view, ahead.member
            else:
                self.member = self._member()
        self._is_moving = False
        self.windows.maker.call_later(self._want_next)
        if self._settings.rank == 0:
            self._tell()
        return self.member, False

    def _want_next(self) -> None:
        """Have the next windows made, in a thread: the trainer has what it needs. It asks again when it needs more."""
        self._unless_in_use(self.windows.want_next)
        self._make_ahead()

    def _make_ahead(self) -> None:
        """Get the windows ready that come into use next, in a thread: the trainer then only takes them."""
        if self._ahead is None and self.windows.has_more:
            self._unless_in_use(self._get_ready)

    def _get_ready(self) -> None:
        if passes := self.windows.make_ahead():
            self._ahead = _ReadyAhead(frozenset(passes), *self._with(passes, self.windows.starts.found))

    def _unless_in_use(self, call: Callable[[], None]) -> None:
        """Do some work ahead, unless a consumer is at it. What goes wrong goes wrong again where a trainer asks."""
        if self._guard.acquire(blocking=False):
            try:
                call()
            except Exception:
                _log.debug("%s: no windows were got ready ahead", self.stream.path, exc_info=True)
            finally:
                self._guard.release()

    def _tell(self) -> None:
        """Warn, once, of what is left out, and of work that all ranks do."""
        if self._works_alone:
            self._works_alone = False
            warn(
                f"no cache is shared, so each of {self._settings.world_size} ranks tokenises all of "
                f"{self.stream.path}; pass cache_dir= (a folder that all of them see), or prepare() it",
                UserWarning,
            )
        if not self._has_told_losses:
            more = f"{self.stream.path}, so far; `losses` counts on"
            self._has_told_losses = warn_of_losses(self.member.store, more)

    def knows(self, epoch: int, first: int, last: int | None) -> bool:
        """Whether it is known which rows lie at the places of an epoch from `first` to `last`, or to its end."""
        return self.windows.knows(first, last)

    @property
    def is_complete(self) -> bool:
        """A stream is made again and again."""
        return False

    def lost(self, store: TokenStore) -> bool:
        """Whether files of parts are gone, or were: another process has dropped them, and perhaps made them again."""
        lost = self._view.is_lost
        if lost:
            self._forget()
        return lost

    def _forget(self) -> None:
        with self._guard:
            self._ahead = None
            self.windows.forget()

    @property
    def made_so_far(self) -> str:
        """What is made, in words."""
        return f"{int((self.windows.starts.known >= 0).sum()) - 1} of {self.windows.plan.windows} windows were read"

    # States

    def saved(self, epoch: int, offset: int) -> dict[str, Any]:
        """What a state keeps of a place: its window, where that begins, and a check, as nothing else would tell a
        loader that knows no other windows if these were others."""
        window = self.windows.first_window_at(offset)
        starts = self.windows.starts
        token = starts.token(window)
        assert token is not None
        found = {"window": window, "token": token}
        if epoch > 0:
            assert starts.tokens is not None
            found["tokens"] = starts.tokens
        return {**found, "check": key_of(self.name, found)[:8]}

    @contextmanager
    def resuming(self, saved: Any) -> Iterator[RowSource]:
        """Know what a state knows, unless it is refused in the end."""
        starts = self.windows.starts
        with self._guard:
            known, found, member, passed = starts.known.copy(), starts.found.copy(), self.member, self._passed
            try:
                yield self._resumed(saved)
            except BaseException:
                starts.known[:], starts.found[:] = known, found
                self.member, self._passed = member, passed
                raise

    def _resumed(self, saved: Any) -> RowSource:
        if not isinstance(saved, Mapping):
            raise StateError(f"the state does not say where {self.name!r} stands", hint=DAMAGED_STATE)
        starts = self.windows.starts
        said = {"window": None, "token": None, **saved}
        place = {name: read_count(value, name) for name, value in said.items() if name != "check"}
        window = place["window"]
        if window >= starts.windows:
            raise StateError(
                f"the state stands in window {window} of {starts.windows} of {self.name!r}", hint=DAMAGED_STATE
            )
        check = key_of(self.name, place)[:8]
        if saved.get("check", check) != check:  # earlier states have none
            raise StateError(f"where {self.name!r} stands in the state is not what was saved", hint=DAMAGED_STATE)
        starts.learn(window, place["token"], counted=False)
        if "tokens" in place:
            starts.learn(starts.windows, place["tokens"], counted=False)
        self._passed = starts.windows if "tokens" in place else window
        self.member = self._member()
        return self.member

    @property
    def losses(self) -> dict[str, int]:
        """What the store does not know of: files that were passed over, and what was read before this process began."""
        uncounted = self.windows.uncounted(self._passed)
        found = named_losses(self.name, self.stream.found.skipped, Counter())
        return {**found, **({f"uncounted_units:{self.name}": uncounted} if uncounted else {})}

    # Explaining

    def origin(self, sample: int, length: int) -> RowOrigin:
        """Name the origin of a row of some length."""
        start = sample * length

        def origin(view: View) -> RowOrigin:
            store = view.store
            stop = min(start + length, len(store))
            spans = [
                self._span(view, document, first, last)
                for document, first, last in zip(*(each.tolist() for each in store.spans_of(start, stop)), strict=True)
            ]
            text = self.stream.job.tokenizer.decode(store.read(start, stop).tolist())
            return RowOrigin(0, self.name, sample, tuple(spans), text)

        return self._read(start, f"where row {sample} of {self.name!r} lies", origin)

    def _read(self, token: int, what: str, read: Callable[[View], FoundT]) -> FoundT:
        """Read of the window that holds a token of an epoch, which is made again if it was dropped."""
        with self._guard:  # else threads that make the next windows drop this one
            while True:
                view = self._view_at(token, what)
                try:
                    found = read(view)
                    break
                except StoreError:
                    if not view.is_lost:
                        raise
                    self._forget()
        if view is not self._view:
            self.windows.maker.call_later(self._want_next)
        return found

    def _view_at(self, token: int, what: str) -> View:
        starts = self.windows.starts
        known = np.flatnonzero(starts.known >= 0)
        window = int(known[np.searchsorted(starts.known[known], token, side="right") - 1])
        if window >= starts.windows or starts.token(window + 1) is None:
            raise self._unknown(what)
        if self.windows.maker.is_closed:
            raise ClosedError(
                f"{what} is not known to a closed loader: rows of a stream are made again to be explained",
                hint="explain steps before close(), or open the stream again with its cache_dir",
            )
        if any(each.window == window for each in self.windows.ready):
            return self._view
        return self._view_of([window])

    def _unknown(self, what: str) -> UnknownLength:
        return UnknownLength(
            f"{what} is not known here: it has not come yet, or came before this run was resumed",
            hint="ask for steps that were delivered; pass cache_dir= to keep the log of windows",
        )

    def _span(self, view: View, document: int, first: int, last: int) -> StreamSpan:
        origin, (unit, place) = view.store.origin_of(document), view.place_of(document)
        assert origin is not None
        where = (None, origin.start, origin.stop) if origin.start is not None else (origin.row, None, None)
        return StreamSpan(self.name, unit << DOCUMENT_BITS | place, first, last, origin.file, *where)

    def tokens_of(self, document: int) -> tuple[int, int]:
        """Where the tokens of a document that are inputs lie in an epoch; it is numbered as `explain` does it."""
        unit, place = divmod(document, 1 << DOCUMENT_BITS)
        missing = LoaderError(f"there is no document {document}", hint="documents are numbered as explain() names them")
        if not 0 <= unit < self.stream.units.count:
            raise missing
        windows, length = self.windows, self._shape.length
        token = windows.starts.token(windows.plan.window_of(unit))

        def tokens(view: View) -> tuple[int, int]:
            found = view.document_at(unit, place)
            if found is None:
                raise missing
            return view.store.document_span(found)

        what = f"where document {document} lies"
        start, stop = self._read(-1 if token is None else token, what, tokens)
        if windows.rows is not None:
            stop = min(stop, windows.rows * length)  # what comes after them is in no row
        if start < stop and not windows.knows(start // length, (stop - 1) // length):
            raise self._unknown(what)
        return start, max(start, stop)

    def let_go(self, thing: object) -> None:
        """Have what is not used any more released, elsewhere than in the trainer's thread."""
        self.windows.maker.let_go([thing])

    @property
    def parts(self) -> dict[str, int]:
        """How many parts this process made, and how many it found."""
        return {"made": self.windows.maker.made, "found": self.windows.maker.found}

    @property
    def held_bytes(self) -> int | None:
        """Bytes of windows in memory; None where they lie on a disk."""
        kept = self.windows.maker.kept
        return None if kept.shared else kept.held_bytes

    def close(self) -> None:
        """Make no more windows; what was made stays in the cache."""
        self.windows.close()
