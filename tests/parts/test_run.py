"""A run over files that are partly known: what was made before is found, and nothing else is taken for it."""

from __future__ import annotations

from pathlib import Path

from millstream.api import prepare
from millstream.store import TokenStore
from millstream.tokens import CharTokenizer
from sources.samples import Dataset


def test_an_object_without_a_fingerprint_is_never_taken_for_another(tmp_path: Path) -> None:
    tokenizer = CharTokenizer(sorted("the mil"))
    prepare([Dataset([]), Dataset(["the mill"])], tmp_path / "store", tokenizer)

    store = TokenStore(tmp_path / "store")
    assert [tokenizer.decode(store.document(index)[:-1].tolist()) for index in range(store.documents)] == ["the mill"]
