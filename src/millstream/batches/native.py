"""The native side of batches, as other folders see it: memory of rows, and what is filled into it."""

from millstream._core import Batch, Feed, Packing

__all__ = ["Batch", "Feed", "Packing"]
