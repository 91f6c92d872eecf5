from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import StoreError
from millstream.store import TokenStore
from store.samples import complaint, read_back, write_store

MEGATRON = Path(__file__).with_name("golden") / "megatron"
DOCUMENTS = [[1, 2, 3, 4, 5], [6, 7, 8], [], [50256]]


def bare(path: Path, ids: list[int], dtype: str = "uint16") -> Path:
    path.write_bytes(np.array(ids, dtype).tobytes())
    return path


def megatron(
    path: Path,
    lengths: list[int],
    pointers: list[int],
    boundaries: list[int],
    *,
    code: int = 8,
    version: int = 1,
) -> Path:
    """Write an index by hand, beside a token file of 10 ids."""
    bare(path.with_suffix(".bin"), list(range(10)))
    counts = np.array([len(lengths), len(boundaries)], "<u8").tobytes()
    header = b"MMIDIDX\0\0" + version.to_bytes(8, "little") + bytes([code]) + counts
    arrays = np.array(lengths, "<i4").tobytes() + np.array(pointers + boundaries, "<i8").tobytes()
    path.with_suffix(".idx").write_bytes(header + arrays)
    return path.with_suffix(".bin")


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "int32"])
def test_a_bare_file_is_read_in_place(tmp_path: Path, dtype: str) -> None:
    store = TokenStore(bare(tmp_path / "train.bin", [5, 6, 7, 50256], dtype), dtype=dtype)

    assert (len(store), store.documents, store.id_bound) == (4, 1, None)
    assert store[:].tolist() == store.document(0).tolist() == [5, 6, 7, 50256]
    assert (store.layout.header_bytes, store.layout.index, store.layout.index_file) == (0, "none", "")
    assert store.verify().ok
    assert store.log()[0].parent is None


def test_a_bare_file_needs_a_dtype_and_the_hint_says_so(tmp_path: Path) -> None:
    error = complaint(bare(tmp_path / "train.bin", [1, 2]))

    assert error.hint is not None
    assert 'dtype="uint16"' in error.hint


def test_a_bare_file_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.bin"
    path.write_bytes(b"abc")
    assert "no whole number of uint16" in str(complaint(path, dtype="uint16"))
    path.write_bytes(b"")
    assert "empty" in str(complaint(path, dtype="uint16"))
    np.save(tmp_path / "train.npy", np.arange(4))
    assert ".npy" in str(complaint(tmp_path / "train.npy", dtype="uint16"))
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, 3
    path.write_bytes(header.tobytes() + bytes(6))
    assert "llm.c" in str(complaint(path, dtype="uint16"))


def test_negative_ids_of_a_bare_file_are_found_by_verify(tmp_path: Path) -> None:
    report = TokenStore(bare(tmp_path / "x.bin", [1, -2, 3], "int32"), dtype="int32").verify()

    assert "id -2 at byte 4" in str(report)
    assert not report.ok


def test_the_fingerprint_of_a_bare_file_is_its_size_and_64_blocks(tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 256, 5_000_000, np.uint8).tobytes()
    (tmp_path / "x.bin").write_bytes(data)
    digest = hashlib.blake2b(b"bare 1 uint16 5000000\n", digest_size=16)
    for block in range(64):
        start = block * (len(data) - 65536) // 63
        digest.update(data[start : start + 65536])

    assert TokenStore(tmp_path / "x.bin", dtype="uint16").fingerprint == digest.hexdigest()
    assert TokenStore(tmp_path / "x.bin", dtype="uint32").fingerprint != digest.hexdigest()


def test_a_bare_file_that_changes_its_size_is_noticed(tmp_path: Path) -> None:
    store = TokenStore(bare(tmp_path / "x.bin", [1, 2, 3]), dtype="uint16")
    bare(tmp_path / "x.bin", [1])

    with pytest.raises(StoreError, match="changed its size"):
        store[2]


@pytest.mark.parametrize("name", ["uint16", "uint16.bin", "uint16.idx", "int32"])
def test_a_pair_written_by_megatron_is_read_in_place(name: str) -> None:
    store = TokenStore(MEGATRON / name)

    assert store.dtype == name.split(".")[0]
    assert read_back(MEGATRON / name) == DOCUMENTS
    assert [store.document_at(i) for i in range(len(store))] == [0] * 5 + [1] * 3 + [3]
    assert store.spans_of(3, 9)[0].tolist() == [0, 1, 3]
    assert store.verify().ok
    assert (store.layout.index, store.layout.sequences, store.layout.boundaries) == ("megatron", 5, 5)
    assert (store.layout.pointers_offset, store.layout.boundaries_offset) == (34 + 20, 34 + 20 + 40)


