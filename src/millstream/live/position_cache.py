"""Positions of games that were read anyway, for the next uses of these games.

What a use gives is decided by the game and the use alone, so it does not matter whether it comes out of here: a cache
saves reading a whole game for one position, and changes nothing else.
"""

from __future__ import annotations

import threading
from heapq import heapify, heappop, heappush

from millstream.games import FrameBlock

PREFETCHED_USES = 8
"""Uses of a game whose positions are kept when it is read."""
AROUND = 1100
"""Bytes that Python takes for an entry beside its frames: about as many as one frame has."""


class PositionCache:
    """Chosen positions by game and use, up to so many bytes. When it is full, those of the oldest games make room: they
    leave the window first, or have left it.

    >>> cache = PositionCache(most_bytes=2000)
    >>> cache.put(3, 1, 40, FrameBlock.empty()), cache.put(2, 1, 40, FrameBlock.empty())
    (True, False)
    >>> cache.take(3, 1)[0], cache.take(3, 1), cache.counters()
    (40, None, {'hits': 1, 'misses': 1, 'refused': 1, 'dropped': 0, 'bytes': 0})
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._held: dict[tuple[int, int], tuple[int, FrameBlock]] = {}
        self._oldest: list[tuple[int, int]] = []
        """A heap of games and uses, the last use of the oldest game first; some were taken meanwhile."""
        self._lock = threading.Lock()
        self._bytes = self._hits = self._misses = self._refused = self._dropped = 0

    def put(self, chunk: int, use: int, length: int, frames: FrameBlock) -> bool:
        """Keep what a use will ask for; False if there is no room. `length` is that of the whole game."""
        with self._lock:
            if (chunk, use) in self._held or not self._has_room(_bytes_of(frames), chunk):
                self._refused += 1
                return False
            self._held[chunk, use] = length, frames
            self._bytes += _bytes_of(frames)
            heappush(self._oldest, (chunk, -use))
            if len(self._oldest) > 2 * len(self._held) + 1024:
                self._oldest = [(chunk, -use) for chunk, use in self._held]
                heapify(self._oldest)
            return True

    def take(self, chunk: int, use: int) -> tuple[int, FrameBlock] | None:
        """Give what was kept for a use, once: the length of the game, and the frames."""
        with self._lock:
            found = self._pop(chunk, use)
            self._hits += found is not None
            self._misses += found is None
            return found

    def counters(self) -> dict[str, int]:
        """How often it helped, and what it holds."""
        with self._lock:
            names = ("hits", "misses", "refused", "dropped", "bytes")
            return {name: getattr(self, f"_{name}") for name in names}

    def _has_room(self, wanted: int, chunk: int) -> bool:
        """Whether there is room, after positions of older games were let go of."""
        if wanted > self.most_bytes:
            return False
        while self._bytes + wanted > self.most_bytes:
            if not self._oldest or self._oldest[0][0] >= chunk:
                return False
            oldest, last_use = heappop(self._oldest)
            self._dropped += self._pop(oldest, -last_use) is not None
        return True

    def _pop(self, chunk: int, use: int) -> tuple[int, FrameBlock] | None:
        found = self._held.pop((chunk, use), None)
        if found is not None:
            self._bytes -= _bytes_of(found[1])
        return found


def _bytes_of(frames: FrameBlock) -> int:
    return frames.nbytes + AROUND
