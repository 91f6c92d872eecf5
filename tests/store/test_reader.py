from __future__ import annotations

import os
import pickle
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import StoreError
from millstream.store import Layout, Row, TokenStore, rows_of
from store.samples import build_sparse, complaint, corpus, shrink, write_store

places = st.one_of(st.none(), st.integers(-400, 400))
TEXTS = corpus(20, seed=5)
FLAT = np.array([token for each in TEXTS for token in each], np.uint16)


@pytest.fixture(scope="module")
def store() -> TokenStore:
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        return TokenStore(write_store(Path(tempfile.mkdtemp()) / "s", TEXTS, shard_tokens=64))


@given(places, places, st.one_of(st.none(), st.integers(-9, 9).filter(bool)))
def test_slices_are_those_of_numpy(store: TokenStore, start: int | None, stop: int | None, step: int | None) -> None:
    assert np.array_equal(store[start:stop:step], FLAT[start:stop:step])
    assert store[start:stop:step].dtype == np.uint16


def test_every_token_can_be_asked_for_alone(store: TokenStore) -> None:
    assert [store[i] for i in range(len(store))] == FLAT.tolist()
    assert store[-1] == FLAT[-1]
    assert store[np.int64(3)] == FLAT[3]
    assert list(store) == FLAT.tolist()
    for outside in (len(store), -len(store) - 1):
        with pytest.raises(IndexError, match="outside this store"):
            store[outside]
    with pytest.raises(ValueError, match="step"):
        store[::0]


def test_a_slice_in_one_shard_is_a_read_only_view_of_the_file(store: TokenStore) -> None:
    view = store[2:30]

    assert not view.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


def test_documents_spans_and_files_agree(store: TokenStore) -> None:
    ends = np.cumsum([len(each) for each in TEXTS]).tolist()

    assert store.documents == len(TEXTS)
    for i, text in enumerate(TEXTS):
        assert store.document_span(i) == (ends[i] - len(text), ends[i])
        assert store.document(i).tolist() == text
        assert Path(store.file_of(i)).exists()
    assert store.document(-1).tolist() == TEXTS[-1]
    assert [store.document_at(t) for t in range(len(store))] == [i for i, x in enumerate(TEXTS) for _ in x]
    for outside in (len(TEXTS), -len(TEXTS) - 1):
        with pytest.raises(IndexError):
            store.document(outside)
    with pytest.raises(IndexError):
        store.document_at(len(store))


@given(st.data())
def test_the_spans_of_a_range_are_its_tokens_document_by_document(store: TokenStore, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(store)))
    stop = data.draw(st.integers(start, len(store)))

    documents, starts, stops = store.spans_of(start, stop)

    found = [token for d, a, b in zip(documents, starts, stops, strict=True) for token in TEXTS[d][a:b]]
    assert found == FLAT[start:stop].tolist()
    assert (starts < stops).all()
    assert (np.diff(documents) > 0).all()


def test_spans_outside_the_store_are_refused(store: TokenStore) -> None:
    for start, stop in ((-1, 2), (3, 2), (0, len(store) + 1)):
        with pytest.raises(IndexError):
            store.spans_of(start, stop)


def test_a_store_travels_to_another_process_by_its_path(store: TokenStore) -> None:
    there = pickle.loads(pickle.dumps(store))

    assert there.fingerprint == store.fingerprint
    assert there[:5].tolist() == store[:5].tolist()


def test_the_layout_says_where_the_tokens_lie(store: TokenStore, tmp_path: Path) -> None:
    layout = store.layout
    assert isinstance(layout, Layout)
    assert (layout.directory, layout.file, layout.dtype) == (str(store.path), "", "uint16")
    assert (layout.header_bytes, layout.index, layout.table.shape[1]) == (64, "ends", 8)
    one = TokenStore(write_store(tmp_path / "one.bin", TEXTS)).layout
    assert (one.directory, one.file, one.index) == ("", str(tmp_path / "one.bin"), "ends")
    assert one.index_file == str(tmp_path / "one.idx")
    assert one.table.tolist()[0][:4] == [0, len(FLAT), 0, len(TEXTS)]


