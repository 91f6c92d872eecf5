"""The limit for loaders that hand batches over: three pairs of buffers in turn, one is read while the next is filled.

A loader that gives its buffer away cannot refill it at once. One pair of 2 MB stays in the second-level cache, three do
not: the difference to `limit` is what the memory below costs, not what a loader does.
"""

from __future__ import annotations

from contestants import limit
from contestants.limit import batches, prepare

__all__ = ["Gather", "batches", "prepare"]


class Gather(limit.Gather):
    """The same kernel into three pairs of buffers in turn, wholly in C++."""

    PAIRS = 3
