"""How a writer starts: a new store, a new version of one, or resumed at the last checkpoint of a killed writer."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

from millstream.errors import StoreError
from millstream.storage import Lock, disk
from millstream.store.column_writers import START_AGAIN, Packing
from millstream.store.layout import FILE, rows_of
from millstream.store.opening import Opened, open_store
from millstream.store.session import GrowingShard, Start
from millstream.store.writer_journal import WriterJournal, WriterPaths, WriterSettings, load_journal, sealed_rows

SHARD_TOKENS = 1 << 28
SINGLE_SHARD = 1 << 62


def start(paths: WriterPaths, settings: WriterSettings) -> Start:
    """Find out what lies at the path, and what is to be done about it. The caller holds the lock."""
    finished, journal = find(paths)
    if journal is not None:
        if not settings.resume:
            raise StoreError(
                f"{paths.path}: an unfinished writer left {journal_documents(journal)} documents here",
                hint="continue with resume=True, or throw them away with millstream.store.discard(path)",
            )
        check_settings(paths, journal, settings)
        return resumed(paths, journal, finished)
    if finished is not None:
        if settings.append:
            return begin_version(paths, finished, settings)
        if settings.resume:
            return Start(None, finished, finished.layout.table, [])
        raise StoreError(f"{paths.path}: a finished store is here", hint="append=True adds a version to it")
    return begin_store(paths, settings)


def find(paths: WriterPaths) -> tuple[Opened | None, WriterJournal | None]:
    """Read what is there: the finished store and the journal, unless its writer did finish."""
    exists = paths.path.exists() if paths.single else paths.manifest.exists()
    finished = open_store(paths.path, None, None) if exists else None
    journal = load_journal(paths.journal)
    if journal is None:
        return finished, None
    now = None if finished is None else finished.manifest["fingerprint"]
    if (paths.single and finished is not None) or now != journal.parent:
        if finished is None or finished.manifest["parent"] != journal.parent:
            raise StoreError(
                f"{paths.journal}: speaks of version {journal.parent}, the store is at {now}",
                hint="two stores were mixed here; throw the unfinished part away with millstream.store.discard(path)",
            )
        disk.remove(paths.journal)  # killed between the last rename and this
        return finished, None
    return finished, journal


def journal_documents(journal: WriterJournal) -> int:
    """Count the new documents that a journal knows of."""
    return journal.documents + (journal.open.documents if journal.open else 0)


def check_settings(paths: WriterPaths, journal: WriterJournal, settings: WriterSettings) -> None:
    """Refuse to resume with other settings: the result would be a mixture."""
    for name in ("dtype", "shard_tokens", "compress"):
        asked, was = getattr(settings, name), getattr(journal, name)
        if asked is not None and asked != was and not (paths.single and name == "shard_tokens"):
            raise StoreError(f"{paths.path}: was begun with {name}={was!r}, not {asked!r}", hint="pass the same")
    if settings.made_from != journal.made_from:
        raise StoreError(
            f"{paths.path}: was begun with other sources, tokenizer or recipe",
            hint="pass the same, or throw the unfinished part away with millstream.store.discard(path)",
        )


def resumed(paths: WriterPaths, journal: WriterJournal, parent: Opened | None) -> Start:
    """Cut the open shard back to the checkpoint and continue after it."""
    rows = sealed_rows(paths, journal)
    if journal.sealing is not None:
        remove_version(paths, journal.sealing)
        journal = replace(journal, sealing=None)
    following = journal.first_file + journal.sealed
    if journal.open is not None and journal.open.file != following:
        raise StoreError(f"{paths.journal}: the open shard is {journal.open.file}, not {following}", hint=START_AGAIN)
    base = rows_of([]) if parent is None else parent.layout.table
    packing = Packing(journal.compress) if journal.compress else None
    if journal.open is None:
        paths.clear(following)
        return Start(journal, parent, base, rows, packing=packing)
    try:
        tail = base64.b64decode(journal.tail, validate=True)
    except ValueError:
        raise StoreError(f"{paths.journal}: the tail is not base64", hint=START_AGAIN) from None
    shard = GrowingShard.resume(paths, journal.dtype, journal.open, packing, tail)
    return Start(journal, parent, base, rows, shard, packing)


def begin_store(paths: WriterPaths, settings: WriterSettings) -> Start:
    """Start a new store, where nothing else lies."""
    refuse_neighbours(paths)
    journal = WriterJournal(
        dtype=settings.dtype or "uint16",
        shard_tokens=SINGLE_SHARD if paths.single else settings.shard_tokens or SHARD_TOKENS,
        made_from=settings.made_from,
        parent=None,
        first_file=0,
        compress=settings.compress or 0,
    )
    return save(paths, Start(journal, None, rows_of([]), []))


def begin_version(paths: WriterPaths, parent: Opened, settings: WriterSettings) -> Start:
    """Start a new version that shares the shards of the newest one."""
    if paths.single:
        raise StoreError(f"{paths.path}: one file cannot grow", hint="write a directory store to append to")
    dtype, known = parent.layout.dtype, parent.manifest["tokenizer"]
    if settings.dtype not in (None, dtype):
        raise StoreError(f"{paths.path}: the ids are {dtype}, not {settings.dtype}", hint="leave out dtype=")
    if None not in (known, settings.tokenizer) and known != settings.tokenizer:
        raise StoreError(f"{paths.path}: was made with another tokenizer", hint="one store, one tokenizer")
    rows = parent.layout.table
    journal = WriterJournal(
        dtype=dtype,
        shard_tokens=settings.shard_tokens or SHARD_TOKENS,
        made_from=settings.made_from,
        parent=parent.manifest["fingerprint"],
        first_file=int(rows[-1, FILE]) + 1 if len(rows) else 0,
        compress=settings.compress or 0,
    )
    return save(paths, Start(journal, parent, rows, []))


def save(paths: WriterPaths, begun: Start) -> Start:
    """Write the first journal, before any shard."""
    assert begun.journal is not None
    begun.packing = Packing(begun.journal.compress) if begun.journal.compress else None
    begun.journal.save(paths.journal)
    return begun


def refuse_neighbours(paths: WriterPaths) -> None:
    """Refuse to write where other files lie: they would be overwritten or taken for ours."""
    if paths.single:
        taken = [p for p in (paths.path.with_suffix(s) for s in (".idx", ".sum", ".json")) if p.exists()]
    else:
        ours = {paths.lock.name, "versions", paths.journal.name + ".tmp"}
        taken = [each for each in paths.path.iterdir() if each.name not in ours]
    if taken:
        raise StoreError(f"{min(taken)}: is in the way of a new store", hint="choose another path")


def remove_version(paths: WriterPaths, fingerprint: str) -> None:
    """Remove the manifest and table of a version that never came to be."""
    for suffix in (".json", ".tab"):
        disk.remove(paths.path / "versions" / f"{fingerprint}{suffix}")


def discard(path: str | Path) -> None:
    """Throw away what an unfinished writer left; finished versions stay.

    >>> import tempfile
    >>> discard(tempfile.mkdtemp())  # nothing there, nothing done
    """
    paths = paths_of(Path(path))
    if not paths.journal.exists():
        return
    with disk.reported(paths.path):
        lock = Lock(paths.lock)
        try:
            _, journal = find(paths)
            if journal is not None:
                if journal.sealing is not None:
                    remove_version(paths, journal.sealing)
                for number in range(journal.first_file, journal.first_file + journal.sealed + 1):
                    paths.clear(number)
                if paths.single:
                    disk.remove(paths.manifest)
                disk.remove(paths.journal)
        finally:
            lock.release()


def paths_of(path: Path) -> WriterPaths:
    """Tell a directory store from the one-file form.

    >>> paths_of(Path("dataset.bin")).single, paths_of(Path("corpus")).single
    (True, False)
    """
    return WriterPaths(path, single=path.suffix == ".bin" and not path.is_dir())
