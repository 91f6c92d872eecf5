from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.sources.appended import GrowingLines as GrowingLines
    from millstream.sources.chunk import BLANK as BLANK
    from millstream.sources.chunk import CHANGED as CHANGED
    from millstream.sources.chunk import CHUNK_BYTES as CHUNK_BYTES
    from millstream.sources.chunk import FLEETING as FLEETING
    from millstream.sources.chunk import GONE as GONE
    from millstream.sources.chunk import KEPT_BYTES as KEPT_BYTES
    from millstream.sources.chunk import MAX_DOCUMENT_BYTES as MAX_DOCUMENT_BYTES
    from millstream.sources.chunk import MAX_EXPANSION as MAX_EXPANSION
    from millstream.sources.chunk import TOO_LONG as TOO_LONG
    from millstream.sources.chunk import BadRecord as BadRecord
    from millstream.sources.chunk import Chunk as Chunk
    from millstream.sources.chunk import ChunkRead as ChunkRead
    from millstream.sources.chunk import FileFailure as FileFailure
    from millstream.sources.chunk import Reading as Reading
    from millstream.sources.decoding import StreamLayout as StreamLayout
    from millstream.sources.decoding import binary_layout as binary_layout
    from millstream.sources.decoding import decoded as decoded
    from millstream.sources.decoding import layout_of as layout_of
    from millstream.sources.decompress import SUFFIXES as SUFFIXES
    from millstream.sources.file_digests import digest_of as digest_of
    from millstream.sources.file_digests import digesting as digesting
    from millstream.sources.file_digests import fingerprint_files as fingerprint_files
    from millstream.sources.file_digests import identify_object as identify_object
    from millstream.sources.file_digests import touch_of as touch_of
    from millstream.sources.file_discovery import Found as Found
    from millstream.sources.file_discovery import Patterns as Patterns
    from millstream.sources.file_discovery import Where as Where
    from millstream.sources.file_discovery import discover as discover
    from millstream.sources.formats import Format as Format
    from millstream.sources.formats import check_gives_rows as check_gives_rows
    from millstream.sources.formats import first_row as first_row
    from millstream.sources.formats import format_named as format_named
    from millstream.sources.formats import format_of as format_of
    from millstream.sources.formats import raw_record as raw_record
    from millstream.sources.formats import read_file as read_file
    from millstream.sources.formats import register_format as register_format
    from millstream.sources.in_memory import HuggingFaceFormat as HuggingFaceFormat
    from millstream.sources.in_memory import RowsFormat as RowsFormat
    from millstream.sources.jsonl import is_unicode as is_unicode
    from millstream.sources.jsonl import kind_of as kind_of
    from millstream.sources.jsonl import object_in as object_in
    from millstream.sources.jsonl import short as short
    from millstream.sources.jsonl import wording as wording
    from millstream.sources.parquet import ParquetFormat as ParquetFormat
    from millstream.sources.record_block import NO_BYTES as NO_BYTES
    from millstream.sources.record_block import Record as Record
    from millstream.sources.record_block import RecordBlock as RecordBlock
    from millstream.sources.record_block import joined as joined
    from millstream.sources.record_format import RecordFormat as RecordFormat
    from millstream.sources.separated import overlaps_itself as overlaps_itself
    from millstream.sources.separated import plain_chunk as plain_chunk
    from millstream.sources.source_file import FoundFile as FoundFile
    from millstream.sources.source_file import opened as opened
    from millstream.sources.source_file import read_at as read_at

__all__ = [
    "BLANK",
    "CHANGED",
    "CHUNK_BYTES",
    "FLEETING",
    "GONE",
    "KEPT_BYTES",
    "MAX_DOCUMENT_BYTES",
    "MAX_EXPANSION",
    "NO_BYTES",
    "SUFFIXES",
    "TOO_LONG",
    "BadRecord",
    "Chunk",
    "ChunkRead",
    "FileFailure",
    "Format",
    "Found",
    "FoundFile",
    "GrowingLines",
    "HuggingFaceFormat",
    "ParquetFormat",
    "Patterns",
    "Reading",
    "Record",
    "RecordBlock",
    "RecordFormat",
    "RowsFormat",
    "StreamLayout",
    "Where",
    "binary_layout",
    "check_gives_rows",
    "decoded",
    "digest_of",
    "digesting",
    "discover",
    "fingerprint_files",
    "first_row",
    "format_named",
    "format_of",
    "identify_object",
    "is_unicode",
    "joined",
    "kind_of",
    "layout_of",
    "object_in",
    "opened",
    "overlaps_itself",
    "plain_chunk",
    "raw_record",
    "read_at",
    "read_file",
    "register_format",
    "short",
    "touch_of",
    "wording",
]
