"""Huge and strange documents: the same ids, in time and memory that grow with their length and no faster."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import TokenizerError
from millstream.tokens import BPETokenizer, join_texts, load_tokenizer
from millstream.tokens import flat as cutting
from millstream.tokens.flat import cut_documents, cut_points, survives_cuts
from millstream.tokens.huggingface import HuggingFaceTokenizer
from tokens.vocabularies import gpt2_encoding, gpt2_json


def gpt2(engine: Any) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer(tokenizers.Tokenizer.from_str(gpt2_json()), name="gpt2", engine=engine)


REFERENCE = gpt2("reference")


@pytest.fixture(scope="module")
def fast() -> HuggingFaceTokenizer:
    tokenizer = gpt2("gigatoken")
    assert tokenizer.engine == "gigatoken"
    return tokenizer


@given(text=st.text("ab1 \n.'é世", max_size=60), stretch=st.integers(1, 20))
def test_the_pieces_are_the_document_and_only_the_last_is_short(text: str, stretch: int) -> None:
    parts = [piece for _, piece in cut_documents(*join_texts([text]), cut=lambda: True, stretch=stretch)]

    assert "".join(parts) == text
    assert all(len(part.encode()) >= stretch for part in parts[:-1])


@given(text=st.text("abZ019 \n\t.,'-世é\u0301", max_size=80))
def test_cuts_leave_the_ids_as_they_are(text: str) -> None:
    parts = [piece for _, piece in cut_documents(*join_texts([text]), cut=lambda: True, stretch=1)]

    assert [id for part in parts for id in REFERENCE.encode(part)] == REFERENCE.encode(text)


def test_a_tokenizer_that_marks_the_start_of_a_text_is_never_cut() -> None:
    words = tokenizers.Tokenizer(tokenizers.models.BPE({"▁": 0, "a": 1, "▁a": 2}, [("▁", "a")]))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="always")
    marking = HuggingFaceTokenizer(words, name="metaspace")

    assert survives_cuts(REFERENCE._reference_batch, [])
    assert not survives_cuts(marking._reference_batch, [])


def test_an_added_token_with_a_space_forbids_cuts() -> None:
    spaced = tokenizers.Tokenizer.from_str(BPETokenizer.train(["a b"], vocab_size=260)._adapted.definition)
    spaced.add_tokens(["by the"])
    tokenizer = HuggingFaceTokenizer(spaced, name="spaced", engine="reference")

    assert not tokenizer._may_cut()


def test_a_reference_gets_huge_documents_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    tokenizer = gpt2("reference")
    whole = tokenizer._reference_batch

    def watched(texts: Any) -> Any:
        seen.append(sum(map(len, texts)))
        return whole(texts)

    text = "the mill by the stream, and so on. " * 70_000
    assert tokenizer._may_cut()
    monkeypatch.setattr(tokenizer, "_reference_batch", watched)
    ids, ends = tokenizer.encode_flat(*join_texts(["a", text, "b"]))

    assert max(seen) < 2 << 20
    assert ends.tolist()[0] == 1 and np.array_equal(ids[1:-1], np.array(tokenizer.encode(text), np.uint32))


def test_a_stretch_too_long_for_a_reference_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "LONGEST", 1 << 21)

    with pytest.raises(TokenizerError, match="3,000,000 bytes without a place where it may be cut"):
        gpt2("reference").encode_flat(*join_texts(["a" * 3_000_000]))


def test_a_run_that_tiktoken_gives_up_on_is_a_clear_error_and_nothing_to_the_fast_engine() -> None:
    text = " " * 1_000_000

    with pytest.raises(TokenizerError, match="tiktoken gave up on a text of 1,000,000 characters"):
        load_tokenizer(gpt2_encoding(), engine="reference").encode(text)
    assert len(load_tokenizer(gpt2_encoding()).encode_batch([text])[0]) == 1_000_000


SHAPES = {
    "spaces": " ",
    "one letter": "a",
    "two letters": "ab",
    "line ends": "\n",
    "digits": "7",
    "marks": "!",
    "quotes": "'",
    "characters": "世",
    "words": "word ",
    "accents": "\u0301",
}


@pytest.mark.parametrize("unit", SHAPES.values(), ids=SHAPES)
def test_the_cost_of_a_strange_document_grows_with_its_length(unit: str, fast: HuggingFaceTokenizer) -> None:
    def seconds(length: int) -> float:
        block = join_texts([unit * (length // len(unit))])
        started = time.thread_time()
        fast.encode_flat(*block)
        return time.thread_time() - started

    # Each length once: the engine remembers the words it has met.
    small, large = (min(seconds(length + 100 * trial) for trial in range(3)) for length in (250_000, 2_000_000))

    assert large < 32 * max(small, 0.002)  # 8 times the work; a square law would take 64 times as long


def test_cut_points_of_short_texts_are_none() -> None:
    assert [len(cut_points(join_texts([text])[0])) for text in ("", "a", " ", "a ")] == [0, 0, 0, 0]
