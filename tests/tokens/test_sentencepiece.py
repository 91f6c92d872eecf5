"""SentencePiece models and files of tiktoken ranks: loaded, saved, and encoded like their own libraries do."""

from __future__ import annotations

import base64
import io
import pickle
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import TokenizerError
from millstream.tokens import encode_flat, join_texts, load_tokenizer
from millstream.tokens.flat import split_ids
from millstream.tokens.tiktoken import TiktokenTokenizer
from tokens.vocabularies import gpt2_encoding, gpt2_ranks

TEXTS = ["the mill by the stream grinds the grain", "世界 é  two  spaces ", "", "<s> is text </s>", "x\ny\tz"]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    sentencepiece = pytest.importorskip("sentencepiece")
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the mill by the stream grinds the grain", "a stream of words, 1234"] * 20),
        model_writer=written,
        model_type=request.param,
        vocab_size=310,
        byte_fallback=True,
        normalization_rule_name="identity",
        hard_vocab_limit=False,
        minloglevel=2,
    )
    path = tmp_path_factory.mktemp("sp") / "tokenizer.model"
    path.write_bytes(written.getvalue())
    return path


def processor(model: Path) -> Any:
    return pytest.importorskip("sentencepiece").SentencePieceProcessor(model_file=str(model))


def test_a_model_gives_the_ids_of_its_library(model: Path) -> None:
    own = processor(model)

    for tokenizer in (load_tokenizer(model), load_tokenizer(model.parent), load_tokenizer(own)):
        ids, ends = encode_flat(tokenizer, *join_texts(TEXTS))
        assert [each.tolist() for each in split_ids(ids, ends)] == own.encode(TEXTS)
        assert (tokenizer.vocab_size, tokenizer.eos_id, tokenizer.pad_id) == (own.vocab_size(), 2, None)


def test_control_symbols_in_a_text_are_text(model: Path) -> None:
    tokenizer = load_tokenizer(model)

    assert tokenizer.token_id("</s>") == tokenizer.eos_id == 2
    assert tokenizer.token_id("no such piece") is None
    assert 2 not in tokenizer.encode_batch(["a </s> b"])[0]


def test_a_saved_model_is_the_same_after_loading(model: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(model)
    tokenizer.save(tmp_path / "tokenizer.json")  # type: ignore[attr-defined]

    for again in (load_tokenizer(tmp_path), pickle.loads(pickle.dumps(tokenizer))):
        assert again.fingerprint == tokenizer.fingerprint
        assert again.decode(again.encode("the mill")) == "the mill"


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    (tmp_path / "tokenizer.model").write_bytes(b"not a model")

    with pytest.raises(TokenizerError, match=r"tokenizer\.model: not a SentencePiece model"):
        load_tokenizer(tmp_path)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ranks") / "mine.tiktoken"
    path.write_bytes(b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in gpt2_ranks().items()))
    return path


def test_a_file_of_ranks_needs_the_name_of_its_pattern(ranks: Path) -> None:
    tokenizer = load_tokenizer(f"{ranks}:gpt2")

    assert isinstance(tokenizer, TiktokenTokenizer) and tokenizer.engine == "gigatoken"
    assert tokenizer.encode("Hello, 世界! the mill") == gpt2_encoding().encode("Hello, 世界! the mill")
    assert (tokenizer.eos_id, tokenizer.vocab_size) == (50256, 50257)
    for wanted in (ranks, f"{ranks}:martian"):
        with pytest.raises(TokenizerError, match="there is no pattern"):
            load_tokenizer(wanted)


def test_a_saved_encoding_is_the_same_after_loading(tmp_path: Path) -> None:
    tokenizer = TiktokenTokenizer(gpt2_encoding())
    tokenizer.save(tmp_path / "tokenizer.json")

    again = load_tokenizer(tmp_path)

    assert (again.fingerprint, again.name, again.eos_id) == (tokenizer.fingerprint, "gpt2", 50256)


@pytest.mark.parametrize(
    "content",
    [
        '{"format": "millstream tiktoken", "version": 1}',
        '{"format": "millstream sentencepiece", "version": 1}',
        '{"format": 7}',
    ],
)
def test_a_damaged_saved_tokenizer_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content)

    with pytest.raises(TokenizerError, match=r"tokenizer\.json: (this saved tokenizer is damaged|not a tokenizer)"):
        load_tokenizer(tmp_path)


def test_a_file_that_holds_no_ranks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gpt2.tiktoken").write_text("what is this\n")

    with pytest.raises(TokenizerError, match="not a file of mergeable ranks"):
        load_tokenizer(tmp_path / "gpt2.tiktoken")
