"""A corpus of real text that every machine has: half prose, half code, as JSONL.zst files.

Prose: the documentation of the system and of the installed Python packages, man pages, long docstrings. Code: the
sources of those packages and the system's headers. Each text occurs once.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import html
import json
import re
import sys
import sysconfig
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import zstandard

PROSE = {".md", ".rst", ".txt", ".pod", ".adoc"}
PAGES = {".html", ".htm"}
CODE = {".py", ".h", ".hpp", ".c", ".cpp", ".cc", ".pm", ".pl", ".js", ".sh"}
SHORTEST, LONGEST = 200, 200_000
FILES = 4
LEVEL = 3


def roots(more: list[Path]) -> list[Path]:
    """Where texts are looked for."""
    paths = sysconfig.get_paths()
    found = ["/usr/share", "/usr/include", "/usr/lib/python3", paths["stdlib"], paths["purelib"], sys.base_prefix]
    return [path for path in (*map(Path, found), *more) if path.is_dir()]


def write_corpus(folder: Path, megabytes: float, more: list[Path]) -> dict[str, int]:
    """Write the files, and say how much text they hold."""
    folder.mkdir(parents=True)
    counts = {"documents": 0, "prose": 0, "code": 0}
    writers = [_Writer(folder / f"{number:02}.jsonl.zst") for number in range(FILES)]
    for kind, text in _balanced(roots(more), megabytes * 1e6 / 2):
        writers[counts["documents"] % FILES].add(text)
        counts["documents"] += 1
        counts[kind] += len(text.encode())
    for writer in writers:
        writer.close()
    return counts


def write_larger(folder: Path, of: Path, copies: int) -> None:
    """The same files so many times, each text with the number of its copy before it: no chunk equals another."""
    folder.mkdir(parents=True)
    for path in sorted(of.glob("*.jsonl.zst")):
        for copy in range(copies):
            writer = _Writer(folder / f"{copy:02}-{path.name}", level=1)
            for text in texts_of(path):
                writer.add(f"{copy}: {text}")
            writer.close()


def write_sample(folder: Path, of: Path, megabytes: float) -> None:
    """The first texts of a corpus, in one file."""
    folder.mkdir(parents=True)
    writer, size = _Writer(folder / "00.jsonl.zst"), 0
    for text in chain.from_iterable(map(texts_of, sorted(of.glob("*.jsonl.zst")))):
        writer.add(text)
        size += len(text.encode())
        if size >= megabytes * 1e6:
            break
    writer.close()


def texts_of(path: Path) -> Iterator[str]:
    """The texts of one file."""
    with zstandard.open(path, "rt", encoding="utf-8") as lines:
        yield from (json.loads(line)["text"] for line in lines)


class _Writer:
    def __init__(self, path: Path, level: int = LEVEL) -> None:
        self._file = zstandard.open(path, "wb", cctx=zstandard.ZstdCompressor(level=level))
        self._rows = 0

    def add(self, text: str) -> None:
        row = {"id": self._rows, "text": text, "meta": {"characters": len(text)}}
        self._file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        self._rows += 1

    def close(self) -> None:
        self._file.close()


def _balanced(places: list[Path], most: float) -> Iterator[tuple[str, str]]:
    """Prose and code in turn, whichever is behind; each text once."""
    seen: set[bytes] = set()
    roads = {"prose": _prose(places), "code": _code(places)}
    sizes = dict.fromkeys(roads, 0)
    while roads:
        kind = min(roads, key=sizes.__getitem__)
        text = next(roads[kind], None)
        if text is None or sizes[kind] >= most:
            del roads[kind]
            continue
        try:
            raw = text.encode()
        except UnicodeEncodeError:
            continue
        digest = hashlib.blake2b(raw, digest_size=16).digest()
        if SHORTEST <= len(text) <= LONGEST and digest not in seen:
            seen.add(digest)
            sizes[kind] += len(raw)
            yield kind, text


def _prose(places: list[Path]) -> Iterator[str]:
    for path in _files(places):
        if re.search(r"/man/man\d/", str(path)) or path.suffix in PROSE or path.name == "METADATA":
            yield from _read(path)
        elif path.suffix in PAGES:
            yield from (_stripped(page) for page in _read(path))
    for path in _files(places):
        if path.suffix == ".py":
            yield from chain.from_iterable(map(_docstrings, _read(path)))


def _code(places: list[Path]) -> Iterator[str]:
    return chain.from_iterable(_read(path) for path in _files(places) if path.suffix in CODE)


def _files(places: list[Path]) -> Iterator[Path]:
    for place in places:
        yield from (path for path in sorted(place.rglob("*")) if path.is_file() and not path.is_symlink())


def _read(path: Path) -> Iterator[str]:
    try:
        raw = path.read_bytes()
        yield (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    except (OSError, EOFError, UnicodeDecodeError):
        return


def _stripped(page: str) -> str:
    text = re.sub(r"(?s)<(script|style).*?</\1>|<[^>]*>", "", page)
    return re.sub(r"\n\s*\n+", "\n\n", html.unescape(text)).strip()


def _docstrings(source: str) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield text
