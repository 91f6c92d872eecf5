"""Small stores for the tests, and settings that make every boundary come early."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from millstream.errors import StoreError
from millstream.store import TokenStore, TokenStoreWriter, column, disk, growing, session, writer

Documents = Sequence[Any]  # of lists or arrays of ids

documents = st.lists(st.lists(st.integers(0, 65535), max_size=40), max_size=25)


def shrink(patch: pytest.MonkeyPatch, *, block: int = 64, checkpoint: int = 256, stage: int = 128) -> None:
    """Make blocks, buffers and checkpoints a few bytes long, and skip waiting for the disk."""
    patch.setattr(column, "BLOCK_BYTES", block)
    patch.setattr(column, "BUFFER_BLOCKS", 2)
    patch.setattr(growing, "BLOCK_BYTES", block)
    patch.setattr(session, "CHECKPOINT_BYTES", checkpoint)
    patch.setattr(writer, "STAGE_BYTES", stage)
    patch.setattr(disk, "sync", lambda fd: None)


def corpus(count: int = 30, seed: int = 1, most: int = 40) -> list[list[int]]:
    """Make documents of different lengths, some empty."""
    random = np.random.default_rng(seed)
    return [random.integers(0, 50257, random.integers(0, most)).tolist() for _ in range(count)]


def write_store(path: Path, texts: Documents, **settings: Any) -> Path:
    """Write documents one by one and seal."""
    with TokenStoreWriter(path, **settings) as writing:
        for each in texts[writing.documents - writing.parent_documents :]:
            writing.append(each)
    return path


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
