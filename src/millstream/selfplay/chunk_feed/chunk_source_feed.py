"""ChunkSourceFeed: files that were found -> sources of games, opened and indexed.

`open_sources` opens all that are there now, for `inspect`, `show` and `lint`.
"""

from __future__ import annotations

import glob
import os
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from millstream.errors import LoaderError, RecordError
from millstream.games import ChunkSource, Descriptors, IndexCache, open_chunk_source
from millstream.selfplay import Arrival, FileFound, FileRemoved, ScanComplete
from millstream.selfplay.chunk_feed.discovery import Discovery
from millstream.settings import local_path
from millstream.stages import MapStage, Pipeline, Queue, Stage

Sourced = ChunkSource | FileRemoved | ScanComplete
Partial = Literal["drop", "keep"]

_NOT_BAD = ("not data", "gone")
"""Reasons for which a file is counted, but there is nothing to mend."""
_MOST_BAD = 1000
Where = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class BadSource:
    """A file that cannot be used as it is."""

    path: str
    reason: str
    found: str


class ChunkSourceFeed(MapStage[Arrival, Sourced]):
    """Opens files of games. Other events pass through as they are, after all sources before them.

    Files that are no games are counted, as are members of archives that are none. So are files that cannot be read; the
    last thousand of these are listed in `bad`.

    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from millstream.selfplay.chunk_feed.discovery import Discovery
    >>> folder = Path(mkdtemp())
    >>> _ = (folder / "notes.txt").write_text("..."), (folder / "cut.gz").write_bytes(b"cut")
    >>> found = Discovery(folder, watch=False)
    >>> feed = ChunkSourceFeed(found)
    >>> found.start(), feed.start()
    (None, None)
    >>> list(feed.output()), [each.reason for each in feed.bad], feed.counters()["drops"]
    ([ScanComplete()], ['truncated'], {'truncated': 1, 'not data': 1})

    Args:
        input: Files, as from `Discovery`.
        descriptors: Lends open files to the sources; None: at most 64 are open.
        cache_dir: Where the indices of archives are kept for the next run.
        partial: What becomes of an archive that cannot be read to its end: `"drop"` it, or `"keep"` its whole games.
            It is counted and listed either way.
        settings: As for every stage.
    """

    takes, gives = FileFound, ChunkSource
    loses_nothing = True

    def __init__(
        self,
        input: Queue[Arrival] | Stage[Arrival],
        *,
        descriptors: Descriptors | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        partial: Partial = "drop",
        **settings: Any,
    ) -> None:
        if partial not in get_args(Partial):
            raise LoaderError(f"there is no partial={partial!r}", hint=f"one of {', '.join(get_args(Partial))}")
        super().__init__(input, **settings)
        self.descriptors = Descriptors() if descriptors is None else descriptors
        self.bad: deque[BadSource] = deque(maxlen=_MOST_BAD)
        self._cache = None if cache_dir is None else IndexCache(local_path(cache_dir, "a cache_dir", LoaderError))
        self._partial = partial

    def process(self, item: Arrival) -> Iterable[Sourced]:
        """Open a file that was found; pass on what else there is."""
        if not isinstance(item, FileFound):
            return (item,)
        try:
            source = self.open(item.path)
        except RecordError as error:
            self.count(error.reason)
            if error.reason not in _NOT_BAD:
                self.bad.append(BadSource(item.path, error.reason, error.found))
            return ()
        for reason, members in source.skipped.items():
            self.count(f"member: {reason}", members)
        return (source,) if not source.problem or self._keeps(source) else ()

    def open(self, path: str) -> ChunkSource:
        """Index a file; its descriptor is one of those that all share."""
        return open_chunk_source(path, self.descriptors, self._cache)

    def gauges(self) -> dict[str, float]:
        """Files that are open now."""
        return {"open": len(self.descriptors)}

    def _keeps(self, source: ChunkSource) -> bool:
        """Count and list an archive that is cut or damaged behind its last whole game."""
        self.count(source.problem)
        games = f"{len(source)} whole {'game' if len(source) == 1 else 'games'} before that"
        fate = f"{games}, for partial='keep'" if self._partial == "keep" else f"{games} dropped, too"
        self.bad.append(BadSource(source.path, source.problem, f"at its end; {fate}"))
        return self._partial == "keep"


@dataclass(frozen=True, slots=True)
class OpenedSources:
    """Sources by their names, files that cannot be used as they are, and how many were passed over, by reason."""

    sources: list[ChunkSource]
    bad: list[BadSource]
    skipped: Mapping[str, int]


def places_of(where: Where | Sequence[Where]) -> list[Path]:
    """The files and folders that are meant: of a list each, of a pattern what it matches.

    >>> places_of(["games", "more/a.gz"])
    [PosixPath('games'), PosixPath('more/a.gz')]
    """
    if not isinstance(where, str | os.PathLike):
        return [place for each in where for place in places_of(each)]
    matches = [] if Path(where).exists() else sorted(glob.glob(os.fspath(where), recursive=True))  # noqa: PTH207
    return [Path(each) for each in matches or [os.fspath(where)]]


def open_sources(where: Where | Sequence[Where]) -> OpenedSources:
    """Open files of games, and all that lie in folders and below them.

    >>> from millstream.games import example_folder
    >>> [source.name for source in open_sources(example_folder(2)).sources]
    ['training.0.gz', 'training.1.gz']
    """
    opened = [_opened(place) for place in places_of(where)]
    skipped: Counter[str] = Counter()
    for each in opened:
        skipped.update(each.skipped)
    sources = [source for each in opened for source in each.sources]
    if len(opened) > 1:
        sources.sort(key=lambda source: (source.name, source.path))
    return OpenedSources(sources, [bad for each in opened for bad in each.bad], dict(skipped))


def _opened(place: Path) -> OpenedSources:
    if place.is_file():
        try:
            return OpenedSources([open_chunk_source(place)], [], {})
        except RecordError as error:
            return OpenedSources([], [BadSource(str(place), error.reason, error.found)], {error.reason: 1})
    found = Discovery(place, watch=False)
    feed = ChunkSourceFeed(found, partial="keep")
    with Pipeline({"discovery": found, "chunk_source_feed": feed}) as pipeline:
        sources = [each for each in pipeline if isinstance(each, ChunkSource)]
    hidden = [BadSource(path, reason, "it cannot be looked at") for path, reason in found.unreadable.items()]
    return OpenedSources(sources, [*hidden, *feed.bad], found.counters()["drops"] | feed.counters()["drops"])
