"""A fast engine works only where it gives the reference's ids; only the speed differs."""

from __future__ import annotations

import logging
import pickle
import unicodedata
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import TokenizerError
from millstream.tokens import BPETokenizer, Ends, FlatIds, Ids, Text, gigatoken, join_texts, load_tokenizer, screen
from millstream.tokens.fast_engine import EngineTokenizer, FastEngine
from millstream.tokens.flat import split_ids, split_texts
from millstream.tokens.gigatoken import GigatokenEngine, _Worker
from millstream.tokens.huggingface import HuggingFaceTokenizer
from millstream.tokens.screen import misordered_marks, unassigned
from tokens.vocabularies import EOS, gpt2_encoding, gpt2_json

TEXTS = ["the mill by the stream", "def f(x):\n    return x  # 世界", "don't; we'LL 12345 \t\n\n é\u0301"] * 4


def gpt2(engine: str = "auto") -> HuggingFaceTokenizer:
    tokenizer = load_tokenizer(tokenizers.Tokenizer.from_str(gpt2_json()), engine=engine)  # type: ignore[arg-type]
    assert isinstance(tokenizer, HuggingFaceTokenizer)
    return tokenizer


def trained() -> HuggingFaceTokenizer:
    return BPETokenizer.train(TEXTS, vocab_size=320)._adapted


@pytest.fixture(scope="module", params=["gpt2", "tiktoken", "bpe"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    ways = {"gpt2": gpt2, "tiktoken": lambda: load_tokenizer(gpt2_encoding()), "bpe": trained}
    return ways[request.param]()


@given(
    texts=st.lists(
        st.text(
            st.one_of(st.characters(codec="utf-8"), st.sampled_from(" \t\n'sSdtLl0123abAB.,!_-世é\u0301\xa0\u2028"))
        ),
        max_size=8,
    )
)
def test_any_texts_give_the_ids_of_the_reference(tokenizer: EngineTokenizer, texts: list[str]) -> None:
    assert tokenizer.engine == "gigatoken"
    right = [ids.tolist() for ids in tokenizer._reference_batch(texts)]

    for small in (-1, gigatoken._SMALL):  # as an array, and as lists
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gigatoken, "_SMALL", small)
            assert [ids.tolist() for ids in tokenizer.encode_batch(texts)] == right


@given(
    words=st.lists(
        st.one_of(
            st.text("ab,. \n", max_size=6), st.sampled_from([" x y ", "\u0378", "\U00011de0", "\U0001e4d0", " z"])
        ),
        max_size=12,
    ),
    documents=st.integers(1, 4),
)
def test_characters_younger_than_unicode_14_are_left_to_the_reference(
    tokenizer: EngineTokenizer, words: list[str], documents: int
) -> None:
    texts = ["".join(words[start::documents]) for start in range(documents)]
    right = [ids.tolist() for ids in tokenizer._reference_batch(texts)]

    for short in (0, screen._SHORT):  # in stretches, and as a whole
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(screen, "_SHORT", short)
            assert [ids.tolist() for ids in tokenizer.encode_batch(texts)] == right


def test_only_a_long_document_asks_whether_it_may_be_cut() -> None:
    """The proof of an engine does not: finding that out takes as long."""
    tokenizer = gpt2()
    assert tokenizer.engine == "gigatoken"
    tokenizer.encode_batch(["a young \u0378 character"])
    assert tokenizer._cuts is None

    long = "the mill \u0378 by the stream " * 20
    assert tokenizer.encode_batch([long])[0].tolist() == tokenizer.encode(long)
    assert tokenizer._cuts


def test_a_special_token_in_a_text_is_text_for_every_engine(tokenizer: EngineTokenizer) -> None:
    text, ends = join_texts([f"a{EOS}b", EOS])

    ids, _ = tokenizer.encode_flat(text, ends)

    assert tokenizer.token_id(EOS) not in ids.tolist()  # type: ignore[attr-defined]


def test_the_fingerprint_does_not_depend_on_the_engine() -> None:
    fast, reference = gpt2("gigatoken"), gpt2("reference")

    assert (fast.engine, reference.engine) == ("gigatoken", "tokenizers")
    assert fast.fingerprint == reference.fingerprint
    assert "asked for" in reference.engine_reason


def test_several_threads_at_once_give_the_same_ids() -> None:
    tokenizer = gpt2()
    blocks = [join_texts([f"the mill number {block} of {number} " * 50 for number in range(20)]) for block in range(16)]
    alone = [tokenizer.encode_flat(*block) for block in blocks]

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda block: tokenizer.encode_flat(*block), blocks))

    for (ids, ends), (other_ids, other_ends) in zip(alone, together, strict=True):
        assert np.array_equal(ids, other_ids) and np.array_equal(ends, other_ends)


