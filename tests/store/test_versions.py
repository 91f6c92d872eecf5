from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import StoreError
from millstream.store import TokenStore, TokenStoreWriter
from store.samples import corpus, read_back, snapshot, write_store

OLD, NEW = corpus(9, seed=3), corpus(7, seed=4)


@pytest.fixture
def path(tmp_path: Path, small: None) -> Path:
    write_store(tmp_path / "s", OLD, shard_tokens=60, tokenizer={"name": "gpt2"}, recipe="first")
    return write_store(tmp_path / "s", NEW, shard_tokens=60, append=True)


def test_appending_makes_a_version_that_shares_the_old_files(path: Path) -> None:
    new = TokenStore(path)
    old = TokenStore(path, version=new.log()[1].fingerprint)

    assert read_back(path) == OLD + NEW
    assert [old.document(i).tolist() for i in range(old.documents)] == OLD
    assert old.file_of(0) == new.file_of(0)
    assert new.verify().ok
    assert old.verify().ok


def test_the_log_lists_versions_from_the_newest(path: Path) -> None:
    new, old = TokenStore(path).log()

    assert (new.parent, old.parent) == (old.fingerprint, None)
    assert (new.documents, old.documents) == (16, 9)
    assert new.manifest["tokenizer"] == old.manifest["tokenizer"] == {"name": "gpt2"}


def test_a_diff_names_shards_tokens_and_documents(path: Path) -> None:
    store = TokenStore(path)
    old = store.log()[1].fingerprint
    diff = store.diff(old)

    assert diff.only_there == ()
    assert diff.shared == len(TokenStore(path, version=old).layout.table)
    assert diff.documents == len(NEW)
    assert diff.tokens == sum(map(len, NEW))
    assert TokenStore(path, version=old).diff(store).only_there == diff.only_here


def test_a_version_may_be_named_by_its_first_digits(path: Path) -> None:
    name = TokenStore(path).log()[1].fingerprint

    assert TokenStore(path, version=name[:8]).fingerprint == name
    for wrong in ("ffffffff", "f" * 32, "../versions", "", "zzzz", "12"):
        with pytest.raises(StoreError):
            TokenStore(path, version=wrong)


def test_appending_nothing_changes_nothing(path: Path) -> None:
    before = snapshot(path)
    TokenStoreWriter(path, append=True).close()

    assert snapshot(path) == before


def test_an_append_that_does_not_fit_the_store_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="the ids are uint16"):
        TokenStoreWriter(path, append=True, dtype="uint32")
    with pytest.raises(StoreError, match="another tokenizer"):
        TokenStoreWriter(path, append=True, tokenizer={"name": "llama"})
    one = write_store(tmp_path / "one.bin", OLD)
    with pytest.raises(StoreError, match="one file cannot grow"):
        TokenStoreWriter(one, append=True)
    with pytest.raises(StoreError, match="only a directory has versions"):
        TokenStore(one, version="1234")


def test_appending_to_nothing_makes_a_store(tmp_path: Path) -> None:
    assert read_back(write_store(tmp_path / "s", OLD, append=True)) == OLD


def test_a_version_under_another_name_is_refused(path: Path) -> None:
    new, old = TokenStore(path).log()
    versions = path / "versions"
    (versions / f"{old.fingerprint}.json").write_bytes((versions / f"{new.fingerprint}.json").read_bytes())

    with pytest.raises(StoreError, match="describes version"):
        TokenStore(path, version=old.fingerprint)
    with pytest.raises(StoreError, match="describes version"):
        TokenStore(path).log()


def test_one_file_and_a_folder_with_the_same_shard_have_the_same_fingerprint(tmp_path: Path) -> None:
    one, folder = write_store(tmp_path / "one.bin", OLD), write_store(tmp_path / "folder", OLD)

    assert TokenStore(one).fingerprint == TokenStore(folder).fingerprint
    assert [each.fingerprint for each in TokenStore(one).log()] == [TokenStore(one).fingerprint]
