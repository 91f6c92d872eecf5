"""Token ids as files that can be mapped: written once, versioned, read in place (docs/reference/formats.md)."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "compressed_blocks": "Damage",
        "frames": "FRAME_BYTES MAGIC Frame Tokens hash_blocks open_body token_dtype xxh64",
        "layout": "DOCUMENTS FIRST_DOCUMENT Layout Row Rows rows_of",
        "manifest": "Diff Version describe",
        "opening": "Opened to_prepare",
        "origins": "Origin Origins OriginsWriter named numbered origins_path",
        "reader": "TokenStore",
        "resume": "discard",
        "unfinished": "COUNTS ORIGINS open_unfinished stamp_of",
        "verify": "Report",
        "weighted_tokens": "WEIGHTED WEIGHTS carries_loss codes_of ids_in rounded weigh",
        "writer": "TokenStoreWriter",
    },
)
