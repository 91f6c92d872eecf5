"""Megatron's own builder writes, we read; both give the same documents. `make oracles` installs megatron-core."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from millstream.store import TokenStore

BUILD = """
import sys, numpy, torch
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
prefix, dtype = sys.argv[1], getattr(numpy, sys.argv[2])
random, builder = numpy.random.default_rng(5), IndexedDatasetBuilder(prefix + ".bin", dtype=dtype)
for _ in range(500):
    lengths = random.integers(0, 60, random.integers(1, 4)).tolist()
    builder.add_document(torch.from_numpy(random.integers(0, 50257, sum(lengths))), lengths)
builder.finalize(prefix + ".idx")
built = IndexedDataset(prefix)
ends = built.document_indices
texts = [[int(t) for s in range(a, b) for t in built[s]] for a, b in zip(ends, ends[1:])]
numpy.savez(prefix + ".npz", flat=numpy.concatenate(texts), lengths=[len(t) for t in texts])
"""


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_we_read_what_megatron_writes(tmp_path: Path, dtype: str) -> None:
    subprocess.run([sys.executable, "-c", BUILD, str(tmp_path / "x"), dtype], check=True)
    wanted = np.load(tmp_path / "x.npz")

    store = TokenStore(tmp_path / "x")

    assert store.dtype == dtype
    assert store.verify().ok
    assert np.array_equal(store[:], wanted["flat"])
    spans = [store.document_span(i) for i in range(store.documents)]
    assert [stop - start for start, stop in spans] == wanted["lengths"].tolist()
