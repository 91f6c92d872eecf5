"""Packed stores: the same tokens, documents and fingerprint as plain ones, in smaller files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream import MixedDataLoader, PretrainDataLoader
from millstream.errors import StoreError
from millstream.store import TokenStore, TokenStoreWriter
from millstream.store.compressed_blocks import BLOCK_TOKENS
from store.samples import corpus, documents, read_back, shrink, snapshot, write_store

TEXTS = corpus(30, seed=8)
LONG = [list(range(start, start + 3000)) for start in range(0, 30_000, 3000)]


@given(texts=documents, slices=st.lists(st.slices(1000), max_size=5), form=st.sampled_from(["s", "s.bin"]))
def test_a_packed_store_reads_like_a_plain_one_and_has_its_fingerprint(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[int]], slices: list[slice], form: str
) -> None:
    folder = tmp_path_factory.mktemp("p")
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        plain = TokenStore(write_store(folder / "plain" / form, texts, shard_tokens=100))
        packed = TokenStore(write_store(folder / "packed" / form, texts, shard_tokens=100, compress=True))

    assert packed.fingerprint == plain.fingerprint
    assert packed[:].tolist() == list(packed) == plain[:].tolist()
    assert [packed[i] for i in range(len(packed))] == plain[:].tolist()
    assert read_back(packed.path) == texts
    assert all(packed[each].tolist() == plain[each].tolist() for each in slices)
    assert packed.verify().ok and packed.verify().bytes == plain.verify().bytes


def test_only_the_token_files_differ_from_those_of_a_plain_store(tmp_path: Path) -> None:
    plain = snapshot(write_store(tmp_path / "plain", TEXTS))
    packed = snapshot(write_store(tmp_path / "packed", TEXTS, compress=9))

    assert {name for name in plain if plain[name] != packed[name]} == {"00000.bin"}
    assert plain.keys() == packed.keys()


def test_a_repetitive_store_is_much_smaller_and_the_writer_says_by_how_much(tmp_path: Path) -> None:
    with TokenStoreWriter(tmp_path / "s.bin", compress=True) as writer:
        writer.append(np.arange(1 << 16) % 50)

    packing = writer.packing
    assert packing is not None
    assert packing.raw_bytes == 2 << 16
    assert packing.packed_bytes * 20 < packing.raw_bytes
    assert packing.cpu_seconds > 0
    assert (tmp_path / "s.bin").stat().st_size == 64 + packing.packed_bytes + 8 * 16


@pytest.mark.parametrize("wrong", [20, -1, 1.5, "zstd"])
def test_a_level_that_is_none_is_refused_with_a_hint(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(StoreError, match=r"a level from 1 to 19, not .*\n  hint: "):
        TokenStoreWriter(tmp_path / "s", compress=wrong)


def test_versions_may_mix_plain_and_packed_shards(tmp_path: Path) -> None:
    path = write_store(tmp_path / "s", TEXTS[:10])
    write_store(path, TEXTS[10:20], append=True, compress=True)
    write_store(path, TEXTS[20:], append=True)

    assert read_back(path) == TEXTS
    assert TokenStore(path).verify().ok
    assert rows(path) == rows(write_store(tmp_path / "plain", TEXTS))


def test_a_writer_goes_on_at_the_level_it_was_begun_with(tmp_path: Path, small: None) -> None:
    writer = TokenStoreWriter(tmp_path / "s", compress=3)
    for each in TEXTS[:17]:
        writer.append(each)
    writer.checkpoint()
    writer.abandon()

    with pytest.raises(StoreError, match="was begun with compress=3, not 0"):
        TokenStoreWriter(tmp_path / "s", compress=False, resume=True)
    write_store(tmp_path / "s", TEXTS, resume=True)
    write_store(tmp_path / "whole", TEXTS, compress=3)
    assert snapshot(tmp_path / "s") == snapshot(tmp_path / "whole")


def rows(path: Path, **given: Any) -> list[list[int]]:
    with PretrainDataLoader(path, chunk_size=50, batch_size=4, framework="numpy", seed=3, **given) as loader:
        return [row for batch in loader for row in batch.input_ids.tolist()]


@pytest.mark.parametrize("given", [{}, {"shuffle": "local"}, {"shuffle": False}, {"documents": "row"}], ids=str)
def test_a_state_goes_on_after_the_store_was_packed_anew(tmp_path: Path, given: dict[str, Any]) -> None:
    plain = write_store(tmp_path / "plain", LONG, shard_tokens=7000)
    packed = write_store(tmp_path / "packed", LONG, shard_tokens=7000, compress=True)
    loaders = [
        PretrainDataLoader(path, name="data", chunk_size=50, batch_size=4, framework="numpy", **given)
        for path in (plain, packed)
    ]
    for _ in range(7 if given.get("documents") != "row" else 1):
        loaders[0].next()
    loaders[1].load_state_dict(loaders[0].state_dict())

    for _ in range(50):
        np.testing.assert_array_equal(loaders[0].next().input_ids, loaders[1].next().input_ids)
    for loader in loaders:
        loader.close()


def test_a_mixture_of_plain_and_packed_sources_is_that_of_plain_ones(tmp_path: Path) -> None:
    def mixed(*, compress: bool) -> list[list[int]]:
        folder = tmp_path / str(compress)
        a = write_store(folder / "a", LONG, compress=compress)
        b = write_store(folder / "b", TEXTS)
        given: dict[str, Any] = {"chunk_size": 20, "framework": "numpy"}
        entries = {"a": (PretrainDataLoader(a, **given), 0.75), "b": (PretrainDataLoader(b, **given), 0.25)}
        with MixedDataLoader(entries, batch_size=8, framework="numpy") as loader:
            return [row for _ in range(40) for row in loader.next().input_ids.tolist()]

    assert mixed(compress=True) == mixed(compress=False)


@given(data=st.data(), flip=st.integers(1, 255))
def test_any_changed_byte_of_a_packed_body_is_found_and_its_block_is_named(
    packed_path: Path, data: st.DataObject, flip: int
) -> None:
    """Of blocks that zstd leaves as they are: what it compresses has bits that say nothing."""
    file = packed_path / data.draw(st.sampled_from(["00000.bin", "00001.bin"]))
    whole = file.read_bytes()
    tokens = int(TokenStore(packed_path).layout.table[int(file.stem), 1])
    table = len(whole) - 8 * -(-tokens // 16)
    place = data.draw(st.integers(64, table - 1))
    try:
        file.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
        damages = TokenStore(packed_path).verify().damages
        assert [each.file for each in damages] == [str(file)]
        (damage,) = damages
        assert damage.start is not None and damage.stop is not None
        assert damage.start <= place < damage.stop <= table
        with pytest.raises(StoreError, match=rf"{file.name}: block {damage.block} .*\n  hint: .*verify"):
            TokenStore(packed_path)[:]
        with pytest.raises(StoreError, match=rf"{file.name}: block {damage.block} .* is damaged"):
            rows(packed_path, shuffle=False)
    finally:
        file.write_bytes(whole)


@pytest.fixture(scope="module")
def packed_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        return write_store(tmp_path_factory.mktemp("v") / "s", TEXTS, shard_tokens=200, compress=True)


def test_a_table_that_lies_is_named_by_verify_and_read_by_nobody(packed_path: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(packed_path, tmp_path / "s"))
    file = path / "00000.bin"
    whole = bytearray(file.read_bytes())
    entries = np.frombuffer(whole, "<u8", offset=len(whole) - 8 * 5)
    entries[1] = 1 << 63
    file.write_bytes(whole)

    report = TokenStore(path).verify()
    assert {each.what for each in report.damages} == {"it does not lie where the table says"}
    with pytest.raises(StoreError, match="does not lie where the table says"):
        TokenStore(path)[:]


def test_the_budget_counts_the_decoded_blocks_of_every_thread(tmp_path: Path) -> None:
    def held_bytes(path: Path) -> int:
        with PretrainDataLoader(path, chunk_size=50, batch_size=4, framework="numpy", threads=3, prefetch=1) as loader:
            loader.next()
            return int(loader.get_profiling_results()["memory"]["batches"])

    plain = held_bytes(write_store(tmp_path / "plain", LONG))
    packed = held_bytes(write_store(tmp_path / "packed", LONG, compress=True))
    assert packed > plain + 3 * 16 * 2 * BLOCK_TOKENS


def test_a_packed_file_that_shrinks_under_a_loader_is_an_error_and_ends_no_process(tmp_path: Path) -> None:
    path = write_store(tmp_path / "s.bin", [np.random.default_rng(1).integers(0, 50_000, 300_000)], compress=True)
    with PretrainDataLoader(path, chunk_size=50, batch_size=4, framework="numpy", prefetch=2, seed=1) as loader:
        loader.next()
        os.truncate(path, 0)
        with pytest.raises(StoreError, match=r"s\.bin: became shorter, or unreadable, while it was being read"):
            for _ in range(100):
                loader.next()
