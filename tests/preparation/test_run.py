"""A run over files that are partly known: what was made before is found, and nothing else is taken for it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from millstream.api import prepare
from millstream.store import TokenStore
from millstream.tokens import CharTokenizer
from sources.samples import Dataset


def test_an_object_without_a_fingerprint_is_never_taken_for_another(tmp_path: Path) -> None:
    tokenizer = CharTokenizer(sorted("the mil"))
    prepare([Dataset([]), Dataset(["the mill"])], tmp_path / "store", tokenizer)

    store = TokenStore(tmp_path / "store")
    assert [tokenizer.decode(store.document(index)[:-1].tolist()) for index in range(store.documents)] == ["the mill"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_damaged_part_of_a_file_that_was_all_known_is_made_again(
    tmp_path: Path, packed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Where chunks are byte ranges, and where they hold what was decompressed for them."""
    lines = "".join(json.dumps({"text": "the mill " * number}) + "\n" for number in range(20)).encode()
    path = tmp_path / ("a.jsonl.gz" if packed else "a.jsonl")
    path.write_bytes(gzip.compress(lines) if packed else lines)

    def fingerprint(name: str) -> str:
        how: dict[str, Any] = {"chunk_bytes": 300, "cache_dir": tmp_path / "cache"}
        prepare(path, tmp_path / name, CharTokenizer(sorted("the mil")), **how)
        return TokenStore(tmp_path / name).fingerprint

    whole = fingerprint("whole")
    parts = sorted((tmp_path / "cache").rglob("*.part"))
    assert len(parts) > 3
    for damaged in parts[::2]:
        damaged.write_bytes(damaged.read_bytes()[:-1])

    assert fingerprint("again") == whole
    assert "it is made again" in caplog.text
    assert sorted((tmp_path / "cache").rglob("*.part")) == parts
