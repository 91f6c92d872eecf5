"""Canonical JSON to hash and compare, and readable JSON files that carry a check of themselves."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.errors import StoreError
from millstream.storage.durable import disk

MOST_BYTES = 1 << 28  # a manifest lists source files, not documents
EDITED = "it was changed by hand or damaged; restore it, or open another version"

Json = Mapping[str, Any]


def compact(value: object) -> bytes:
    """Write JSON in its one canonical form.

    >>> compact({"b": [1, None], "a": "é"})
    b'{"a":"\\\\u00e9","b":[1,null]}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def digest(value: object) -> str:
    """Hash a JSON value: blake2b of its canonical form.

    >>> digest({})
    '2afb9b83f9314e5d029766197f539792'
    """
    return hashlib.blake2b(compact(value), digest_size=16).hexdigest()


def sealed(fields: Json) -> bytes:
    """Add the check and give the file's bytes.

    >>> print(sealed({"b": 1}).decode(), end="")
    {
     "b": 1,
     "check": "b6d552aa38d84a1b65b8a7032af971f0"
    }
    """
    whole = {**fields, "check": digest(fields)}
    return (json.dumps(whole, sort_keys=True, indent=1, allow_nan=False) + "\n").encode("ascii")


def read_json(path: Path) -> dict[str, Any]:
    """Read one checked JSON object: bounded, without double keys, with a check that agrees."""
    fd = disk.open_regular(path)
    with os.fdopen(fd, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise StoreError(f"{path}: more than {MOST_BYTES >> 20} MiB of JSON", hint=EDITED)
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: this is not the JSON of a manifest: {error}", hint=EDITED) from None
    if not isinstance(value, dict) or "format" not in value:
        raise StoreError(
            f"{path}: this is not a Millstream file (it has no 'format')",
            hint="is this the right path? A store is made with `millstream prepare`",
        )
    fields = {key: each for key, each in value.items() if key != "check"}
    if value.get("check") != digest(fields):
        raise StoreError(f"{path}: the check does not agree with the content", hint=EDITED)
    return fields


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a dict from JSON pairs; a key that comes twice is refused."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key comes twice")
    return value


def no_constant(name: str) -> Any:
    """Refuse NaN and Infinity, which are not JSON."""
    raise ValueError(f"{name} is not JSON")
