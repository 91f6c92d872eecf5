"""A document of a store -> the raw record it was made from, read again from its source file.

The store keeps the row and the bytes of every document, the manifest how files were read, and the size and hash of
each. So the record is read by the same rules, and a file that is no longer the same is refused, never quoted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from millstream.errors import SourceError, StoreError
from millstream.preparation.report import read_report
from millstream.sources import NO_BYTES, FoundFile, HuggingFaceFormat, Reading, RowsFormat, digest_of
from millstream.sources import raw_record as read_again
from millstream.store import Origin, TokenStore

HASHED_BYTES = 1 << 30
"""Files up to this size are hashed before they are quoted; of larger ones only the size is compared."""


@dataclass(frozen=True, slots=True)
class RawRecord:
    """What a source file says at the origin of a document: the line, the row, the member, before any step of a recipe.

    `hashed` tells whether the whole file was compared with its hash, or only its size.
    """

    origin: Origin
    path: Path
    bytes: bytes
    hashed: bool

    @property
    def text(self) -> str:
        """The record for people; bytes that are not UTF-8 are spelled out.

        >>> RawRecord(Origin("a.txt", 0, 0, 3), Path("a.txt"), b"ab\\xff", hashed=True).text
        'ab\\\\xff'
        """
        return self.bytes.decode("utf-8", "backslashreplace")


def raw_record(
    store: TokenStore, document: int, root: str | Path | None = None, *, hashed: bool | None = None
) -> RawRecord:
    """Read the record again that a document was made from.

    `root` is the folder that holds the source files; without it, the one that the report of the store names. Files of
    more than a gibibyte are only hashed if `hashed` says so.

    >>> import tempfile
    >>> from millstream import TokenStore, prepare
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.jsonl").write_text('{"text": "the mill", "id": 7}\\n')
    >>> report = prepare(folder / "a.jsonl", folder / "corpus", tokenizer="char")
    >>> raw_record(TokenStore(report.path), 0).text
    '{"text": "the mill", "id": 7}'
    """
    origin = origin_of(store, document)
    file, reading, hashed = _source_file(store, origin, root, hashed=hashed)
    return RawRecord(origin, file.path, _read(file, reading, origin), hashed)


def origin_of(store: TokenStore, document: int) -> Origin:
    """Where a document came from; a store that does not know is an error."""
    origin = store.origin_of(document)
    if origin is None:
        raise StoreError(
            f"{store.path}: does not say where its documents came from",
            hint="stores made by `prepare` do; where it has no .org file, that was not copied with it",
        )
    return origin


ReadRecord = Callable[[Origin], bytes]
"""(origin) -> the raw record there."""


def reader_of_store(store: TokenStore, root: str | Path | None = None) -> ReadRecord:
    """Read records again that a store was made from; each file is compared with what it was only once."""
    files: dict[str, tuple[FoundFile, Reading]] = {}

    def read(origin: Origin) -> bytes:
        if origin.file not in files:
            files[origin.file] = _source_file(store, origin, root)[:2]
        return _read(*files[origin.file], origin)

    return read


def reader_of_files(files: Iterable[FoundFile], reading: Reading) -> ReadRecord:
    """Read records again of files, or rows, that are at hand."""
    known = {file.name: file for file in files}
    return lambda origin: _read(known[origin.file], reading, origin)


def _read(file: FoundFile, reading: Reading, origin: Origin) -> bytes:
    start, stop = (NO_BYTES if place is None else place for place in (origin.start, origin.stop))
    return read_again(file, reading, origin.row, start, stop)


def _source_file(
    store: TokenStore, origin: Origin, root: str | Path | None, *, hashed: bool | None = None
) -> tuple[FoundFile, Reading, bool]:
    """The file that a record came from, how it was read, and whether the whole of it was compared with its hash."""
    source, format, reading = _described(store, origin.file)
    if format in (HuggingFaceFormat.name, RowsFormat.name):
        raise SourceError(f"{origin.file}: was a data set in memory, not a file", hint=f"its row is {origin.row}")
    hashed = source["bytes"] <= HASHED_BYTES if hashed is None else hashed
    path = _root(store, root) / _inside(origin.file)
    return _unchanged(path, origin.file, format, source, hashed=hashed), reading, hashed


def _described(store: TokenStore, file: str) -> tuple[Mapping[str, Any], str, Reading]:
    """What the manifest says of a file: size and hash, its format, and how it was read."""
    sources, recipe = store.manifest["sources"], store.manifest["recipe"]
    try:
        place = next(place for place, source in enumerate(sources) if source["path"] == file)
        return sources[place], str(recipe["formats"][place]), Reading(**recipe["reading"])
    except (KeyError, IndexError, TypeError):
        raise StoreError(
            f"{store.path}: its manifest does not say how {file} was read", hint="prepare the store again"
        ) from None


def _root(store: TokenStore, root: str | Path | None) -> Path:
    if root is not None:
        return Path(root)
    report = read_report(store.path)
    if report is None or report.get("fingerprint") != store.fingerprint or not isinstance(report.get("root"), str):
        raise SourceError(f"{store.path}: has no report that says where its files were", hint="pass root=")
    return Path(report["root"])


def _inside(name: str) -> PurePosixPath:
    """A name that stays below its root; a manifest is not trusted."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise StoreError(f"{name!r} leads out of the folder of the source files", hint="its manifest was tampered with")
    return path


def _unchanged(path: Path, name: str, format: str, source: Mapping[str, Any], *, hashed: bool) -> FoundFile:
    """The file, if it still is the one that the store was made from."""
    hint = "pass root= to say where the file of that time is"
    try:
        status = path.stat()
    except OSError as error:
        raise SourceError(
            f"{path}: the file that the document came from is gone: {error.strerror}", hint=hint
        ) from None
    if status.st_size != source["bytes"]:
        found = f"it had {source['bytes']:,} bytes then and has {status.st_size:,} now"
        raise SourceError(f"{path}: the file has changed since the store was made: {found}", hint=hint)
    if hashed and digest_of(path, status.st_size) != source["blake2b"]:
        found = "it has the same size and other bytes"
        raise SourceError(f"{path}: the file has changed since the store was made: {found}", hint=hint)
    return FoundFile(path, name, format, status.st_size, status.st_mtime_ns, status.st_ino)
