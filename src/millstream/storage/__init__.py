"""Bytes at rest, for every folder above: durable files, locks, logs, sidecars, staged stores, caches, zstd frames."""

from millstream.storage.cache import FileCache, default_cache_dir, key_of
from millstream.storage.checked_json import EDITED, compact, digest, read_json, sealed
from millstream.storage.compression import LEVEL, ZstdReader, compress, decompress, has_zstd, need_zstd
from millstream.storage.follow import FollowedLog, announce, announced, forget
from millstream.storage.lock import Lock, Presence, is_held
from millstream.storage.log import OTHER_RUN, ChainedLog, DamagedLine, LogReader, Position, holds, log_of
from millstream.storage.record_log import RecordLog, are_whole, record_type, records_of
from millstream.storage.sidecar import Sidecars
from millstream.storage.staging import FinishedStore, staged, staging_folder

__all__ = [
    "EDITED",
    "LEVEL",
    "OTHER_RUN",
    "ChainedLog",
    "DamagedLine",
    "FileCache",
    "FinishedStore",
    "FollowedLog",
    "Lock",
    "LogReader",
    "Position",
    "Presence",
    "RecordLog",
    "Sidecars",
    "ZstdReader",
    "announce",
    "announced",
    "are_whole",
    "compact",
    "compress",
    "decompress",
    "default_cache_dir",
    "digest",
    "forget",
    "has_zstd",
    "holds",
    "is_held",
    "key_of",
    "log_of",
    "need_zstd",
    "read_json",
    "record_type",
    "records_of",
    "sealed",
    "staged",
    "staging_folder",
]
