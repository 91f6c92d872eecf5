"""A file that becomes shorter under an open store is an error with a name, however the store is used."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from millstream.errors import StoreError
from millstream.store import TokenStore
from store.samples import write_store

TEXTS = [list(range(start, start + 4000)) for start in range(0, 40_000, 4000)]
USES: dict[str, Callable[[TokenStore], object]] = {
    "a token": lambda store: store[39_999],
    "a slice": lambda store: store[10:39_000].sum(),
    "a slice backwards": lambda store: store[::-3].sum(),
    "a slice over shards": lambda store: store[:].sum(),
    "a copy": lambda store: store.read(39_000, 39_999),
    "a document": lambda store: store.document(-1).sum(),
    "everything": sum,
}


def bare(path: Path) -> TokenStore:
    np.concatenate(TEXTS).astype(np.uint16).tofile(path)
    return TokenStore(path, dtype="uint16")


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("form", ["s", "s.bin", "shards", "bare.bin", "packed", "packed.bin"])
def test_tokens_that_are_gone_are_an_error_and_not_the_end_of_the_process(
    tmp_path: Path, form: str, use: Callable[[TokenStore], object]
) -> None:
    path = tmp_path / form
    store = (
        bare(path)
        if form == "bare.bin"
        else TokenStore(write_store(path, TEXTS, shard_tokens=shards_of(form), compress="packed" in form))
    )
    use(store)  # everything is open, and mapped
    assert store[0] == 0  # of packed tokens, the block that was decoded last is remembered
    for file in [path] if path.is_file() else path.glob("*.bin"):
        os.truncate(file, 1000)

    with pytest.raises(StoreError, match=r"bin: became shorter after it was opened\n  hint: "):
        use(store)


def shards_of(form: str) -> int | None:
    return 8000 if form == "shards" else None


@pytest.mark.parametrize("form", ["s", "s.bin"])
def test_an_index_that_is_gone_is_an_error_and_not_the_end_of_the_process(tmp_path: Path, form: str) -> None:
    path = tmp_path / form
    store = TokenStore(write_store(path, [[1]] * 5000))
    assert store.document_at(4999) == 4999
    os.truncate(path.with_suffix(".idx") if path.is_file() else path / "00000.idx", 4096)

    for use in (lambda: store.document_at(4999), lambda: store.document_span(4999), lambda: store.spans_of(0, 5000)):
        with pytest.raises(StoreError, match=r"idx: became shorter after it was opened"):
            use()


def test_a_slice_inside_one_shard_is_a_view_and_a_read_is_a_copy(tmp_path: Path) -> None:
    store = TokenStore(write_store(tmp_path / "s", TEXTS))

    assert np.shares_memory(store[5:900], store[100:200])
    assert np.shares_memory(store.document(3), store[:])
    assert store.read(5, 900).tolist() == store[5:900].tolist()
    assert store.read(5, 900).flags.owndata
