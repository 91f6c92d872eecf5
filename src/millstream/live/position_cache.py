"""Positions of games that were read anyway, for the next uses of these games.

What a use gives is decided by the game and the use alone, so it does not matter whether it comes out of here: a cache
saves reading a whole game for one position, and changes nothing else.
"""

from __future__ import annotations

import threading

from millstream.games import FrameBlock


class PositionCache:
    """Chosen positions by game and use, up to so many bytes; when it is full, nothing more goes in.

    >>> cache = PositionCache(most_bytes=1000)
    >>> cache.put(3, 1, 40, FrameBlock.empty())
    True
    >>> cache.take(3, 1)[0], cache.take(3, 1), cache.counters()
    (40, None, {'hits': 1, 'misses': 1, 'refused': 0, 'bytes': 0})
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._held: dict[tuple[int, int], tuple[int, FrameBlock]] = {}
        self._lock = threading.Lock()
        self._bytes = self._hits = self._misses = self._refused = 0

    def put(self, chunk: int, use: int, length: int, frames: FrameBlock) -> bool:
        """Keep what a use will ask for; False if there is no room. `length` is that of the whole game."""
        with self._lock:
            if self._bytes + frames.nbytes > self.most_bytes or (chunk, use) in self._held:
                self._refused += 1
                return False
            self._held[chunk, use] = length, frames
            self._bytes += frames.nbytes
            return True

    def take(self, chunk: int, use: int) -> tuple[int, FrameBlock] | None:
        """Give what was kept for a use, once: the length of the game, and the frames."""
        with self._lock:
            found = self._held.pop((chunk, use), None)
            if found is None:
                self._misses += 1
            else:
                self._hits += 1
                self._bytes -= found[1].nbytes
            return found

    def forget(self, lower: int) -> None:
        """Games below this number have left the window."""
        with self._lock:
            for key in [key for key in self._held if key[0] < lower]:
                self._bytes -= self._held.pop(key)[1].nbytes

    def counters(self) -> dict[str, int]:
        """How often it helped, and what it holds."""
        with self._lock:
            return {"hits": self._hits, "misses": self._misses, "refused": self._refused, "bytes": self._bytes}
