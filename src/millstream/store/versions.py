"""Versions of a directory store: each keeps a manifest and a table for ever, and they share shards."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.errors import StoreError
from millstream.storage import COPY_AGAIN
from millstream.store.manifest import is_fingerprint, load_manifest
from millstream.store.table import DOCUMENTS, TOKENS, Rows, total


@dataclass(frozen=True)
class Version:
    """One line of a store's history."""

    fingerprint: str
    parent: str | None
    tokens: int
    documents: int
    shards: int
    manifest: dict[str, Any]


@dataclass(frozen=True)
class Diff:
    """What one version has and another has not; shards are file numbers."""

    only_here: tuple[int, ...]
    only_there: tuple[int, ...]
    shared: int
    tokens: int
    documents: int


def manifest_path(directory: Path, version: str | None) -> Path:
    """Find the manifest of a version; a version may be named by the first digits of its fingerprint."""
    if version is None:
        return directory / "manifest.json"
    if is_fingerprint(version):
        found = [directory / "versions" / f"{version}.json"]
    elif re.fullmatch("[0-9a-f]{4,31}", version):
        found = sorted((directory / "versions").glob(f"{version}*.json"))
    else:
        raise StoreError(f"{directory}: {version!r} is not a version", hint="give 4 to 32 digits of a fingerprint")
    if len(found) != 1 or not found[0].exists():
        raise StoreError(f"{directory}: {len(found) if found[1:] else 'no'} versions begin with {version}", hint=LIST)
    return found[0]


LIST = "`millstream inspect` and TokenStore(path).log() list the versions"


def table_path(directory: Path, fingerprint: str) -> Path:
    """Name the shard table of a version."""
    return directory / "versions" / f"{fingerprint}.tab"


def history(directory: Path, manifest: dict[str, Any]) -> list[Version]:
    """List a version and its ancestors, newest first; it ends where an ancestor's manifest is not kept."""
    seen: dict[str, Version] = {}
    while manifest["fingerprint"] not in seen:
        keys = ("fingerprint", "parent", "tokens", "documents", "shards")
        seen[manifest["fingerprint"]] = Version(**{key: manifest[key] for key in keys}, manifest=manifest)
        parent = manifest["parent"]
        path = directory / "versions" / f"{parent}.json"
        if parent is None or not path.exists():
            return list(seen.values())
        manifest = load_manifest(path)
        if manifest["fingerprint"] != parent:
            raise StoreError(f"{path}: this manifest describes version {manifest['fingerprint']}", hint=COPY_AGAIN)
    raise StoreError(f"{directory}: version {manifest['fingerprint']} is its own ancestor", hint=COPY_AGAIN)


def compare(here: Rows, there: Rows) -> Diff:
    """Compare two tables shard by shard.

    >>> from millstream.store.table import Row, rows_of
    >>> old, new = Row(5, 1, tag=1, bound=2, file=0), Row(7, 2, tag=2, bound=2, file=1)
    >>> compare(rows_of([old, new]), rows_of([old]))
    Diff(only_here=(1,), only_there=(), shared=1, tokens=7, documents=2)
    """
    ours, theirs = ({tuple(map(int, row[[1, 3, 4, 5, 6]])) for row in rows} for rows in (here, there))
    return Diff(
        only_here=tuple(sorted(row[4] for row in ours - theirs)),
        only_there=tuple(sorted(row[4] for row in theirs - ours)),
        shared=len(ours & theirs),
        tokens=total(here, TOKENS) - total(there, TOKENS),
        documents=total(here, DOCUMENTS) - total(there, DOCUMENTS),
    )
