"""All sources of games that are there now, for whoever only looks."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from millstream.errors import RecordError
from millstream.games import ChunkSource, open_chunk_source
from millstream.live.chunk_source_feed import BadSource, ChunkSourceFeed
from millstream.live.discovery import Discovery
from millstream.stages import Pipeline

Where = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Opened:
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


def open_sources(where: Where | Sequence[Where]) -> Opened:
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
    return Opened(sources, [bad for each in opened for bad in each.bad], dict(skipped))


def _opened(place: Path) -> Opened:
    if place.is_file():
        try:
            return Opened([open_chunk_source(place)], [], {})
        except RecordError as error:
            return Opened([], [BadSource(str(place), error.reason, error.found)], {error.reason: 1})
    found = Discovery(place, watch=False)
    feed = ChunkSourceFeed(found, partial="keep")
    with Pipeline({"discovery": found, "chunk_source_feed": feed}) as pipeline:
        sources = [each for each in pipeline if isinstance(each, ChunkSource)]
    hidden = [BadSource(path, reason, "it cannot be looked at") for path, reason in found.unreadable.items()]
    return Opened(sources, [*hidden, *feed.bad], found.counters()["drops"] | feed.counters()["drops"])