def test_copies_have_equal_fingerprints_and_other_indexes_have_not(tmp_path: Path) -> None:
    shutil.copytree(MEGATRON, tmp_path / "copy")
    names = {
        TokenStore(path / name).fingerprint for path in (MEGATRON, tmp_path / "copy") for name in ("uint16", "int32")
    }
    assert len(names) == 2


@pytest.mark.parametrize(
    ("lengths", "pointers", "boundaries", "words"),
    [
        ([4, 6], [0, 8], [0, 1], "do not run from"),
        ([4, 6], [0, 8], [1, 2], "do not run from"),
        ([4, 6], [0, 8], [], "do not run from"),
        ([4, 5], [0, 8], [0, 2], "ends at byte 18"),
        ([4, 6], [2, 8], [0, 2], "starts at byte 2"),
        ([6, 4], [8, 0], [0, 2], "starts at byte 8"),
        ([4, 2**31 - 1], [0, 8], [0, 2], "the file at 20"),
        ([2, -3, 11], [0, 4, -2], [0, 1, 3], "does not belong together"),
        ([2, 11, -3], [0, 4, 26], [0, 1, 3], "does not belong together"),
    ],
)
def test_an_index_whose_ends_lie_is_refused_at_open(
    tmp_path: Path, lengths: list[int], pointers: list[int], boundaries: list[int], words: str
) -> None:
    assert words in str(complaint(megatron(tmp_path / "x", lengths, pointers, boundaries)))


@pytest.mark.parametrize(
    ("lengths", "pointers", "boundaries", "words"),
    [
        ([2, 3, 5], [0, 6, 10], [0, 1, 3], "sequence 1 does not start"),
        ([2, 3, 5], [0, 4, 10], [0, 2, 1, 3], "document 1 ends before"),
        ([2, 3, 5], [0, 4, 10], [0, 9, 3], "beyond the last sequence"),
        ([2, 3, 5], [0, -4, 10], [0, 1, 3], "sequence 1"),
        ([2, 3, 5], [0, 5, 10], [0, 1, 3], "sequence 1"),
    ],
)
def test_an_index_that_lies_inside_is_found_by_verify_and_never_reads_outside(
    tmp_path: Path, lengths: list[int], pointers: list[int], boundaries: list[int], words: str
) -> None:
    path = megatron(tmp_path / "x", lengths, pointers, boundaries)
    store = TokenStore(path)

    assert words in str(store.verify())
    for document in range(store.documents):
        try:
            assert len(store.document(document)) <= 10
        except StoreError as error:
            assert "x.idx" in str(error)


def test_a_pair_that_ends_inside_a_token_is_refused(tmp_path: Path) -> None:
    path = megatron(tmp_path / "x", [2, 8], [0, 5], [0, 2])
    path.write_bytes(bytes(21))

    assert "the file at 21" in str(complaint(path))


def test_other_megatron_files_are_refused_with_their_reason(tmp_path: Path) -> None:
    assert "code 5 (int64)" in str(complaint(megatron(tmp_path / "x", [10], [0], [0, 1], code=5)))
    assert "version 2" in str(complaint(megatron(tmp_path / "x", [10], [0], [0, 1], version=2)))
    path = megatron(tmp_path / "x", [10], [0], [0, 1])
    index = path.with_suffix(".idx")
    whole = index.read_bytes()
    index.write_bytes(whole + b"\0")
    assert "multimodal" in str(complaint(path))
    index.write_bytes(whole[:20])
    assert "too few" in str(complaint(path))
    huge = whole[:18] + b"\xff" * 16 + whole[34:]
    index.write_bytes(huge)
    assert "make" in str(complaint(path))


@given(st.binary(max_size=200))
def test_any_index_behind_megatrons_magic_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, rest: bytes
) -> None:
    path = bare(tmp_path_factory.mktemp("m") / "x.bin", [0] * 10)
    path.with_suffix(".idx").write_bytes(b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + rest)

    with pytest.raises(StoreError):
        TokenStore(path)


def test_our_own_index_leads_to_our_own_file(tmp_path: Path) -> None:
    write_store(tmp_path / "x.bin", DOCUMENTS)

    assert read_back(tmp_path / "x.idx") == read_back(tmp_path / "x") == DOCUMENTS