def test_a_pickled_tokenizer_proves_its_engine_again(tokenizer: EngineTokenizer) -> None:
    assert tokenizer.engine == "gigatoken"

    copy = pickle.loads(pickle.dumps(tokenizer))

    assert copy._chosen is None
    assert copy.encode_batch(TEXTS)[1].tolist() == tokenizer.encode_batch(TEXTS)[1].tolist()


class Wrong:
    """An engine that is right for all but one word."""

    name = "wrong"

    def __init__(self, right: EngineTokenizer) -> None:
        self._right = right

    def encode_flat(self, text: Text, ends: Ends) -> FlatIds:
        ids, stops = self._right._reference_flat(text, ends)
        return (ids + (b"camelCase" in text.tobytes()), stops)


class Doubtful(HuggingFaceTokenizer):
    def _fast_engine(self) -> FastEngine:
        return Wrong(self)


def test_an_engine_that_differs_is_not_used_and_the_text_is_named(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = Doubtful(tokenizers.Tokenizer.from_str(trained().definition), name="doubtful")

    with caplog.at_level(logging.WARNING, "millstream.tokens"):
        assert tokenizer.engine == "tokenizers"

    assert "wrong differs from tokenizers: " in caplog.text
    assert tokenizer.encode_batch(["camelCase"])[0].tolist() == tokenizer.encode("camelCase")


def test_an_engine_that_was_asked_for_and_differs_is_an_error() -> None:
    tokenizer = Doubtful(tokenizers.Tokenizer.from_str(trained().definition), name="doubtful", engine="gigatoken")

    with pytest.raises(TokenizerError, match="wrong differs from tokenizers"):
        tokenizer.encode_batch(["x"])


def test_a_kind_that_no_fast_engine_takes_is_encoded_by_its_own_library() -> None:
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = load_tokenizer(words)

    assert tokenizer.encode_batch(["a b", "", "c"])[0].tolist() == [0, 1]
    assert isinstance(tokenizer, EngineTokenizer) and tokenizer.engine == "tokenizers"
    with pytest.raises(TokenizerError, match="gigatoken cannot encode for this tokenizer"):
        load_tokenizer(words, engine="gigatoken").encode_batch(["a"])


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(TokenizerError, match="engine='warp' is unknown"):
        gpt2("warp")


def test_marks_that_engines_put_in_another_order_are_found() -> None:
    def as_it_is(texts: Sequence[str]) -> list[Ids]:
        return [np.array([ord(letter) for letter in text], np.uint32) for text in texts]

    def turned(text: Text, ends: Ends) -> FlatIds:
        content = text.tobytes().decode().replace("\u0301\u0323", "\u0323\u0301")
        return as_it_is([content])[0], np.cumsum([len(each) for each in split_texts(text, ends)])

    assert misordered_marks(turned, as_it_is) == ["\u0301", "\u0323"]


def test_an_object_that_remembers_words_is_replaced_after_its_time() -> None:
    built: list[_Worker] = []

    class Spent(GigatokenEngine):
        def _worker(self) -> _Worker:
            worker = super()._worker()
            worker.life = 0.0
            built.append(worker)
            return worker

    from gigatoken.gigatoken_rs import load_hf_json

    engine = Spent(lambda: load_hf_json(trained().definition))
    first, second = (split_ids(*engine.encode_flat(*join_texts(TEXTS))) for _ in range(2))

    assert len(built) == 2
    assert [ids.tolist() for ids in first] == [ids.tolist() for ids in second]


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="only Python 3.11 knows Unicode 14 and no more")
def test_the_table_of_unassigned_characters_is_that_of_unicode_14() -> None:
    right = [unicodedata.category(chr(code)) == "Cn" for code in range(0x110000)]

    assert np.array_equal(unassigned(), np.array(right))
