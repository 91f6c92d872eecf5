from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import StoreError
from millstream.storage import sealed
from millstream.store import Row, describe, rows_of
from millstream.store.manifest import load_manifest, plain

GOOD = describe("uint16", rows_of([Row(5, 2, tag=9, bound=3, file=0)]), tokenizer={"vocab_size": 3})


def load(path: Path, data: bytes) -> dict[str, Any]:
    (path / "manifest.json").write_bytes(data)
    return load_manifest(path / "manifest.json")


def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path) -> None:
    assert load(tmp_path, sealed(GOOD)) == GOOD


def test_a_manifest_that_was_only_laid_out_differently_is_read(tmp_path: Path) -> None:
    assert load(tmp_path, json.dumps(json.loads(sealed(GOOD))).encode()) == GOOD


def test_a_manifest_changed_by_hand_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="check does not agree") as caught:
        load(tmp_path, sealed(GOOD).replace(b'"tokens": 5', b'"tokens": 6'))
    assert "changed by hand" in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b"null",
        b"[" * 100_000,
        b'{"format": NaN}',
        b'{"format": 1, "format": 2}',
        b'{"format": ' + b"9" * 5000 + b"}",
        sealed(GOOD)[:-10],
    ],
)
def test_what_is_not_a_manifest_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(StoreError, match=r"manifest\.json"):
        load(tmp_path, data)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokens", -1),
        ("tokens", True),
        ("tokens", 1 << 63),
        ("tokens", 5.0),
        ("documents", "2"),
        ("shards", None),
        ("dtype", "float32"),
        ("dtype", ["uint16"]),
        ("fingerprint", "../../../../etc/passwd"),
        ("parent", "x"),
        ("sources", [{"path": 1, "bytes": 1, "blake2b": ""}]),
        ("sources", {}),
        ("tokenizer", "gpt2"),
        ("format", "something else"),
        ("surprise", 1),
    ],
)
def test_a_value_that_cannot_be_is_refused_even_with_a_valid_check(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(StoreError, match=key):
        load(tmp_path, sealed({**GOOD, key: value}))


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="'recipe' is missing"):
        load(tmp_path, sealed({key: value for key, value in GOOD.items() if key != "recipe"}))


def test_a_version_from_the_future_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="format version 2 is newer"):
        load(tmp_path, sealed({**GOOD, "format_version": 2, "new": 1}))


def test_ids_beyond_the_vocabulary_are_refused_at_open(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="largest id is 2, the tokenizer has 2 ids"):
        load(tmp_path, sealed({**GOOD, "tokenizer": {"vocab_size": 2}}))


def test_what_json_cannot_hold_is_refused_when_it_is_given() -> None:
    for value in (float("nan"), {1, 2}, b"bytes"):
        with pytest.raises(StoreError, match="`recipe` cannot be written as JSON"):
            plain(value, "recipe")
