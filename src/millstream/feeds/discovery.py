"""Which shards of a spool nobody has taken yet, and whether more may come: found by listing folders that changed."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from millstream.feeds.arrivals import Shard
from millstream.feeds.shards import END, SUFFIX, has_begun, is_producer, is_shard

_SETTLED_S = 2.0
"""A folder that looks unchanged for so long need not be listed again; the clocks of file systems are coarse."""


@dataclass(frozen=True)
class _Listing:
    """What a folder holds."""

    changed_ns: int
    since_s: float
    """When this change was first seen, by our own clock."""
    settled: bool
    names: list[str]
    ended: bool


class Discovery:
    """Looks through the folders of all producers.

    Args:
        spool: The spool's folder.
        taken: The last shard of each producer that was taken, kept up to date by the caller.
    """

    def __init__(self, spool: Path, taken: Mapping[str, str]) -> None:
        self._spool, self._taken = spool, taken
        self._listings: dict[str, _Listing] = {}
        self.was_open = False
        """Whether a producer was seen that had not ended."""

    def taken(self) -> list[Shard]:
        """Shards that were taken, and are still there."""
        self._look()
        return [
            Shard(producer, name)
            for producer, listing in self._listings.items()
            for name in listing.names
            if name <= self._taken.get(producer, "")
        ]

    def untaken(self) -> list[Shard]:
        """Shards that came in: those of a producer in their order, all producers by turns."""
        self._look()
        names = [
            [Shard(producer, name) for name in listing.names if name > self._taken.get(producer, "")]
            for producer, listing in sorted(self._listings.items())
        ]
        return [shard for shard in chain.from_iterable(zip_longest(*names)) if shard is not None]

    def ended(self) -> bool:
        """Whether every producer has said that nothing more comes, and everything was taken."""
        return not self.untaken() and bool(self._listings) and all(each.ended for each in self._listings.values())

    def _look(self) -> None:
        with os.scandir(self._spool) as entries:
            folders = {each.name: each for each in entries if is_producer(each.name) and each.is_dir()}
        for name in self._listings.keys() - folders.keys():
            del self._listings[name]
        for name, entry in folders.items():
            changed_ns, now_s = entry.stat().st_mtime_ns, time.monotonic()
            known = self._listings.get(name)
            unchanged = known is not None and known.changed_ns == changed_ns
            if known is not None and unchanged and known.settled:
                continue
            since_s = known.since_s if known is not None and unchanged else now_s
            if has_begun(self._spool / name):
                self._listings[name] = self._listed(name, changed_ns, since_s, now_s)
                self.was_open = self.was_open or not self._listings[name].ended

    def _listed(self, producer: str, changed_ns: int, since_s: float, now_s: float) -> _Listing:
        folder = self._spool / producer
        ended = (folder / END).exists()  # looked for first: what is listed after it is all there will be
        names = sorted(path.stem for path in folder.iterdir() if path.suffix == SUFFIX and is_shard(path.stem))
        return _Listing(changed_ns, since_s, now_s - since_s > _SETTLED_S, names, ended)
