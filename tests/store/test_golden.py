"""Files that pin the format: what was written once is read for ever, and is written the same way today.

`python -m store.test_golden` (in tests/) writes the folder anew: only together with a new format version. How well
blocks are packed is zstd's affair and no part of the format: packed files are only read.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import xxhash

from millstream.chats.parse.content import MOST
from millstream.storage import decompress
from millstream.store import WEIGHTS, TokenStore, TokenStoreWriter
from store.samples import read_back, snapshot, write_store

GOLDEN = Path(__file__).with_name("golden")
FIRST = [[1, 2, 3], [], [50256]]
SECOND = [[4, 5, 6, 7, 8, 9, 10, 11]]
PACKED = [[number % 700 for number in range(4000)], [], [number % 13 for number in range(1000)]]


def write_golden(folder: Path) -> None:
    source = [{"path": "a.txt", "bytes": 12, "blake2b": "ab" * 16}]
    tokenizer = {"name": "gpt2", "fingerprint": "cd" * 16, "eos": 50256, "vocab_size": 50257}
    write_store(folder / "corpus", FIRST, shard_tokens=3, sources=source, tokenizer=tokenizer, recipe={"a": [1]})
    write_store(folder / "corpus", SECOND, append=True)
    write_store(folder / "one.bin", FIRST)
    write_store(folder / "wide.bin", [[65536, 4294967295]], dtype="uint32")
    write_store(folder / "signed.bin", [[2147483647]], dtype="int32")
    with TokenStoreWriter(folder / "weighted", dtype="weighted") as writer:
        writer.append([1, 2, 3], weights=[0, 1, 0.5])
        writer.append([])
        writer.finish_shard()  # a store that others follow gets a shard whenever it is asked for one
        writer.append([16777215, 5], weights=[75, 3])
    with TokenStoreWriter(folder / "weighted", append=True) as writer:
        writer.append([4], weights=[0.07])


def write_packed_golden(folder: Path) -> None:
    write_store(folder / "packed.bin", PACKED, compress=True)
    write_store(folder / "packed_weighted.bin", PACKED, compress=True, dtype="weighted")


def test_the_writer_writes_the_golden_bytes(tmp_path: Path) -> None:
    write_golden(tmp_path)

    others = ("megatron", "packed")
    golden = {name: data for name, data in snapshot(GOLDEN).items() if not name.startswith(others)}
    assert snapshot(tmp_path) == golden


def test_the_golden_files_are_read(tmp_path: Path) -> None:
    assert read_back(GOLDEN / "corpus") == FIRST + SECOND
    assert read_back(GOLDEN / "one.bin") == FIRST
    assert read_back(GOLDEN / "wide.bin") == [[65536, 4294967295]]
    assert read_back(GOLDEN / "signed.bin") == [[2147483647]]
    assert read_back(GOLDEN / "corpus", version=TokenStore(GOLDEN / "corpus").log()[1].fingerprint) == FIRST
    assert read_back(GOLDEN / "packed.bin") == PACKED
    assert read_back(GOLDEN / "packed_weighted.bin") == PACKED
    assert TokenStore(GOLDEN / "packed_weighted.bin").weights(0, 5).tolist() == [0, 1, 0.25, 3, 0]
    weighted = TokenStore(GOLDEN / "weighted")
    assert read_back(GOLDEN / "weighted") == [[1, 2, 3], [], [16777215, 5], [4]]
    assert weighted.weights(0, 6).tolist() == pytest.approx([0, 1, 0.5, 75, 3, 0.07])
    assert read_back(GOLDEN / "weighted", version=weighted.log()[1].fingerprint) == [[1, 2, 3], [], [16777215, 5]]
    for name in (
        *("corpus", "one.bin", "wide.bin", "signed.bin", "packed.bin"),
        *("weighted", "packed_weighted.bin"),
    ):
        assert TokenStore(GOLDEN / name).verify().ok


def test_the_specification_describes_the_golden_bytes() -> None:
    """Built from docs/reference/formats.md alone, without our code."""
    body = np.array([1, 2, 3, 50256], "<u2").tobytes()
    ends = np.array([3, 3, 4], "<u8").tobytes()
    sums = np.array([xxhash.xxh64_intdigest(body), xxhash.xxh64_intdigest(ends)], "<u8").tobytes()
    tag = xxhash.xxh64_intdigest(sums)

    assert (GOLDEN / "one.bin").read_bytes() == frame(b"T", 1, 4, 50257, tag, 3) + body
    assert (GOLDEN / "one.idx").read_bytes() == frame(b"D", 0, 3, 4, tag, 0) + ends
    assert (GOLDEN / "one.sum").read_bytes() == frame(b"C", 0, 2, 1 << 20, tag, 0) + sums
    row = np.array([0, 4, 0, 3, tag, 50257, 0, 0], "<u8").tobytes()
    name = hashlib.blake2b(b"millstream 1 uint16" + row, digest_size=16).hexdigest()
    assert TokenStore(GOLDEN / "one.bin").fingerprint == name


def frame(kind: bytes, dtype: int, count: int, bound: int, tag: int, documents: int, block: int = 0) -> bytes:
    words = np.array([count, 64, bound, tag, documents], "<u8").tobytes()
    codes = np.array([1, dtype], "<u4").tobytes()
    start = b"\x89MLS" + kind + b"\r\n\x1a" + codes + words + block.to_bytes(4, "little")
    return start + (xxhash.xxh64_intdigest(start) & 0xFFFFFFFF).to_bytes(4, "little")


def test_the_specification_describes_the_golden_weighted_bytes() -> None:
    """A word is an id and a code << 24; a document is its end and its trained tokens | their hundredths << 32."""
    words = [1, 100 << 24 | 2, 50 << 24 | 3]
    body = np.array(words, "<u4").tobytes()
    ends = np.array([3, 2 | 150 << 32, 3, 0], "<u8").tobytes()
    sums = np.array([xxhash.xxh64_intdigest(body), xxhash.xxh64_intdigest(ends)], "<u8").tobytes()
    tag = xxhash.xxh64_intdigest(sums)

    assert (GOLDEN / "weighted/00000.bin").read_bytes() == frame(b"T", 4, 3, 4, tag, 2) + body
    assert (GOLDEN / "weighted/00000.idx").read_bytes() == frame(b"E", 0, 2, 3, tag, 0) + ends
    second = np.frombuffer((GOLDEN / "weighted/00001.bin").read_bytes()[64:], "<u4").tolist()
    assert second == [255 << 24 | 16777215, 120 << 24 | 5]
    third = np.frombuffer((GOLDEN / "weighted/00002.bin").read_bytes()[64:], "<u4").tolist()
    assert third == [7 << 24 | 4]
    codes = [*range(101), *range(110, 1001, 10), *range(1100, 7501, 100)]
    assert (100 * WEIGHTS).round().astype(int).tolist() == codes
    assert WEIGHTS[-1] == MOST, "the greatest weight that rows may have is the greatest that a token can hold"


def test_the_specification_describes_the_golden_packed_bytes() -> None:
    """Two blocks, each a zstd frame of its own, and where each ends; tag and checksums are those of a plain file."""
    body = np.concatenate(PACKED).astype("<u2").tobytes()
    ends = np.array([4000, 4000, 5000], "<u8").tobytes()
    sums = np.array([xxhash.xxh64_intdigest(body), xxhash.xxh64_intdigest(ends)], "<u8").tobytes()
    tag = xxhash.xxh64_intdigest(sums)

    whole = (GOLDEN / "packed.bin").read_bytes()
    first, second = np.frombuffer(whole[-16:], "<u8").tolist()
    assert whole[:64] == frame(b"Z", 1, 5000, 700, tag, 3, block=4096)
    assert decompress(whole[64:first], limit=8192) == body[:8192]
    assert decompress(whole[first:second], limit=8192) == body[8192:]
    assert second == len(whole) - 16
    assert (GOLDEN / "packed.sum").read_bytes() == frame(b"C", 0, 2, 1 << 20, tag, 0) + sums


if __name__ == "__main__":
    write_golden(GOLDEN)
    write_packed_golden(GOLDEN)
