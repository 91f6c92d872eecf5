"""Which formats there are, how a file's name decides its format, and how plugins add one.

A format turns a found file into chunks and each chunk into columns of records. One more is one more file in this
folder and one line here, or a plugin: `register_format(...)`, or an entry point in the group `millstream.formats`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar, overload

from millstream.errors import RecordError, SourceError
from millstream.sources.chunk import Chunk, ChunkRead, FileFailure, Reading, numbered
from millstream.sources.decompress import SUFFIXES as COMPRESSED
from millstream.sources.jsonl import JsonlFormat, object_in
from millstream.sources.source_file import FoundFile

ENTRY_POINTS = "millstream.formats"
_log = logging.getLogger("millstream.sources")


class Format(Protocol):
    """Reads one kind of file. Its methods are called from several threads at once."""

    @property
    def name(self) -> str:
        """What users call it, e.g. "jsonl"."""
        ...

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The endings of file names it is known by, with their dots, in small letters."""
        ...

    def chunks(self, file: FoundFile, reading: Reading) -> Iterator[Chunk]:
        """Cut a file into chunks, lazily. A file that fails ends with a chunk that carries `bad`."""
        ...

    def read(self, chunk: Chunk, file: FoundFile, reading: Reading) -> ChunkRead:
        """Read one chunk. What cannot be used is reported, never raised."""
        ...

    def raw(self, file: FoundFile, reading: Reading, row: int, start: int, stop: int) -> bytes:
        """Give the raw record back that has this origin; `row` counts from the start of the file."""
        ...


FormatT = TypeVar("FormatT")
_formats: dict[str, Format] = {}


@overload
def register_format(format: type[FormatT]) -> type[FormatT]: ...
@overload
def register_format(format: Format) -> None: ...
def register_format(format: Format | type) -> type | None:
    """Make a format known by its name and its endings; it replaces an earlier one of the same name, also one of ours.

    Also a decorator of a class, of which one is made without arguments.

    >>> from millstream.sources.csv import CsvFormat
    >>> register_format(CsvFormat("bars", "|", (".psv",)))
    >>> format_of(Path("table.psv.gz"))
    'bars'
    """
    if isinstance(format, type):
        try:
            register_format(format())
        except TypeError as error:
            raise SourceError(
                f"a format cannot be made of {format.__name__}: {error}",
                hint="pass one that was made: register_format(MyFormat(…))",
            ) from None
        return format
    missing = [name for name in ("name", "suffixes", "chunks", "read", "raw") if not hasattr(format, name)]
    if missing:
        raise SourceError(
            f"a {type(format).__name__} is no format: it has no {', '.join(missing)}",
            hint='inherit from RecordFormat, and write name = "…" and suffixes = (".…",) into the class',
        )
    suffixes: object = format.suffixes
    if not isinstance(suffixes, tuple | list):
        raise SourceError(f"format {format.name!r}: suffixes={suffixes!r}", hint='a tuple, such as (".jsonl",)')
    for suffix in suffixes:
        if not suffix.startswith(".") or suffix != suffix.lower():
            raise SourceError(f"format {format.name!r}: {suffix!r} is no ending", hint='such as ".jsonl"')
    _formats[format.name] = format
    return None


def format_named(name: str) -> Format:
    """The format of a name.

    >>> format_named("jsonl").suffixes
    ('.jsonl', '.ndjson')
    """
    known = known_formats()
    if name not in known:
        raise SourceError(f"format={name!r} is unknown", hint=f"choose one of {', '.join(sorted(known))}")
    return known[name]


def format_of(path: Path) -> str | None:
    """The format of a file by its name, or None; the ending of a compression is looked through.

    >>> [format_of(Path(name)) for name in ("a/B.JSONL", "notes.md.zst", "photo.png", "web.tar.gz")]
    ['jsonl', 'text', None, 'tar']
    """
    name = path.name.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    ending = Path(name).suffix
    return next((each.name for each in reversed(known_formats().values()) if ending in each.suffixes), None)


def known_formats() -> dict[str, Format]:
    """All formats: our own, those of installed plugins, and those that were registered."""
    return {**_our_own(), **_plugins(), **_formats}


