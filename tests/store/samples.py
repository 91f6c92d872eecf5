"""Small stores for the tests, and settings that make every boundary come early."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from millstream.errors import StoreError
from millstream.storage import disk, sealed
from millstream.store import (
    WEIGHTED,
    Frame,
    Rows,
    TokenStore,
    TokenStoreWriter,
    column_writers,
    compressed_blocks,
    describe,
    session,
    writer,
)
from millstream.store.layout import encode_table

Documents = Sequence[Any]  # of lists or arrays of ids

documents = st.lists(st.lists(st.integers(0, 65535), max_size=40), max_size=25)


def shrink(patch: pytest.MonkeyPatch, *, block: int = 64, checkpoint: int = 256, stage: int = 128) -> None:
    """Make blocks, buffers and checkpoints a few bytes long, and skip waiting for the disk."""
    patch.setattr(column_writers, "BLOCK_BYTES", block)
    patch.setattr(column_writers, "BUFFER_BLOCKS", 2)
    patch.setattr(session, "BLOCK_BYTES", block)
    patch.setattr(compressed_blocks, "BLOCK_TOKENS", 16)
    patch.setattr(session, "CHECKPOINT_BYTES", checkpoint)
    patch.setattr(writer, "STAGE_BYTES", stage)
    patch.setattr(disk, "sync", lambda fd: None)


def corpus(count: int = 30, seed: int = 1, most: int = 40) -> list[list[int]]:
    """Make documents of different lengths, some empty."""
    random = np.random.default_rng(seed)
    return [random.integers(0, 50257, random.integers(0, most)).tolist() for _ in range(count)]


def weights_of(text: Sequence[int]) -> list[float]:
    """What the tokens of a document weigh, where a store holds that; none for some, more than one for others."""
    return [(0, 1, 0.25, 3)[token % 4] for token in text]


def add(writing: TokenStoreWriter, texts: Documents) -> None:
    """Add documents one by one, with their weights where the store holds such."""
    for each in texts:
        writing.append(each, **({"weights": weights_of(each)} if writing.dtype == WEIGHTED else {}))


def write_store(path: Path, texts: Documents, **settings: Any) -> Path:
    """Write documents one by one and seal."""
    with TokenStoreWriter(path, **settings) as writing:
        add(writing, texts[writing.documents - writing.parent_documents :])
    return path


def build_sparse(path: Path, rows: Rows, tokens: int) -> None:
    """Make a store by hand from one sparse shard, linked under every file number."""
    (path / "versions").mkdir(parents=True)
    row = rows[0].tolist()
    bin_frame = Frame("T", row[1], row[5], row[4], row[3], "uint16").encode()
    idx_frame = Frame("D", row[3], row[1], row[4]).encode()
    for name, frame, size in (("00000.bin", bin_frame, 2 * row[1]), ("00000.idx", idx_frame, 8 * row[3])):
        with (path / name).open("wb") as file:
            file.write(frame)
            file.truncate(64 + size)
    with (path / "00000.idx").open("r+b") as file:
        file.seek(64 + 8 * (row[3] - 1))
        file.write(int(row[1]).to_bytes(8, "little"))
    manifest = describe("uint16", rows)
    assert manifest["tokens"] == tokens
    (path / "versions" / f"{manifest['fingerprint']}.tab").write_bytes(encode_table(rows))
    (path / "manifest.json").write_bytes(sealed(manifest))


def read_back(path: Path, **settings: Any) -> list[list[int]]:
    """Read every document."""
    store = TokenStore(path, **settings)
    return [store.document(i).tolist() for i in range(store.documents)]


def snapshot(path: Path) -> dict[str, bytes]:
    """Read every file under a directory."""
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def complaint(path: Path, **settings: Any) -> StoreError:
    """Open a store that must be refused, and give the error."""
    with pytest.raises(StoreError) as caught:
        TokenStore(path, **settings)
    assert path.name in str(caught.value) or path.parent.name in str(caught.value)
    return caught.value
