"""A store appears whole or not at all: it is built in a hidden folder beside its place, then renamed."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millstream.errors import StoreError

_REPLACED = ".replaced"


@contextmanager
def staged(output: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Give a path to build a store at; when the block ends well, it becomes `output`, else it is removed.

    What a killed run left behind is swept away by the next one. With `overwrite` an older store is replaced
    at the very end. `output` is a folder, or a `.bin` file with its companions.

    >>> import tempfile
    >>> output = Path(tempfile.mkdtemp()) / "corpus"
    >>> with staged(output) as path:
    ...     path.mkdir()
    ...     _ = (path / "manifest.json").write_text("{}")
    >>> sorted(entry.name for entry in output.iterdir())
    ['manifest.json']
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    folder = output.parent / f".{output.name}.preparing"
    with _locked(folder, output):
        _restore(folder, output)
        _sweep(folder)
        try:
            check_free(output, overwrite=overwrite)
            yield folder / output.name
            _publish(folder, output)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def check_free(output: Path, *, overwrite: bool) -> None:
    """Refuse to write over something, unless it is a store and may be replaced."""
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    is_store = (output / "manifest.json").is_file() if output.is_dir() else output.suffix == ".bin"
    if not is_store:
        raise StoreError(f"{output}: this exists and is not a store", hint="choose another output")
    if not overwrite:
        raise StoreError(f"{output}: this store exists", hint="choose another output, or overwrite=True")


@contextmanager
def _locked(folder: Path, output: Path) -> Iterator[None]:
    """Hold the folder for this process alone; a dead process holds nothing."""
    folder.mkdir(exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = folder.exists() and folder.stat().st_ino == os.fstat(handle).st_ino
        except BlockingIOError:
            same = False
        if not same:  # taken, or removed by the process that has just finished with it
            raise StoreError(f"{output}: another process is preparing this store")
        yield
    finally:
        os.close(handle)


def _restore(folder: Path, output: Path) -> None:
    """Put back an old store if a run was killed between the two renames that replace it."""
    replaced = folder / _REPLACED
    if replaced.exists() and not output.exists():
        replaced.rename(output)


def _sweep(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _publish(folder: Path, output: Path) -> None:
    built = folder / output.name
    if built.is_dir():
        if output.exists():
            output.rename(folder / _REPLACED)
        built.rename(output)
    else:
        # The token file comes last: without it its companions open as nothing.
        output.unlink(missing_ok=True)
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.suffix == ".bin"):
            entry.replace(output.parent / entry.name)
    parent = os.open(output.parent, os.O_RDONLY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