def test_one_file_without_its_companions_is_one_document(tmp_path: Path) -> None:
    path = write_store(tmp_path / "one.bin", TEXTS)
    known = TokenStore(path).fingerprint
    for suffix in (".idx", ".json", ".sum"):
        path.with_suffix(suffix).unlink()
        store = TokenStore(path)
        assert (store.documents, store.layout.index, store.fingerprint) == (1, "none", known)
        assert store.document(0).tolist() == FLAT.tolist()
        assert store.document_at(7) == 0
        assert store.verify().ok
    assert store.manifest["documents"] == 1
    assert "no checksums" in str(store.verify())


def test_a_store_of_nothing_opens(tmp_path: Path) -> None:
    for name in ("s", "s.bin"):
        with TokenStore(write_store(tmp_path / name, [])) as store:
            assert (len(store), store.documents, store[:].tolist()) == (0, 0, [])
            assert store.verify().ok
    store = TokenStore(write_store(tmp_path / "empty", [[], []]))
    assert (len(store), store.documents, store.document(1).tolist()) == (0, 2, [])
    assert store.spans_of(0, 0)[0].tolist() == []


def test_what_is_not_there_or_not_a_store_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "not a store" in str(complaint(tmp_path / "empty"))
    assert "no such file" in str(complaint(tmp_path / "nothing"))
    path = write_store(tmp_path / "s", TEXTS)
    assert "uint16, not int32" in str(complaint(path, dtype="int32"))
    with pytest.raises(StoreError, match="cannot be stored"):
        TokenStore(path, dtype="float64")


def seconds_to_open(path: Path) -> float:
    """The best of several: a busy machine only adds."""
    times = []
    for _ in range(7):
        start = time.perf_counter()
        TokenStore(path)
        times.append(time.perf_counter() - start)
    return min(times)


def test_a_store_of_a_trillion_tokens_opens_as_fast_as_one_of_a_million(tmp_path: Path) -> None:
    build_sparse(tmp_path / "small", rows_of([Row(10**6, 3, tag=1, bound=2, file=0)]), 10**6)
    build_sparse(tmp_path / "large", rows_of([Row(10**12, 3, tag=1, bound=2, file=0)]), 10**12)
    store = TokenStore(tmp_path / "large")

    assert len(store) == 10**12
    assert store[10**12 - 1] == 0
    assert store.document_span(2) == (0, 10**12)
    assert store[10**11 : 10**11 + 3].tolist() == [0, 0, 0]
    assert seconds_to_open(tmp_path / "large") < 3 * seconds_to_open(tmp_path / "small") + 0.005


def test_a_hundred_thousand_shards_open_lazily(tmp_path: Path) -> None:
    count, path = 100_000, tmp_path / "many"
    rows = rows_of(Row(10, 2, tag=1, bound=2, file=number) for number in range(count))
    build_sparse(path, rows, 10 * count)
    used = [0, *range(50_000, 50_400), count - 1]
    for number in used[1:]:  # all others are not even there: nobody asks for them
        for suffix in (".bin", ".idx"):
            os.link(path / f"00000{suffix}", path / f"{number:05d}{suffix}")

    assert seconds_to_open(path) < 1.0
    store = TokenStore(path)
    assert len(store) == 10 * count
    assert store.document_span(2 * count - 1) == (10 * (count - 1), 10 * count)
    kept = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = max(int(fd.name) for fd in Path("/proc/self/fd").iterdir())  # by whatever else runs in this process
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 400, kept[1]))
    try:
        assert store[500_000:504_000].tolist() == [0] * 4000
        assert all(store.document_at(token) % 2 == 1 for token in range(500_000, 504_000, 10))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, kept)
    with pytest.raises(StoreError, match=r"00001\.bin: this file is missing"):
        store[10]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=6))
def test_documents_longer_than_a_shard_have_a_shard_of_their_own(lengths: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        store = TokenStore(write_store(Path(folder, "s"), [[1] * n for n in lengths], shard_tokens=100))

        assert [len(store.document(i)) for i in range(store.documents)] == lengths
