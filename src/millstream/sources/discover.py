"""A path, a folder, a pattern or a list of them -> the files to read, in an order that is always the same."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from millstream.errors import SourceError
from millstream.sources.formats import SUFFIXES, format_of

Where = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to read: where it is, how the store will call it, its format and its size."""

    path: Path
    name: str
    format: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Found:
    """The files in their order, and what was passed over, counted by reason."""

    files: tuple[FoundFile, ...]
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(file.bytes for file in self.files)


def discover(source: Where | Iterable[Where], *, format: str | None = None) -> Found:
    """Find the files of `source`, sorted by name; names are relative to what all of them share.

    In folders, hidden files and files of unknown kind are passed over and counted; with `format` every file
    that is not hidden is taken. A file that was named, or matches a pattern, is always taken.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("b.txt", "a.jsonl", "photo.png", ".hidden.txt"):
    ...     _ = (folder / name).write_text("x")
    >>> found = discover(folder)
    >>> [file.name for file in found.files], sorted(found.skipped.items())
    (['a.jsonl', 'b.txt'], [('hidden', 1), ('unknown kind', 1)])
    """
    skipped: Counter[str] = Counter()
    wanted = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not wanted:
        raise SourceError("the list of sources is empty", hint="name at least one file, folder or pattern")
    roots: list[Path] = []
    paths: dict[str, Path] = {}  # by real path: what is reached on two ways is read once
    for where in wanted:
        for root, path in _expand(os.fspath(where), format, skipped):
            if paths.setdefault(os.path.realpath(path), path) is not path:
                skipped["listed twice"] += 1
            roots.append(root)
    if not paths:
        passed = ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.items())) or "it is empty"
        known = " ".join(suffix for suffixes in SUFFIXES.values() for suffix in suffixes)
        raise SourceError(f"{_name(wanted)}: no file to read ({passed})", hint=f"known kinds: {known}; or pass format=")
    base = os.path.commonpath([_absolute(root) for root in roots])
    files = [_found(path, base, format) for path in paths.values()]
    return Found(tuple(sorted(files, key=lambda file: file.name.encode())), skipped)


def _expand(where: str, format: str | None, skipped: Counter[str]) -> Iterator[tuple[Path, Path]]:
    """(root, file) for each file that one entry stands for."""
    path = Path(where)
    if path.is_dir():
        yield from ((path, file) for file in _walk(path, format, skipped))
    elif path.exists():
        if not path.is_file():
            raise SourceError(f"{where}: this is not a regular file", hint="copy it into a file first")
        yield path.parent, path
    elif glob.has_magic(where):
        matches = [Path(match) for match in sorted(glob.glob(where, recursive=True))]  # noqa: PTH207 - takes absolute patterns
        files = [match for match in matches if match.is_file()]
        if not files:
            raise SourceError(f"{where}: nothing matches this pattern", hint="`**` matches any depth of folders")
        yield from ((file.parent, file) for file in files)
    else:
        raise SourceError(
            f"{where}: there is no such file or folder", hint="look at the spelling; in a shell, patterns need quotes"
        )


def _walk(folder: Path, format: str | None, skipped: Counter[str]) -> Iterator[Path]:
    """The readable files below a folder. Links are followed; a folder that was seen is not entered again."""
    seen = {_identity(folder)}
    for here, folders, names in os.walk(folder, followlinks=True, onerror=_refuse):
        for name in list(folders):
            identity = None if name.startswith(".") else _identity(Path(here, name))
            if identity is None or identity in seen:
                skipped["hidden folder" if identity is None else "folder reached twice"] += 1
                folders.remove(name)
            else:
                seen.add(identity)
        for name in names:
            path = Path(here, name)
            reason = _reason_to_skip(path, format)
            if reason is None:
                yield path
            else:
                skipped[reason] += 1


def _reason_to_skip(path: Path, format: str | None) -> str | None:
    if path.name.startswith("."):
        return "hidden"
    if format is None and format_of(path) is None:
        return "unknown kind"
    if not path.exists():
        return "broken link"
    if not path.is_file():
        return "not a regular file"
    return None


def _found(path: Path, base: str, format: str | None) -> FoundFile:
    name = Path(os.path.relpath(_absolute(path), base)).as_posix()
    kind = format or format_of(path)
    if kind is None:
        raise SourceError(f"{path}: this kind of file is unknown", hint='pass format="text" or format="jsonl"')
    try:
        name.encode()
    except UnicodeEncodeError:
        raise SourceError(f"{name!r}: this file name is not UTF-8", hint="rename the file") from None
    return FoundFile(path, name, kind, path.stat().st_size)


def _absolute(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - resolve() would replace links by their targets


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def _refuse(error: OSError) -> None:
    raise SourceError(
        f"{error.filename}: cannot be listed: {error.strerror}", hint="look at the permissions of the folder"
    )


def _name(wanted: list[Where]) -> str:
    return os.fspath(wanted[0]) if len(wanted) == 1 else f"{len(wanted)} sources"
