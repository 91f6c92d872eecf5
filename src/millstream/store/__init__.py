"""Token ids as files that can be mapped: written once, versioned, read in place (docs/reference/formats.md)."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "bodies": "Damage Report",
        "format": "FRAME_BYTES MAGIC Frame Tokens hash_blocks token_dtype xxh64",
        "layout": "Layout",
        "manifest": "describe",
        "numbers": "open_body",
        "opening": "Opened to_prepare",
        "origin": "Origin Origins OriginsWriter named numbered origins_path",
        "reader": "TokenStore",
        "start": "discard",
        "table": "DOCUMENTS FIRST_DOCUMENT Row Rows rows_of",
        "unfinished": "COUNTS ORIGINS open_unfinished stamp_of",
        "versions": "Diff Version",
        "weights": "WEIGHTED WEIGHTS carries_loss codes_of ids_in rounded weigh",
        "writer": "TokenStoreWriter",
    },
)
