"""Any file of a store, damaged in any way: an error of ours or the right data, and never a crash."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import StoreError
from millstream.store import WEIGHTED, TokenStore, TokenStoreWriter
from store.samples import add, complaint, corpus, shrink, snapshot, weights_of, write_store

TEXTS = corpus(24, seed=9, most=20)
MANIFEST_AND_TABLES = (".json", ".tab")
PLAIN = [(form, compress, None) for form in ("s", "s.bin") for compress in (False, True)]
FORMS = [*PLAIN, ("s", False, WEIGHTED), ("s.bin", True, WEIGHTED)]


@pytest.fixture(scope="module", params=FORMS, ids=str)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        form, compress, dtype = request.param
        path = tmp_path_factory.mktemp("d") / form
        return write_store(path, TEXTS, shard_tokens=100, compress=compress, dtype=dtype)


@st.composite
def damage(draw: st.DrawFn, data: bytes, other: bytes) -> bytes:
    """Flip, cut, stretch, blank or swap the bytes of a file."""
    place = draw(st.integers(0, max(len(data) - 1, 0)))
    kind = draw(st.sampled_from(["flip", "cut", "stretch", "blank", "swap", "insert", "empty"]))
    if kind == "flip":
        return data[:place] + bytes([data[place] ^ draw(st.integers(1, 255))]) + data[place + 1 :]
    if kind == "blank":
        return data[:place] + bytes(len(data) - place)
    changed = {
        "cut": data[:place],
        "stretch": data + draw(st.binary(min_size=1, max_size=70)),
        "swap": other,
        "insert": data[:place] + b"\0" + data[place:],
        "empty": b"",
    }
    return changed[kind]


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_damaged_store_is_refused_or_gives_the_right_tokens_or_is_named_by_verify(
    whole: Path, data: st.DataObject
) -> None:
    names = sorted(snapshot(whole.parent))
    file, other = (whole.parent / data.draw(st.sampled_from(names)) for _ in range(2))
    before = file.read_bytes()
    damaged = data.draw(damage(before, other.read_bytes()))
    replace_file(file, damaged)
    try:
        assert read_or_refuse(whole) or damaged != before
    finally:
        replace_file(file, before)


def replace_file(path: Path, data: bytes) -> None:
    """Put another file in the place of one that may still be mapped."""
    path.unlink()
    path.write_bytes(data)


def read_or_refuse(path: Path) -> bool:
    """Use a store in every way; tell whether it gave the right data. Wrong data must be known to verify()."""
    try:
        store = TokenStore(path)
        weighted = store.dtype == WEIGHTED
        report = store.verify()
        found = [store.document(i).tolist() for i in range(store.documents)]
        weights = [store.weights(*store.document_span(i)).tolist() for i in range(store.documents)] if weighted else []
        found_again = [store.document_at(t) for t in range(len(store))]
        store.log()
        store.spans_of(0, len(store))
    except StoreError as error:
        assert str(path.parent) in str(error)
        return False
    right = found == TEXTS and found_again == [i for i, text in enumerate(TEXTS) for _ in text]
    right = right and (not weighted or weights == list(map(weights_of, TEXTS)))
    assert right or not report.ok
    return right


def test_a_missing_shard_is_named_at_open(whole: Path, tmp_path: Path) -> None:
    for name in snapshot(whole.parent):
        if name.endswith((".bin", ".idx")) and whole.is_dir():
            copy = Path(shutil.copytree(whole.parent, tmp_path / name.replace("/", "_"))) / whole.name
            (copy.parent / name).unlink()
            assert f"{name}: this file is missing" in str(complaint(copy))


def test_shards_of_another_store_are_noticed_at_open(tmp_path: Path) -> None:
    one = write_store(tmp_path / "one", [[1, 2, 3]])
    two = write_store(tmp_path / "two", [[4, 5, 3]])
    shutil.copy(two / "00000.bin", one / "00000.bin")

    assert "files of two different stores were mixed" in str(complaint(one))


def test_a_table_of_another_version_is_noticed_at_open(tmp_path: Path) -> None:
    one = write_store(tmp_path / "one", [[1, 2, 3]])
    two = write_store(tmp_path / "two", [[4, 5, 6]])
    table = next((one / "versions").glob("*.tab"))
    table.write_bytes(next((two / "versions").glob("*.tab")).read_bytes())
    assert "fingerprint" in str(complaint(one)) or "id_bound" in str(complaint(one))
    table.unlink()
    assert "missing" in str(complaint(one))


@settings(max_examples=100, deadline=None)
@given(data=st.data(), compress=st.booleans(), dtype=st.sampled_from([None, WEIGHTED]))
def test_a_damaged_unfinished_store_is_refused_or_resumed_to_the_right_tokens(
    data: st.DataObject, compress: bool, dtype: str | None
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        path = Path(folder, "s")
        writer = TokenStoreWriter(path, shard_tokens=100, compress=compress, dtype=dtype)
        add(writer, TEXTS[:20])
        writer.checkpoint()
        writer.abandon()
        name = data.draw(st.sampled_from(sorted(snapshot(path))))
        file = path / name
        file.write_bytes(data.draw(damage(file.read_bytes(), b"other")))
        try:
            write_store(path, TEXTS, shard_tokens=100, resume=True, dtype=dtype)
        except StoreError:
            return
        read_or_refuse(path)
