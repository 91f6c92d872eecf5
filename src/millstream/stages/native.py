"""Memory that stages share, natively: how much of it may be held, and what is used again."""

from millstream._core import Budget, BytePool

__all__ = ["Budget", "BytePool"]
