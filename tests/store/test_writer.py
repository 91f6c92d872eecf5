from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import StoreError
from millstream.storage import Bytes, disk
from millstream.store import TokenStore, TokenStoreWriter, codes_of, discard, weigh
from store.samples import Documents, corpus, documents, read_back, shrink, snapshot, write_store


@settings(max_examples=60, deadline=None)
@given(
    texts=documents,
    shard=st.integers(1, 200),
    form=st.sampled_from(["corpus", "one.bin"]),
    small=st.booleans(),
)
def test_any_documents_come_back_from_any_shard_size(texts: Documents, shard: int, form: str, small: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        shrink(patch, **({} if small else {"block": 1 << 20}))
        path = write_store(Path(folder, form), texts, shard_tokens=shard)

        store = TokenStore(path)
        assert read_back(path) == [list(each) for each in texts]
        assert store[:].tolist() == [token for each in texts for token in each]
        assert store.verify().ok
        full = [int(tokens) for tokens in store.layout.table[:-1, 1]]
        assert form == "one.bin" or all(tokens >= shard for tokens in full)


@settings(max_examples=40, deadline=None)
@given(texts=documents, shard=st.integers(1, 200), cut=st.integers(0, 25))
def test_many_documents_at_once_are_the_same_bytes_as_one_by_one(texts: Documents, shard: int, cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        one = write_store(Path(folder, "one"), texts, shard_tokens=shard)
        with TokenStoreWriter(Path(folder, "many"), shard_tokens=shard) as writer:
            for part in (texts[:cut], texts[cut:]):
                ends = np.cumsum([len(each) for each in part], dtype=np.int64)
                writer.extend(np.array([token for each in part for token in each], np.int64), ends)

        assert snapshot(Path(folder, "many")) == snapshot(one)


@settings(max_examples=40, deadline=None)
@given(texts=documents, shard=st.integers(1, 200), stop=st.integers(0, 25), form=st.sampled_from(["s", "s.bin"]))
def test_a_writer_stopped_at_any_document_goes_on_to_the_same_bytes(
    texts: Documents, shard: int, stop: int, form: str
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        whole = write_store(Path(folder, "whole", form), texts, shard_tokens=shard)
        path = Path(folder, "stopped", form)
        with pytest.raises(ZeroDivisionError), TokenStoreWriter(path, shard_tokens=shard) as writer:
            for each in texts[:stop]:
                writer.append(each)
            raise ZeroDivisionError

        resumed = TokenStoreWriter(path, shard_tokens=shard, resume=True)
        assert resumed.documents == min(stop, len(texts))
        for each in texts[resumed.documents :]:
            resumed.append(each)
        resumed.close()

        assert snapshot(path.parent) == snapshot(whole.parent)


@pytest.mark.parametrize("kind", ["uint8", "int8", "uint16", "int16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("dtype", ["uint16", "uint32", "int32"])
def test_ids_of_any_integer_type_are_taken(tmp_path: Path, kind: str, dtype: str) -> None:
    path = write_store(tmp_path / "s", [np.array([0, 1, 127], kind), np.array([5, 6, 7, 8], kind)[::2]], dtype=dtype)

    assert read_back(path) == [[0, 1, 127], [5, 7]]
    assert TokenStore(path).dtype == dtype
    assert TokenStore(path).id_bound == 128


@pytest.mark.parametrize(
    ("ids", "dtype", "words"),
    [
        ([1, 65536], "uint16", 'document 1: id 65536 does not fit uint16\n.*dtype="uint32"'),
        ([1, 2**31], "int32", 'id 2147483648 does not fit int32\n.*dtype="uint32"'),
        ([2**32], "uint32", "no dtype holds it"),
        ([2**63], "uint16", "does not fit"),
        ([2**64], "uint16", "document 1: ids must be whole numbers|not token ids"),
        ([-1], "int32", "document 1: id -1 is negative"),
        ([0.5], "uint16", "whole numbers"),
        ([True], "uint16", "whole numbers"),
        (["a"], "uint16", "whole numbers"),
        ([[1], [2]], "uint16", "shape"),
        ([[1], [2, 3]], "uint16", "document 1"),
        (7, "uint16", "shape"),
    ],
)
def test_what_is_not_an_id_is_refused_by_name_and_leaves_the_store_whole(
    tmp_path: Path, ids: Any, dtype: str, words: str
) -> None:
    with TokenStoreWriter(tmp_path / "s", dtype=dtype) as writer:
        writer.append([1, 2])
        with pytest.raises(StoreError, match=f"(?s){words}"):
            writer.append(ids)
        writer.append([3])

    assert read_back(tmp_path / "s") == [[1, 2], [3]]


def test_a_bad_id_among_many_documents_names_its_document(tmp_path: Path) -> None:
    with TokenStoreWriter(tmp_path / "s") as writer:
        writer.append([1])
        with pytest.raises(StoreError, match="document 3: id 70000"):
            writer.extend([1, 2, 3, 70000, 4], [2, 3, 5])
        with pytest.raises(StoreError, match="must rise to 3"):
            writer.extend([1, 2, 3], [2, 1, 3])
        with pytest.raises(StoreError, match="they end at 2"):
            writer.extend([1, 2, 3], [2])
        assert writer.documents == 1


def test_ids_beyond_the_vocabulary_are_refused(tmp_path: Path) -> None:
    writer = TokenStoreWriter(tmp_path / "s", tokenizer={"name": "gpt2", "vocab_size": 50257})
    with pytest.raises(StoreError, match="document 0: id 50257 is beyond the vocabulary of 50257"):
        writer.append([50256, 50257])
    writer.abandon()


def test_a_finished_store_is_not_overwritten(tmp_path: Path) -> None:
    for name in ("s", "s.bin"):
        path = write_store(tmp_path / name, [[1, 2]])
        before = snapshot(tmp_path)
        with pytest.raises(StoreError, match=r"finished store.*\n.*append=True"):
            TokenStoreWriter(path)
        with TokenStoreWriter(path, resume=True) as writer:
            assert (writer.documents, writer.tokens) == (1, 2)
            with pytest.raises(StoreError, match="finished already"):
                writer.append([3])
        assert snapshot(tmp_path) == before


def test_other_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "one.json").write_text("mine")
    for path in (tmp_path, tmp_path / "one.bin"):
        with pytest.raises(StoreError, match="in the way"):
            TokenStoreWriter(path)
    assert set(snapshot(tmp_path)) == {"notes.txt", "one.json"}


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with TokenStoreWriter(tmp_path / "s") as writer:
        writer.append([1])
        with pytest.raises(StoreError, match="another writer is at work"):
            TokenStoreWriter(tmp_path / "s", resume=True)
    assert read_back(tmp_path / "s") == [[1]]


def test_an_unfinished_store_does_not_open_and_says_how_to_go_on(tmp_path: Path) -> None:
    for name in ("s", "s.bin"):
        writer = TokenStoreWriter(tmp_path / name)
        writer.append([1, 2])
        writer.checkpoint()
        writer.abandon()
        with pytest.raises(StoreError, match=r"not finished.*\n.*resume=True"):
            TokenStore(tmp_path / name)
        with pytest.raises(StoreError, match=r"left 1 documents.*\n.*discard"):
            TokenStoreWriter(tmp_path / name)
        with pytest.raises(StoreError, match="begun with dtype='uint16'"):
            TokenStoreWriter(tmp_path / name, dtype="uint32", resume=True)
        with pytest.raises(StoreError, match="other sources, tokenizer or recipe"):
            TokenStoreWriter(tmp_path / name, recipe=1, resume=True)


def test_an_unfinished_part_can_be_thrown_away(tmp_path: Path) -> None:
    path = write_store(tmp_path / "s", corpus(9), shard_tokens=50)
    before = snapshot(path)
    writer = TokenStoreWriter(path, append=True, shard_tokens=50)
    for each in corpus(9):
        writer.append(each)
    writer.checkpoint()
    writer.abandon()
    assert snapshot(path) != before

    discard(path)

    assert snapshot(path) == before


def test_a_full_disk_is_an_error_with_a_hint_and_can_be_resumed(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, texts = disk.write, corpus(40)

    def full(fd: int, data: Bytes, offset: int) -> None:
        if offset > 700:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(fd, data, offset)

    monkeypatch.setattr(disk, "write", full)
    with pytest.raises(StoreError, match=r"No space left on device\n.*free some space"):
        write_store(tmp_path / "s", texts)
    monkeypatch.setattr(disk, "write", real)
    write_store(tmp_path / "s", texts, resume=True)
    write_store(tmp_path / "whole", texts)

    assert snapshot(tmp_path / "s") == snapshot(tmp_path / "whole")


def test_a_writer_that_failed_or_was_closed_says_so(tmp_path: Path) -> None:
    writer = TokenStoreWriter(tmp_path / "s")
    writer.close()
    writer.close()
    with pytest.raises(StoreError, match="this writer is closed"):
        writer.append([1])


def test_bytes_lost_behind_the_last_checkpoint_are_noticed(tmp_path: Path) -> None:
    writer = TokenStoreWriter(tmp_path / "s")
    writer.append([1, 2, 3])
    writer.checkpoint()
    writer.abandon()
    part = tmp_path / "s" / "00000.bin.part"
    good = part.read_bytes()
    for bad in (good[:-1], good[:-2] + b"\x07\x07"):
        part.write_bytes(bad)
        with pytest.raises(StoreError, match="checkpoint"):
            TokenStoreWriter(tmp_path / "s", resume=True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"dtype": "float32"},
        {"shard_tokens": 0},
        {"shard_tokens": 1.5},
        {"sources": [{"path": "x"}]},
        {"recipe": {1}},
    ],
)
def test_settings_that_cannot_work_touch_nothing(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(StoreError):
        TokenStoreWriter(tmp_path / "s", **wrong)
    assert not (tmp_path / "s").exists()


def test_a_path_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        TokenStoreWriter(tmp_path / "file" / "s")
    with pytest.raises(StoreError, match="file"):
        TokenStoreWriter(tmp_path / "file")


def test_what_the_store_was_made_from_is_remembered(tmp_path: Path) -> None:
    sources = [{"path": "a.txt", "bytes": 3, "blake2b": "00"}]
    made: dict[str, Any] = {"sources": sources, "tokenizer": {"name": "gpt2"}, "recipe": {"eos": True}}
    manifest = TokenStore(write_store(tmp_path / "s", [[1]], **made)).manifest

    assert {key: manifest[key] for key in made} == made


def test_a_store_that_an_earlier_run_finished_is_resumed_with_nothing_to_do(tmp_path: Path) -> None:
    """Killed between its last byte and whatever its maker does next."""
    path = write_store(tmp_path / "s", [[1, 2]])
    before = snapshot(path)
    with TokenStoreWriter(path, resume=True) as writer:
        assert writer.documents == 1
        writer.checkpoint()
        writer.finish_shard()
    assert snapshot(path) == before


@pytest.mark.parametrize("form", ["corpus", "one.bin"])
def test_a_closed_writer_has_the_manifest_of_its_store(tmp_path: Path, form: str) -> None:
    path = tmp_path / form
    with TokenStoreWriter(
        path, recipe={"steps": ("a", 1)}, sources=[{"path": "a", "bytes": 3, "blake2b": ""}]
    ) as first:
        first.append([1, 2, 3])
        unsealed = first.manifest
    assert unsealed is None
    assert first.manifest == dict(TokenStore(path).manifest)

    with TokenStoreWriter(path, resume=True) as finished:
        pass
    assert finished.manifest == first.manifest


def test_a_version_has_its_own_manifest_and_one_without_documents_that_of_its_parent(tmp_path: Path) -> None:
    with TokenStoreWriter(tmp_path / "s") as first:
        first.append([1, 2, 3])
    with TokenStoreWriter(tmp_path / "s", append=True) as nothing:
        pass
    assert nothing.manifest == first.manifest

    with TokenStoreWriter(tmp_path / "s", append=True) as second:
        second.append([4])
    assert second.manifest == dict(TokenStore(tmp_path / "s").manifest) != first.manifest


def test_tokens_that_hold_their_weights_are_written_as_they_are(tmp_path: Path) -> None:
    ids, weights, ends = np.array([7, 8, (1 << 24) - 1]), [0.5, 0, 75], [1, 3]
    with TokenStoreWriter(tmp_path / "apart", dtype="weighted") as writer:
        writer.extend(ids, ends, weights=weights)
    with TokenStoreWriter(tmp_path / "joined", dtype="weighted") as writer:
        writer.extend_weighted(weigh(ids, codes_of(weights)), ends)

    assert snapshot(tmp_path / "joined") == snapshot(tmp_path / "apart")


def test_tokens_that_hold_their_weights_are_checked_like_others(tmp_path: Path) -> None:
    known = {"name": "x", "fingerprint": "ab", "vocab_size": 8}
    with TokenStoreWriter(tmp_path / "s", dtype="weighted", tokenizer=known) as writer:
        writer.extend_weighted(weigh(np.array([7]), codes_of([75])), [1])
        with pytest.raises(StoreError, match="document 2: id 8 is beyond the vocabulary of 8"):
            writer.extend_weighted(weigh(np.array([7, 8]), codes_of([1, 1])), [1, 2])
        with pytest.raises(StoreError, match="document ends must rise to 1"):
            writer.extend_weighted(weigh(np.array([7]), codes_of([1])), [2])
        with pytest.raises(StoreError, match="tokens of int64"):
            writer.extend_weighted(np.array([7]), [1])
    with TokenStoreWriter(tmp_path / "other", dtype="uint32") as writer, pytest.raises(StoreError, match="of uint32"):
        writer.extend_weighted(weigh(np.array([7]), codes_of([1])), [1])
