"""Bytes somewhere -> records, each with its origin (file, row, byte range).

`discover` finds the files. A `Format` (one file of this folder each) cuts a file into chunks, and reads a chunk into
columns of records; chunks are read independently, by any number of threads. What cannot be used is reported beside
them. Memory does not grow with the files.
"""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "appended": "GrowingLines",
        "chunk": "CHUNK_BYTES KEPT_BYTES MAX_DOCUMENT_BYTES MAX_EXPANSION BadRecord Chunk ChunkRead Reading",
        "decompress": "SUFFIXES",
        "discovery": "Found Patterns Where discover",
        "failure": "BLANK CHANGED FLEETING GONE TOO_LONG FileFailure",
        "formats": "Format check_gives_rows first_row format_named format_of raw_record read_file register_format",
        "found": "FoundFile opened read_at",
        "huggingface": "HuggingFaceFormat",
        "identity": "digest_of digesting fingerprint_files identify_object touch_of",
        "jsonl": "is_unicode kind_of object_in short wording",
        "parquet": "ParquetFormat",
        "record": "NO_BYTES Record RecordBlock joined",
        "record_format": "RecordFormat",
        "rows": "RowsFormat",
        "separated": "overlaps_itself plain_chunk",
        "stream": "Layout binary_layout decoded layout_of",
    },
)
