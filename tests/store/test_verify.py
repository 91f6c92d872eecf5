from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.storage import sealed
from millstream.store import Frame, Row, TokenStore, describe, rows_of, xxh64
from store.samples import corpus, shrink, write_store

TEXTS = corpus(30, seed=8)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        return write_store(tmp_path_factory.mktemp("v") / "s", TEXTS, shard_tokens=200)


@given(data=st.data(), flip=st.integers(1, 255))
def test_any_changed_byte_of_a_body_is_found_and_its_block_is_named(path: Path, data: st.DataObject, flip: int) -> None:
    file = path / data.draw(st.sampled_from(["00000.bin", "00001.bin", "00000.idx", "00001.idx"]))
    whole = file.read_bytes()
    place = data.draw(st.integers(64, len(whole) - 1))
    try:
        file.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
        report = TokenStore(path).verify()
    finally:
        file.write_bytes(whole)

    block = (place - 64) // 64
    named = [(each.file, each.block) for each in report.damages if each.block is not None]
    assert named == [(str(file), block)]
    damage = next(each for each in report.damages if each.block is not None)
    assert damage.start is not None and damage.stop is not None
    assert damage.start <= place < damage.stop <= len(whole)
    assert str(file) in str(report)


def test_a_whole_store_is_ok_and_progress_is_told(path: Path) -> None:
    told: list[tuple[int, int]] = []
    report = TokenStore(path).verify(lambda done, whole: told.append((done, whole)))

    size = 2 * sum(map(len, TEXTS))
    assert report.ok
    assert report.bytes == size + 8 * len(TEXTS)
    assert told[-1] == (size, size)
    assert str(report).startswith("ok: ")


def test_a_shard_that_vanishes_after_opening_is_a_named_damage(tmp_path: Path, small: None) -> None:
    store = TokenStore(write_store(tmp_path / "s", TEXTS, shard_tokens=200))
    for name in ("00000.bin", "00001.idx", "00002.sum"):
        (tmp_path / "s" / name).unlink()

    text = str(store.verify())
    for name in ("00000.bin", "00001.idx", "00002.sum"):
        assert f"{name}: this file is missing" in text or f"{name}: {tmp_path}" in text


def lying_file(path: Path, ids: list[int], ends: list[int], bound: int) -> Path:
    """Write a one-file store whose checksums are right and whose content is not."""
    body, index = np.array(ids, "<u2"), np.array(ends, "<u8")
    sums = np.array([xxh64(body), xxh64(index)], "<u8")
    row = Row(len(ids), len(ends), xxh64(sums), bound, 0)
    path.write_bytes(Frame("T", row.tokens, bound, row.tag, row.documents, "uint16").encode() + body.tobytes())
    path.with_suffix(".idx").write_bytes(Frame("D", row.documents, row.tokens, row.tag).encode() + index.tobytes())
    path.with_suffix(".sum").write_bytes(Frame("C", 2, 1 << 20, row.tag).encode() + sums.tobytes())
    path.with_suffix(".json").write_bytes(sealed(describe("uint16", rows_of([row]))))
    return path


def test_ids_beyond_the_bound_are_found_behind_valid_checksums(tmp_path: Path) -> None:
    report = TokenStore(lying_file(tmp_path / "x.bin", [1, 9, 3], [3], bound=5)).verify()

    assert "id 9 at byte 66 is not in 0..4" in str(report)


def test_document_ends_that_fall_are_found_behind_valid_checksums(tmp_path: Path) -> None:
    store = TokenStore(lying_file(tmp_path / "x.bin", [1, 2, 3], [2, 1, 3], bound=4))

    assert "document 1 ends before it starts" in str(store.verify())
    with pytest.raises(Exception, match="document ends fall"):
        store.document(1)


def test_checksums_of_another_shard_are_not_believed(tmp_path: Path) -> None:
    path = write_store(tmp_path / "s", TEXTS, shard_tokens=200)
    (path / "00000.sum").write_bytes((path / "00001.sum").read_bytes())

    assert "damaged or of another shard" in str(TokenStore(path).verify())
