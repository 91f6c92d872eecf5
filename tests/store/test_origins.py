"""Origins: each document of a store names the row and the bytes it was made from; a damaged file is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from millstream.errors import StoreError
from millstream.store import Origin, OriginsWriter, TokenStore, TokenStoreWriter, origins_path
from millstream.store.origins import read_origin


def write_store(path: Path, origins: np.ndarray) -> None:
    with TokenStoreWriter(path, dtype="uint16") as writer:
        for _ in origins:
            writer.append([1, 2])
        sources = [{"path": name, "bytes": 1, "blake2b": ""} for name in ("a.txt", "b.txt")]
        writer.describe(sources=sources, recipe={"documents_per_source": [1, len(origins) - 1]})
    with TokenStore(path) as store:
        where = origins_path(path, store.fingerprint)
    writing = OriginsWriter(where)
    writing.extend(origins)
    writing.seal()


@pytest.mark.parametrize("name", ["corpus", "data.bin"])
def test_every_document_names_the_record_it_was_made_from(tmp_path: Path, name: str) -> None:
    origins = np.array([[0, 0, 5], [0, 3, 9], [7, -1, -1]])
    write_store(tmp_path / name, origins)

    with TokenStore(tmp_path / name) as store:
        found = [store.origin_of(document) for document in range(3)]
        with pytest.raises(IndexError):
            store.origin_of(3)

    assert found == [Origin("a.txt", 0, 0, 5), Origin("b.txt", 0, 3, 9), Origin("b.txt", 7, None, None)]


def test_a_store_without_origins_says_so(tmp_path: Path) -> None:
    with TokenStoreWriter(tmp_path / "corpus", dtype="uint16") as writer:
        writer.append([1])

    with TokenStore(tmp_path / "corpus") as store:
        assert store.origin_of(0) is None


def test_a_file_of_origins_that_was_cut_is_refused(tmp_path: Path) -> None:
    writing = OriginsWriter(tmp_path / "data.org")
    writing.extend(np.arange(30).reshape(10, 3))
    writing.seal()
    assert read_origin(tmp_path / "data.org", 9) == (27, 28, 29)

    whole = (tmp_path / "data.org").read_bytes()
    for size in (0, 10, 64, len(whole) - 1):
        (tmp_path / "data.org").write_bytes(whole[:size])
        with pytest.raises(StoreError):
            read_origin(tmp_path / "data.org", 0)
