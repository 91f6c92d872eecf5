"""All sources of games that are there now, for whoever only looks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from millstream.errors import RecordError
from millstream.games.chunk_source import ChunkSource, open_chunk_source
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


def open_sources(path: Where) -> Opened:
    """Open a file of games, or all that lie in a folder and below it.

    >>> from millstream.games.example import example_folder
    >>> [source.name for source in open_sources(example_folder(2)).sources]
    ['training.0.gz', 'training.1.gz']
    """
    if Path(path).is_file():
        try:
            return Opened([open_chunk_source(path)], [], {})
        except RecordError as error:
            return Opened([], [BadSource(os.fspath(path), error.reason, error.found)], {error.reason: 1})
    found = Discovery(path, watch=False)
    feed = ChunkSourceFeed(found, partial="keep")
    with Pipeline({"discovery": found, "chunk_source_feed": feed}) as pipeline:
        sources = [each for each in pipeline if isinstance(each, ChunkSource)]
    hidden = [BadSource(path, reason, "it cannot be looked at") for path, reason in found.unreadable.items()]
    return Opened(sources, [*hidden, *feed.bad], found.counters()["drops"] | feed.counters()["drops"])
