"""Real text that every Python carries: the sources of its standard library, or else its documentation."""

from __future__ import annotations

import importlib
import inspect
import logging
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

MOST_BYTES = 24 << 20
_PASSED_OVER = {
    "encodings",
    "test",
    "tests",
    "idle_test",
    "site-packages",
    "dist-packages",
    "lib2to3",
    "__pycache__",
}
_DOCUMENTED = (
    "argparse ast asyncio base64 bisect calendar cmd codecs collections configparser contextlib copy csv "
    "ctypes dataclasses datetime decimal difflib dis email enum fractions functools glob gzip heapq html "
    "http inspect io itertools json logging math multiprocessing operator os pathlib pickle platform "
    "pprint queue random re sched shelve shlex shutil signal socket sqlite3 ssl statistics string struct "
    "subprocess tarfile tempfile textwrap threading time tokenize traceback types typing unittest "
    "urllib.request uuid warnings wave weakref xml.dom zipfile "
)

_log = logging.getLogger("millstream.cli")


def collect(folder: Path) -> tuple[list[Path], str]:
    """Find the text: (files, what they are). Documentation is first written into `folder`."""
    files = list(_up_to(_sources(), MOST_BYTES))
    if len(files) >= 20:
        return files, "sources of Python's standard library"
    written = write_documentation(folder)
    return written, "documentation of Python's standard library (its sources are not installed here)"


def _sources() -> Iterator[Path]:
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")) if root.is_dir() else ():
        if not _PASSED_OVER & set(path.relative_to(root).parts[:-1]) and path.stat().st_size:
            yield path


def _up_to(paths: Iterator[Path], most_bytes: int) -> Iterator[Path]:
    for path in paths:
        most_bytes -= path.stat().st_size
        if most_bytes < 0:
            return
        yield path


def write_documentation(folder: Path) -> list[Path]:
    """Write what can be reached by import: the language reference of `help()` and the modules' docstrings."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = dict(_topics())
    for name in _DOCUMENTED.split():
        text = "\n\n".join(_docstrings(name))
        if len(text) > 500:
            texts[f"module-{name}"] = text
    paths = []
    for name, text in sorted(texts.items()):
        path = folder / f"{name}.txt"
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def _topics() -> Iterator[tuple[str, str]]:
    try:
        topics = importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        return
    for name, text in topics.items():
        yield f"topic-{name.replace('/', '-')}", text


def _docstrings(name: str) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old names in the library warn when they are only looked at
        yield from _documented(name)


def _documented(name: str) -> Iterator[str]:
    try:
        module = importlib.import_module(name)
    except Exception as error:  # a part of the standard library that was left out here
        _log.info("no documentation of %s: %s", name, error)
        return
    yield inspect.getdoc(module) or ""
    for key, value in sorted(vars(module).items()):
        # Numbers and strings have no documentation of their own, only that of their type.
        text = inspect.getdoc(value) if callable(value) else None
        if text:
            yield f"{name}.{key}\n{text}"
