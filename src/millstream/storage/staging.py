"""A store appears whole or not at all: it is built in a hidden folder beside its place, then moved there.

Moving takes several renames: the old files are moved out, a mark records that they are out, the new ones are moved in.
The next run undoes a move that was killed before the mark, and finishes one that was killed after it. The store's own
name (`corpus`, `data.bin`) is moved out first and in last, so no half of it opens as a store.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millstream.errors import StoreError
from millstream.storage.durable import disk
from millstream.storage.lock import Lock

COMPANIONS = (".idx", ".sum", ".json", ".org", ".tokenizer.json", ".report.json", ".report.html")
"""What lies beside a store that is one `.bin` file."""
AGAIN = "free some space, then do it again: a loader resumes by itself, `prepare` with resume=True"

log = logging.getLogger("millstream.storage")

_REPLACED = ".replaced"
_MARK = ".moved-out"


class FinishedStore(StoreError):  # noqa: N818 - reads as a claim
    """A finished store lies where one is to be made."""


@contextmanager
def staged(
    output: Path, *, overwrite: bool = False, resume: bool = False, bookmark: str | None = None
) -> Iterator[Path]:
    """Give a path to build a store at; when the block ends well, it becomes `output`, else it is removed.

    The next run cleans up what a killed run left. With `overwrite` an older store is replaced
    at the very end. `output` is a folder, or a `.bin` file with its companions. If a file named `bookmark` lies beside
    the path when a run fails, everything stays as it is, and the next run finds it there with `resume`.

    >>> import tempfile
    >>> output = Path(tempfile.mkdtemp()) / "corpus"
    >>> with staged(output) as path:
    ...     path.mkdir()
    ...     _ = (path / "manifest.json").write_text("{}")
    >>> sorted(entry.name for entry in output.iterdir())
    ['manifest.json']
    """
    folder = staging_folder(output)
    busy = f"{output}: another process is preparing this store"
    with disk.reported(output, full=AGAIN), Lock(folder, folder=True, busy=busy, hint="wait for it to end"):
        if _settle(folder, output):
            _sweep(folder)
        is_unfinished = bookmark is not None and (folder / bookmark).exists()
        if is_unfinished and not resume:
            log.warning("%s: what an unfinished run left behind is removed; resume=True would use it", output)
        if not (is_unfinished and resume):
            _sweep(folder)
        try:
            check_free(output, overwrite=overwrite)
            yield folder / output.name
            _publish(folder, output)
        except BaseException:
            _settle(folder, output)
            if bookmark is None or not (folder / bookmark).exists():
                disk.remove_tree(folder)
            raise
        _settle(folder, output)
        disk.remove_tree(folder)


def staging_folder(output: Path) -> Path:
    """Name the hidden folder in which a store is built.

    >>> staging_folder(Path("data/corpus")).as_posix()
    'data/.corpus.preparing'
    """
    return output.parent / f".{output.name}.preparing"


def check_free(output: Path, *, overwrite: bool) -> None:
    """Refuse to write over something, unless it is a store and may be replaced."""
    if not output.exists():
        for each in _companions(output):
            raise StoreError(f"{each}: is in the way of a new store", hint="choose another output")
        return
    if output.is_dir() and not any(output.iterdir()):
        return
    is_store = (output / "manifest.json").is_file() if output.is_dir() else output.suffix == ".bin"
    if not is_store:
        raise StoreError(f"{output}: this exists and is not a store", hint="choose another output")
    if not overwrite:
        raise FinishedStore(f"{output}: this store exists", hint="choose another output, or pass overwrite=True")


def _companions(output: Path) -> list[Path]:
    """The files beside a one-file store that are there."""
    beside = [output.with_suffix(suffix) for suffix in COMPANIONS] if output.suffix == ".bin" else []
    return [path for path in beside if path.exists()]


def _publish(folder: Path, output: Path) -> None:
    """Move the old files out and the new ones in."""
    old = [output, *_companions(output)] if output.exists() else []
    replaced = folder / _REPLACED
    disk.make_directory(replaced)
    for path in old:
        disk.rename(path, replaced / path.name)
    disk.sync_directory(replaced)
    disk.sync_directory(output.parent)
    disk.publish(folder / _MARK, b"")
    _move_all(folder, output)


def _settle(folder: Path, output: Path) -> bool:
    """Undo what stopped before the mark, finish what stopped after it; tell whether the store is now in its place."""
    replaced = folder / _REPLACED
    if (folder / _MARK).exists():
        _move_all(folder, output)
        return True
    if (replaced / output.name).exists() and not output.exists():
        _move_all(replaced, output)
    return False


def _move_all(source: Path, output: Path) -> None:
    """Move the files of a store to where it belongs, the one that makes it a store last."""
    entries = [entry for entry in source.iterdir() if not entry.name.startswith(".") or entry.name == output.name]
    for entry in entries:
        if entry.name != output.name:
            disk.rename(entry, output.with_name(entry.name))
    disk.sync_directory(output.parent)
    if (source / output.name).exists():
        disk.rename(source / output.name, output)
        disk.sync_directory(output.parent)


def _sweep(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            disk.remove_tree(entry)
        else:
            disk.remove(entry)
