"""A path, a folder, a pattern, a list of them, or a mapping to weights -> the files to read, in a deterministic order.

Nothing is opened here; reading notices a file that has changed since."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from math import isfinite
from pathlib import Path
from shlex import quote
from typing import Any

from millstream.errors import SourceError
from millstream.settings import local_path
from millstream.sources.formats import format_named, format_of, known_formats
from millstream.sources.in_memory import found_rows, is_rows
from millstream.sources.jsonl import JsonFormat
from millstream.sources.source_file import FoundFile

Where = str | os.PathLike[str]
Patterns = str | Iterable[str]


@dataclass(frozen=True, slots=True)
class Found:
    """The files in their order, and what was skipped, counted by reason."""

    files: tuple[FoundFile, ...]
    skipped: Counter[str] = field(default_factory=Counter)
    root: str = ""
    """What the names of the files are relative to."""

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(file.bytes for file in self.files)

    def resolved(self) -> list[dict[str, Any]]:
        """The list as plain values for a manifest: name, size and format of each file, its source and weight."""
        return [file.described() for file in self.files]


# What lies beside a store and would be read as data: reports, and records that were kept out of it.
_OUR_OWN = re.compile(r"\.report\.(html|json)$|\.(quarantine|rejected)\.jsonl(\.zst)?$")


@dataclass(frozen=True, slots=True)
class _Choice:
    """Which files of a folder are wanted."""

    format: str | None
    include: tuple[str, ...]
    exclude: tuple[str, ...]

    def reason_to_skip(self, path: Path, name: str) -> str | None:
        if path.name.startswith("."):
            return "hidden"
        if self.include and not _matches(name, self.include):
            return "not included"
        if _matches(name, self.exclude):
            return "excluded"
        if _OUR_OWN.search(name):
            return "made by prepare"
        kind = self.format or format_of(path)
        if kind is None:
            return "unknown kind"
        if kind == JsonFormat.name and self.format is None and not self.include:
            return "json, and not named"  # most such files in folders are settings, not data
        if not path.exists():
            return "broken link"
        return None if path.is_file() else "not a regular file"


def discover(source: Any, *, format: str | None = None, include: Patterns = (), exclude: Patterns = ()) -> Found:
    """Find the files of `source`, sorted by name; names are relative to what all of them share.

    `source` is a path, a pattern, a Hugging Face dataset, rows (a list of dicts), a list of them, or a mapping of
    them to weights. The weight of an entry is recorded with each of its files, for mixing them later, and
    changes nothing in what is read.
    In folders, hidden files, files of unknown kind and, unless `include` names them, `.json` files are skipped and
    counted; with `format` every file that is not hidden is taken. `include` and `exclude` are patterns for names below
    a folder, in which `*` also matches `/`.
    A file that was named, or matches a pattern, is always taken.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("b.txt", "a.jsonl", "photo.png", ".hidden.txt"):
    ...     _ = (folder / name).write_text("x")
    >>> found = discover(folder)
    >>> [file.name for file in found.files], sorted(found.skipped.items())
    (['a.jsonl', 'b.txt'], [('hidden', 1), ('unknown kind', 1)])
    >>> discover({folder / "b.txt": 0.7, folder / "a.jsonl": 0.3}).resolved()[1]["weight"]
    0.7
    """
    if format is not None:
        format_named(format)
    choice = _Choice(format, _patterns(include), _patterns(exclude))
    skipped: Counter[str] = Counter()
    wanted = _weighed(source)
    if not wanted:
        raise SourceError("the list of sources is empty", hint="name at least one file, folder or pattern")
    roots: list[Path] = []
    paths: dict[str, tuple[Path, str, float | None]] = {}  # by real path: what is reached on two ways is read once
    datasets: list[FoundFile] = []
    for place, (where, weight) in enumerate(wanted):
        if _is_dataset(where):
            from millstream.sources.in_memory import found_dataset

            dataset = found_dataset(where, place, {file.name for file in datasets})
            datasets.append(replace(dataset, source=dataset.name, weight=weight))
            continue
        if is_rows(where):
            rows = found_rows(where, {file.name for file in datasets})
            datasets.append(replace(rows, source=rows.name, weight=weight))
            continue
        if not isinstance(where, str | os.PathLike):
            raise SourceError(f"a {type(where).__name__} is no source", hint="name files, folders or patterns")
        local_path(where, "a source", SourceError)
        entry = os.fspath(where)
        for root, path in _expand(entry, choice, skipped):
            kept = (path, entry, weight)
            if paths.setdefault(os.path.realpath(path), kept) is not kept:
                skipped["listed twice"] += 1
            roots.append(root)
    if not paths and not datasets:
        raise _nothing(wanted, skipped)
    base = os.path.commonpath([_absolute(root) for root in roots]) if roots else ""
    files = [
        replace(_found(path, base, format), source=_relative(entry, base), weight=weight)
        for path, entry, weight in paths.values()
    ]
    return Found(tuple(sorted([*files, *datasets], key=lambda file: file.name.encode())), skipped, base)


def _weighed(source: Any) -> list[tuple[Any, float | None]]:
    """The entries of a source, each with its weight if it has one."""
    if isinstance(source, str | os.PathLike) or _is_dataset(source) or is_rows(source):
        return [(source, None)]
    if isinstance(source, Mapping) and all(_is_dataset(each) for each in source.values()):
        source = _only_split(source)
    if isinstance(source, Iterator) or not isinstance(source, Iterable):
        raise SourceError(
            f"a {type(source).__name__} is no source",
            hint="pass paths or rows as a list: list(rows); or write the rows into a file of JSON lines",
        )
    if not isinstance(source, Mapping):
        return [(each, None) for each in source]
    for where, weight in source.items():
        if not isinstance(weight, int | float) or not isfinite(weight) or weight <= 0:
            raise SourceError(f"{where}: weight={weight!r} is impossible", hint="weights are numbers above 0")
    return [(where, float(weight)) for where, weight in source.items()]


def _only_split(splits: Mapping[str, Any]) -> list[Any]:
    """The data set of a DatasetDict; of several splits some are for testing, and never meant to be trained on."""
    if len(splits) > 1:
        names = ", ".join(map(repr, splits))
        raise SourceError(
            f"a {type(splits).__name__} with {len(splits)} splits ({names}), and which of them is meant is not said",
            hint=f"pass one, such as data[{next(iter(splits))!r}]; or some in a list",
        )
    return list(splits.values())


def _nothing(wanted: list[tuple[Any, float | None]], skipped: Counter[str]) -> SourceError:
    passed = ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.items())) or "it is empty"
    known = " ".join(suffix for format in known_formats().values() for suffix in format.suffixes)
    name = os.fspath(wanted[0][0]) if len(wanted) == 1 else f"{len(wanted)} sources"
    return SourceError(f"{name}: no file to read ({passed})", hint=f"known kinds: {known}; or pass include= or format=")


def _expand(where: str, choice: _Choice, skipped: Counter[str]) -> Iterator[tuple[Path, Path]]:
    """(root, file) for each file that one entry stands for."""
    path = Path(where)
    if path.is_dir() and is_store(path):
        raise SourceError(
            f"{where}: this is a store, not raw files",
            hint=f"it is prepared: millstream inspect {quote(where)} shows it, millstream.load() in Python opens it",
        )
    if path.is_dir():
        yield from ((path, file) for file in _walk(path, choice, skipped))
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
            f"{where}: there is no such file or folder", hint="check the name; patterns need quotes in a shell"
        )


def _walk(folder: Path, choice: _Choice, skipped: Counter[str]) -> Iterator[Path]:
    """The readable files below a folder. Links are followed; a folder that was seen is not entered again."""
    seen = {_identity(folder)}
    for here, folders, names in os.walk(folder, followlinks=True, onerror=_refuse):
        if is_store(Path(here)):
            skipped["store"] += 1
            folders.clear()
            continue
        for name in list(folders):
            identity = None if name.startswith(".") else _identity(Path(here, name))
            if identity is None or identity in seen:
                skipped["hidden folder" if identity is None else "folder reached twice"] += 1
                folders.remove(name)
            else:
                seen.add(identity)
        for name in names:
            path = Path(here, name)
            reason = choice.reason_to_skip(path, path.relative_to(folder).as_posix())
            if reason is None:
                yield path
            else:
                skipped[reason] += 1


def is_store(folder: Path) -> bool:
    """Whether a folder is a store of ours: its tokens and its report are no raw data."""
    try:
        with (folder / "manifest.json").open("rb") as file:
            return b'"format": "millstream store"' in file.read(4096)
    except OSError:
        return False


def _patterns(given: Patterns) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) or fnmatchcase(name.rpartition("/")[2], pattern) for pattern in patterns)


def _found(path: Path, base: str, format: str | None) -> FoundFile:
    name = _relative(path, base)
    kind = format or format_of(path)
    if kind is None:
        raise SourceError(
            f"{path}: this kind of file is unknown", hint=f"pass format=, one of {', '.join(sorted(known_formats()))}"
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise SourceError(f"{name!r}: this file name is not UTF-8", hint="rename the file") from None
    try:
        status = path.stat()
    except OSError as error:
        raise SourceError(
            f"{path}: cannot be read: {error.strerror}", hint="check its permissions and the disk"
        ) from error
    return FoundFile(path, name, kind, status.st_size, status.st_mtime_ns, status.st_ino)


def _relative(path: Where, base: str) -> str:
    return Path(os.path.relpath(_absolute(path), base)).as_posix()


def _absolute(path: Where) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - resolve() would replace links by their targets


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def _refuse(error: OSError) -> None:
    raise SourceError(
        f"{error.filename}: cannot be listed: {error.strerror}", hint="check the permissions of the folder"
    )


def _is_dataset(source: object) -> bool:
    """Whether an object has the methods of a dataset."""
    return hasattr(source, "column_names") and hasattr(source, "features") and hasattr(source, "with_format")
