from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.store.compressed_blocks import Damage as Damage
    from millstream.store.frames import FRAME_BYTES as FRAME_BYTES
    from millstream.store.frames import MAGIC as MAGIC
    from millstream.store.frames import Frame as Frame
    from millstream.store.frames import Tokens as Tokens
    from millstream.store.frames import hash_blocks as hash_blocks
    from millstream.store.frames import open_body as open_body
    from millstream.store.frames import token_dtype as token_dtype
    from millstream.store.frames import xxh64 as xxh64
    from millstream.store.layout import DOCUMENTS as DOCUMENTS
    from millstream.store.layout import FIRST_DOCUMENT as FIRST_DOCUMENT
    from millstream.store.layout import Layout as Layout
    from millstream.store.layout import Row as Row
    from millstream.store.layout import Rows as Rows
    from millstream.store.layout import rows_of as rows_of
    from millstream.store.manifest import Diff as Diff
    from millstream.store.manifest import Version as Version
    from millstream.store.manifest import describe as describe
    from millstream.store.opening import Opened as Opened
    from millstream.store.opening import to_prepare as to_prepare
    from millstream.store.origins import Origin as Origin
    from millstream.store.origins import Origins as Origins
    from millstream.store.origins import OriginsWriter as OriginsWriter
    from millstream.store.origins import named as named
    from millstream.store.origins import numbered as numbered
    from millstream.store.origins import origins_path as origins_path
    from millstream.store.reader import TokenStore as TokenStore
    from millstream.store.resume import discard as discard
    from millstream.store.unfinished import COUNTS as COUNTS
    from millstream.store.unfinished import ORIGINS as ORIGINS
    from millstream.store.unfinished import open_unfinished as open_unfinished
    from millstream.store.unfinished import stamp_of as stamp_of
    from millstream.store.verify import Report as Report
    from millstream.store.weighted_tokens import WEIGHTED as WEIGHTED
    from millstream.store.weighted_tokens import WEIGHTS as WEIGHTS
    from millstream.store.weighted_tokens import carries_loss as carries_loss
    from millstream.store.weighted_tokens import codes_of as codes_of
    from millstream.store.weighted_tokens import ids_in as ids_in
    from millstream.store.weighted_tokens import rounded as rounded
    from millstream.store.weighted_tokens import weigh as weigh
    from millstream.store.writer import TokenStoreWriter as TokenStoreWriter

__all__ = [
    "COUNTS",
    "DOCUMENTS",
    "FIRST_DOCUMENT",
    "FRAME_BYTES",
    "MAGIC",
    "ORIGINS",
    "WEIGHTED",
    "WEIGHTS",
    "Damage",
    "Diff",
    "Frame",
    "Layout",
    "Opened",
    "Origin",
    "Origins",
    "OriginsWriter",
    "Report",
    "Row",
    "Rows",
    "TokenStore",
    "TokenStoreWriter",
    "Tokens",
    "Version",
    "carries_loss",
    "codes_of",
    "describe",
    "discard",
    "hash_blocks",
    "ids_in",
    "named",
    "numbered",
    "open_body",
    "open_unfinished",
    "origins_path",
    "rounded",
    "rows_of",
    "stamp_of",
    "to_prepare",
    "token_dtype",
    "weigh",
    "xxh64",
]
