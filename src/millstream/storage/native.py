"""Native functions over bytes that other folders use too: hashes and compressed streams."""

from millstream._core import ZstdStream, hash_stretches, xxh64

__all__ = ["ZstdStream", "hash_stretches", "xxh64"]
