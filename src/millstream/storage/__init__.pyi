from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.storage.cache import FileCache as FileCache
    from millstream.storage.cache import default_cache_dir as default_cache_dir
    from millstream.storage.cache import key_of as key_of
    from millstream.storage.checked_json import EDITED as EDITED
    from millstream.storage.checked_json import compact as compact
    from millstream.storage.checked_json import digest as digest
    from millstream.storage.checked_json import read_json as read_json
    from millstream.storage.checked_json import sealed as sealed
    from millstream.storage.compression import ZSTD_LEVEL as ZSTD_LEVEL
    from millstream.storage.compression import ZstdReader as ZstdReader
    from millstream.storage.compression import compress as compress
    from millstream.storage.compression import decompress as decompress
    from millstream.storage.compression import has_zstd as has_zstd
    from millstream.storage.compression import need_zstd as need_zstd
    from millstream.storage.durable import COPY_AGAIN as COPY_AGAIN
    from millstream.storage.durable import Bytes as Bytes
    from millstream.storage.durable import disk as disk
    from millstream.storage.follow import FollowedLog as FollowedLog
    from millstream.storage.follow import announce as announce
    from millstream.storage.follow import announced as announced
    from millstream.storage.follow import forget as forget
    from millstream.storage.lock import Lock as Lock
    from millstream.storage.log import OTHER_RUN as OTHER_RUN
    from millstream.storage.log import ChainedLog as ChainedLog
    from millstream.storage.log import DamagedLine as DamagedLine
    from millstream.storage.log import LogReader as LogReader
    from millstream.storage.log import Position as Position
    from millstream.storage.log import holds as holds
    from millstream.storage.log import log_of as log_of
    from millstream.storage.native import ZstdStream as ZstdStream
    from millstream.storage.native import hash_stretches as hash_stretches
    from millstream.storage.native import xxh64 as xxh64
    from millstream.storage.record_log import RecordLog as RecordLog
    from millstream.storage.record_log import are_whole as are_whole
    from millstream.storage.record_log import record_type as record_type
    from millstream.storage.record_log import records_of as records_of
    from millstream.storage.sidecar import RESTORE_SIDECAR as RESTORE_SIDECAR
    from millstream.storage.sidecar import Sidecars as Sidecars
    from millstream.storage.staging import FinishedStore as FinishedStore
    from millstream.storage.staging import staged as staged
    from millstream.storage.staging import staging_folder as staging_folder
    from millstream.storage.state import DAMAGED_STATE as DAMAGED_STATE
    from millstream.storage.state import MOST_BYTES as MOST_BYTES
    from millstream.storage.state import MOST_COUNT as MOST_COUNT
    from millstream.storage.state import STATE_FORMAT as STATE_FORMAT
    from millstream.storage.state import StateFiles as StateFiles
    from millstream.storage.state import check_state_header as check_state_header
    from millstream.storage.state import read_count as read_count
    from millstream.storage.state import state_fits as state_fits
    from millstream.storage.state import state_header as state_header

__all__ = [
    "COPY_AGAIN",
    "DAMAGED_STATE",
    "EDITED",
    "MOST_BYTES",
    "MOST_COUNT",
    "OTHER_RUN",
    "RESTORE_SIDECAR",
    "STATE_FORMAT",
    "ZSTD_LEVEL",
    "Bytes",
    "ChainedLog",
    "DamagedLine",
    "FileCache",
    "FinishedStore",
    "FollowedLog",
    "Lock",
    "LogReader",
    "Position",
    "RecordLog",
    "Sidecars",
    "StateFiles",
    "ZstdReader",
    "ZstdStream",
    "announce",
    "announced",
    "are_whole",
    "check_state_header",
    "compact",
    "compress",
    "decompress",
    "default_cache_dir",
    "digest",
    "disk",
    "forget",
    "has_zstd",
    "hash_stretches",
    "holds",
    "key_of",
    "log_of",
    "need_zstd",
    "read_count",
    "read_json",
    "record_type",
    "records_of",
    "sealed",
    "staged",
    "staging_folder",
    "state_fits",
    "state_header",
    "xxh64",
]
