"""Blocks of documents: every tokenizer gives for a block what it gives for each document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import TokenizerError
from millstream.tokens import (
    BPETokenizer,
    CharTokenizer,
    Ids,
    Tokenizer,
    encode_flat,
    join_texts,
    load_tokenizer,
    unfit_documents,
)
from millstream.tokens.flat import split_ids, split_texts
from tokens.conftest import TEXTS

ALPHABET = "ab é世😀\x00\n"


class Own:
    """A user's own tokenizer, with nothing but the methods of the protocol."""

    name, vocab_size, eos_id, pad_id, fingerprint = "own", 0x110000, None, None, "0" * 32

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        return [np.array(self.encode(text), np.uint32) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def token_id(self, token: str) -> int | None:
        return ord(token) if len(token) == 1 else None


@pytest.fixture(scope="module", params=["own", "char", "bpe", "tiktoken", "reference"])
def tokenizer(request: pytest.FixtureRequest, bpe: BPETokenizer, encoding: Any) -> Tokenizer:
    ways: dict[str, object] = {
        "own": Own(),
        "char": CharTokenizer(ALPHABET),
        "bpe": bpe,
        "tiktoken": encoding,
        "reference": BPETokenizer.train(TEXTS, vocab_size=300),
    }
    loaded = load_tokenizer(ways[request.param])
    if request.param == "reference":
        loaded._adapted._wanted = "reference"  # type: ignore[attr-defined]
    return loaded


@given(texts=st.lists(st.text(ALPHABET, max_size=12), max_size=8))
def test_a_block_gives_the_ids_of_its_documents(tokenizer: Tokenizer, texts: list[str]) -> None:
    ids, ends = encode_flat(tokenizer, *join_texts(texts))

    assert (ids.dtype.name, ends.dtype.name, len(ends)) == ("uint32", "int64", len(texts))
    assert [each.tolist() for each in split_ids(ids, ends)] == [tokenizer.encode(text) for text in texts]


@given(texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=12), max_size=8))
def test_texts_survive_being_joined(texts: list[str]) -> None:
    assert split_texts(*join_texts(texts)) == texts


def test_documents_that_cannot_be_encoded_are_named() -> None:
    tokenizer = CharTokenizer("ab")
    text, ends = join_texts(["ab", "axb", "", "ay"])

    with pytest.raises(TokenizerError, match=r"'x' .* at place 1"):
        encode_flat(tokenizer, text, ends)
    assert [(document, error.message[:13]) for document, error in unfit_documents(tokenizer, text, ends)] == [
        (1, "character 'x'"),
        (3, "character 'y'"),
    ]


def test_half_of_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(TokenizerError, match="place 1 is not a character"):
        join_texts(["a\ud800"])