def read_file(file: FoundFile, reading: Reading) -> Iterator[ChunkRead]:
    """Read a whole file, chunk by chunk, with rows that count from its start.

    >>> import tempfile
    >>> from millstream.sources.file_discovery import discover
    >>> path = Path(tempfile.mkdtemp()) / "a.jsonl"
    >>> _ = path.write_text('{"text": "one"}\\n{"text": "two"}\\n')
    >>> [record.text for read in read_file(discover(path).files[0], Reading()) for record in read.block]
    ['one', 'two']
    """
    if reading.whole_rows:
        check_gives_rows([file])
    format = format_named(file.format)
    return numbered(format.read(chunk, file, reading) for chunk in format.chunks(file, reading))


def first_row(file: FoundFile) -> Mapping[str, Any] | None:
    """The first row of a file that can be read, if it is one of rows.

    >>> import tempfile
    >>> from millstream.sources.file_discovery import discover
    >>> path = Path(tempfile.mkdtemp()) / "a.jsonl"
    >>> _ = path.write_text('not JSON\\n{"text": "two"}\\n')
    >>> first_row(discover(path).files[0])
    {'text': 'two'}
    """
    format, reading = format_named(file.format), Reading(whole_rows=True)
    if not getattr(format, "gives_rows", False):
        return None
    for chunk in format.chunks(file, reading):
        for record in format.read(chunk, file, reading).block:
            try:
                return object_in(record.text, like="{…}")
            except RecordError:
                continue
    return None


def check_gives_rows(files: Iterable[FoundFile]) -> None:
    """See that whole rows can be read from files: their format says so by `gives_rows = True`.

    >>> check_gives_rows([FoundFile(Path("a.txt"), "a.txt", "text", 5)])
    Traceback (most recent call last):
    millstream.errors.SourceError: a.txt: a file of format 'text' has no rows of several fields
      hint: these have: arrow, huggingface, json, jsonl, parquet, rows
    """
    able = [name for name, format in known_formats().items() if getattr(format, "gives_rows", False)]
    for file in files:
        if file.format not in able:
            raise SourceError(
                f"{file.name}: a file of format {file.format!r} has no rows of several fields",
                hint=f"these have: {', '.join(sorted(able))}",
            )


def raw_record(file: FoundFile, reading: Reading, row: int, start: int, stop: int) -> bytes:
    """Give a raw record back by its origin; `row` counts from the start of the file."""
    try:
        return format_named(file.format).raw(file, reading, row, start, stop)
    except FileFailure as failure:
        raise SourceError(f"{file.name}:{row + 1}: {failure.reason}: {failure.found}", hint=failure.hint) from failure


@cache
def _our_own() -> dict[str, Format]:
    from millstream.sources.arrow import ArrowFormat
    from millstream.sources.csv import CsvFormat
    from millstream.sources.in_memory import HuggingFaceFormat, RowsFormat
    from millstream.sources.jsonl import JsonFormat
    from millstream.sources.parquet import ParquetFormat
    from millstream.sources.plain_text import TextFormat
    from millstream.sources.tar import TarFormat

    ours: tuple[Format, ...] = (
        TextFormat(),
        JsonlFormat(),
        JsonFormat(),
        CsvFormat("csv", ",", (".csv",)),
        CsvFormat("tsv", "\t", (".tsv", ".tab")),
        ParquetFormat(),
        ArrowFormat(),
        TarFormat(),
        HuggingFaceFormat(),
        RowsFormat(),
    )
    return {format.name: format for format in ours}


@cache
def _plugins() -> dict[str, Format]:
    """The formats of installed packages; one that cannot be loaded is named in the log and left out."""
    from importlib.metadata import entry_points

    found: dict[str, Format] = {}
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        try:
            loaded = entry.load()
            format = loaded() if isinstance(loaded, type) else loaded
            found[format.name] = format
        except Exception as error:  # a plugin may fail in any way
            _log.warning("the format plugin %r (%s) cannot be loaded: %s", entry.name, entry.value, error)
    return found
