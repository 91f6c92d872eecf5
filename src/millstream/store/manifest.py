"""Manifests: what a store contains and was made from; and the versions that they describe.

A directory store keeps a manifest and a table of each version, and versions share shards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.errors import StoreError
from millstream.storage import COPY_AGAIN, EDITED, compact, read_json
from millstream.store.frames import DTYPES
from millstream.store.layout import BOUND, DOCUMENTS, MOST, TOKENS, Rows, fingerprint, total

FORMAT = "millstream store"

Json = Mapping[str, Any]


def plain(value: object, name: str) -> Any:
    """Bring what the caller wants remembered into plain JSON, or say why it cannot be."""
    try:
        return json.loads(compact(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"`{name}` cannot be written as JSON: {error}", hint="use dicts, lists, strings, numbers"
        ) from None


def is_count(value: object) -> bool:
    """Tell whether this is a whole number that a store may hold.

    >>> is_count(3), is_count(True), is_count(-1), is_count(1 << 70)
    (True, False, False, False)
    """
    return type(value) is int and 0 <= value <= MOST


def is_fingerprint(value: object) -> bool:
    """Tell whether this is 32 hexadecimal digits: it becomes part of a path, so nothing else may pass.

    >>> is_fingerprint("0" * 32), is_fingerprint("../../etc/passwd")
    (True, False)
    """
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{32}", value) is not None


def is_sources(value: object) -> bool:
    """Tell whether this is a list of {path, bytes, blake2b}."""
    return isinstance(value, list) and all(
        isinstance(each, dict)
        and set(each) == {"path", "bytes", "blake2b"}
        and isinstance(each["path"], str)
        and is_count(each["bytes"])
        and isinstance(each["blake2b"], str)
        for each in value
    )


RULES = {
    "format": lambda value: value == FORMAT,
    "format_version": lambda value: type(value) is int and value == 1,
    "dtype": lambda value: isinstance(value, str) and value in DTYPES,
    "tokens": is_count,
    "documents": is_count,
    "shards": is_count,
    "id_bound": is_count,
    "fingerprint": is_fingerprint,
    "parent": lambda value: value is None or is_fingerprint(value),
    "sources": is_sources,
    "tokenizer": lambda value: value is None or isinstance(value, dict),
    "recipe": lambda value: True,
}


def load_manifest(path: Path) -> dict[str, Any]:
    """Read a manifest and check every key."""
    fields = read_json(path)
    version = fields.get("format_version")
    if fields["format"] == FORMAT and type(version) is int and version > 1:
        raise StoreError(f"{path}: format version {version} is newer than this Millstream", hint="upgrade it")
    check_keys(path, fields, RULES)
    check_vocabulary(path, fields)
    return fields


def check_keys(path: Path, fields: Json, rules: Mapping[str, Any]) -> None:
    """Refuse a missing, unknown or ill-typed key."""
    for key in sorted(set(rules) ^ set(fields)):
        raise StoreError(f"{path}: the key '{key}' is {'missing' if key in rules else 'unknown'}", hint=EDITED)
    for key, rule in rules.items():
        if not rule(fields[key]):
            raise StoreError(f"{path}: '{key}' cannot be {fields[key]!r:.80}", hint=EDITED)


def check_vocabulary(path: Path, fields: Json) -> None:
    """Refuse ids that the store's own tokenizer does not have."""
    size = vocabulary(fields["tokenizer"])
    if size is not None and fields["id_bound"] > size:
        raise StoreError(
            f"{path}: the largest id is {fields['id_bound'] - 1}, the tokenizer has {size} ids",
            hint="prepare the data again with the tokenizer that belongs to it",
        )


def vocabulary(tokenizer: Json | None) -> int | None:
    """Find the number of ids in a tokenizer's description, if it says."""
    size = None if tokenizer is None else tokenizer.get("vocab_size")
    return size if type(size) is int and size > 0 else None


def describe(
    dtype: str, rows: Rows, *, parent: str | None = None, sources: Iterable[Any] = (), **made: Any
) -> dict[str, Any]:
    """Describe a version by its rows and by what it was made from (`tokenizer`, `recipe`).

    >>> from millstream.store.layout import Row, rows_of
    >>> describe("uint16", rows_of([Row(5, 2, tag=9, bound=3, file=0)]))["tokens"]
    5
    """
    return {
        "format": FORMAT,
        "format_version": 1,
        "dtype": dtype,
        "tokens": total(rows, TOKENS),
        "documents": total(rows, DOCUMENTS),
        "shards": len(rows),
        "id_bound": int(rows[:, BOUND].max(initial=0)),
        "fingerprint": fingerprint(dtype, rows),
        "parent": parent,
        "sources": list(sources),
        "tokenizer": made.get("tokenizer"),
        "recipe": made.get("recipe"),
    }


def check_agreement(path: Path, fields: Json, rows: Rows) -> None:
    """Refuse a manifest that does not describe these rows."""
    found = describe(fields["dtype"], rows)
    for key in ("tokens", "documents", "shards", "id_bound", "fingerprint"):
        if fields[key] != found[key]:
            raise StoreError(
                f"{path}: '{key}' is {fields[key]}, the shards say {found[key]}",
                hint="files of two different stores were mixed; copy the store again",
            )


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

    >>> from millstream.store.layout import Row, rows_of
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
