"""Which encoding a file has, and blocks in any encoding -> blocks of UTF-8.

What is not valid in its encoding becomes the byte 0xFF, which is never valid UTF-8: so one check, of UTF-8, finds
the bad records of every encoding.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from millstream.errors import SourceError

BOM = b"\xef\xbb\xbf"
_MARKS = {  # longest first: the mark of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_MARK_INVALID = "millstream.mark_invalid"


def encoding_of(head: bytes, wanted: str) -> tuple[str, int]:
    """(encoding, bytes of its byte order mark) of a file that begins with `head`.

    >>> encoding_of(b"plain", "auto"), encoding_of(b"\\xff\\xfea\\0", "auto"), encoding_of(b"plain", "latin-1")
    (('utf-8', 0), ('utf-16-le', 2), ('iso8859-1', 0))
    """
    if wanted == "auto":
        for mark, name in _MARKS.items():
            if head.startswith(mark):
                return name, len(mark)
        name = "utf-8"
    else:
        name = known_encoding(wanted)
        for mark, marked in _MARKS.items():
            if head.startswith(mark) and marked.startswith(name):
                return marked, len(mark)
    return name, len(BOM) if name == "utf-8" and head.startswith(BOM) else 0


def known_encoding(name: str) -> str:
    """The plain name of an encoding that Python knows.

    >>> known_encoding("UTF8")
    'utf-8'
    """
    try:
        codec = codecs.lookup(name)
        "".encode(name)  # fails for codecs that do not make bytes of text
    except (LookupError, TypeError, ValueError):
        raise SourceError(f"encoding={name!r} is unknown", hint='e.g. "utf-8", "utf-16" or "latin-1"') from None
    return "utf-8" if codec.name in ("utf-8-sig", "ascii") else codec.name


def transcoded(blocks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Blocks of UTF-8, with 0xFF for what is not valid.

    >>> b"".join(transcoded(iter([b"\\xe9"]), "latin-1")), b"".join(transcoded(iter([b"a\\0\\0\\xd8"]), "utf-16-le"))
    (b'\\xc3\\xa9', b'a\\xff')
    """
    decoder = codecs.getincrementaldecoder(encoding)(_MARK_INVALID)
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", "surrogateescape")
    yield decoder.decode(b"", final=True).encode("utf-8", "surrogateescape")


def _mark_invalid(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "\udcff", error.end


codecs.register_error(_MARK_INVALID, _mark_invalid)
