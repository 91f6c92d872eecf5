"""Bytes somewhere -> records, each with its origin (file, row, byte range).

`discover` finds the files. A `Format` cuts a file into chunks, and reads a chunk into columns of records. Any number
of threads read chunks independently. Bad records are reported beside the good ones. Memory does not grow with the
files.
"""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "appended": "GrowingLines",
        "chunk": "BLANK CHANGED CHUNK_BYTES FLEETING GONE KEPT_BYTES MAX_DOCUMENT_BYTES MAX_EXPANSION TOO_LONG "
        "BadRecord Chunk ChunkRead FileFailure Reading",
        "decoding": "StreamLayout binary_layout decoded layout_of",
        "decompress": "SUFFIXES",
        "file_digests": "digest_of digesting fingerprint_files identify_object touch_of",
        "file_discovery": "Found Patterns Where discover",
        "formats": "Format check_gives_rows first_row format_named format_of raw_record read_file register_format",
        "in_memory": "HuggingFaceFormat RowsFormat",
        "jsonl": "is_unicode kind_of object_in short wording",
        "parquet": "ParquetFormat",
        "record_block": "NO_BYTES Record RecordBlock joined",
        "record_format": "RecordFormat",
        "separated": "overlaps_itself plain_chunk",
        "source_file": "FoundFile opened read_at",
    },
)
