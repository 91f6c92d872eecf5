"""Bytes at rest, for all rooms downstream: durable files, locks, logs, sidecars, staged stores, caches, zstd frames."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cache": "FileCache default_cache_dir key_of",
        "checked_json": "EDITED compact digest read_json sealed",
        "compression": "ZSTD_LEVEL ZstdReader compress decompress has_zstd need_zstd",
        "durable": "COPY_AGAIN Bytes disk",
        "follow": "FollowedLog announce announced forget",
        "lock": "Lock",
        "log": "OTHER_RUN ChainedLog DamagedLine LogReader Position holds log_of",
        "native": "ZstdStream hash_stretches xxh64",
        "record_log": "RecordLog are_whole record_type records_of",
        "sidecar": "RESTORE_SIDECAR Sidecars",
        "staging": "FinishedStore staged staging_folder",
        "state": "DAMAGED_STATE MOST_BYTES MOST_COUNT STATE_FORMAT StateFiles check_state_header read_count "
        "state_fits state_header",
    },
)
